"""A study in its storage: made once, opened by every worker, refused to those that ask another question.

What makes two searches the same search: checked whenever a worker joins a study.

What has become of a study's trials, told from the storage alone: every worker on every machine counts alike.

Trials whose process is gone: found, marked, and repeated with the same values. Called with the study's lock held.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import optuna
import psutil
from optuna.exceptions import UpdateFinishedTrialError
from optuna.storages import fail_stale_trials
from optuna.trial import FrozenTrial, Trial, TrialState

from cse_cli.core.processes import lives
from cse_cli.core.run_folder import differences
from cse_cli.recipe.load import LoadedRecipe, load
from cse_cli.recipe.schema import Recipe, data_identity
from cse_cli.tuning import samplers as sampling
from cse_cli.tuning.config import TRIALS, Ended, Plan, State, objective
from cse_cli.tuning.space import Knob
from cse_cli.tuning.storage import Address, address, held, names
from registry.errors import CseError, UnknownNameError, suggestion

Study: TypeAlias = optuna.Study

_IDENTITY: Final = "cse:identity"
_PLAN: Final = "cse:plan"
_BUDGET: Final = "cse:budget"
_RUN: Final = "cse:run"


def open_study(plan: Plan) -> Study:
    """Open a plan's study, made where it is new; its budget becomes the plan's, where that has one.

    Raises:
        CseError: It asks another question, or is to be joined and does not exist.
    """
    sampling.check(plan)
    loaded = base(plan)
    asked = identity(loaded.recipe, plan.knobs, seeds(plan, loaded.recipe), plan.steps)
    place = address(plan.storage, plan.name)
    if plan.join:
        _demand_there(place, plan)
    storage = place.open()
    with held(place.lock(plan.name)):
        study = optuna.create_study(study_name=plan.name, storage=storage, load_if_exists=True, direction=DIRECTION)
        if (known := study.user_attrs.get(_IDENTITY)) is None:
            _fill(study, plan, asked)
        else:
            demand_same(plan.name, known, asked)
            if plan.trials is not None and plan.trials != budget(study):
                study.set_user_attr(_BUDGET, plan.trials)
        if plan.sampler == "grid":
            _enqueue_grid(study, plan)
    return study


def load_study(storage: str | None, name: str) -> Study:
    """Open a study that exists, to look at it.

    Raises:
        UnknownNameError: It does not.
    """
    place = address(storage, name)
    if place.exists():
        try:
            study = optuna.load_study(study_name=name, storage=place.open())
        except KeyError:
            pass
        else:
            if _PLAN not in study.user_attrs:
                with held(place.lock(name)):  # another process is making it
                    pass
            stored_plan(study)
            return study
    known = names(storage)
    hint = suggestion(name, known) or (f" Known: {', '.join(known[:10])}." if known else "")
    raise UnknownNameError(f"no study '{name}' in {place.shown}.{hint}", "`cse tune ls` lists studies")


def stored_plan(study: Study, storage: str | None = None) -> Plan:
    """Return the plan that a study was made with, kept at `storage`.

    Raises:
        CseError: It was not made by `cse tune`.
    """
    text = study.user_attrs.get(_PLAN)
    if text is None:
        raise CseError(f"study '{study.study_name}' was not made by `cse tune`", "give this search another --name")
    return Plan.from_json(text, storage=storage, trials=budget(study))


def budget(study: Study) -> int:
    """Return how many trials a study is to have in all."""
    return int(study.user_attrs[_BUDGET])


def recipe_hash(study: Study) -> str:
    """Return the hash of the recipe that a study starts from."""
    return str(study.user_attrs[_IDENTITY]["recipe"])


def metric(study: Study) -> str:
    """Return the dev metric that a study maximises."""
    return str(study.user_attrs[_IDENTITY]["metric"])


def run_of(study: Study) -> str | None:
    """Return the study's run in the tracking store."""
    run: Any = study.user_attrs.get(_RUN)
    return None if run is None else str(run)


def set_run(study: Study, run_id: str) -> None:
    """Remember the study's run in the tracking store."""
    study.set_user_attr(_RUN, run_id)


def _demand_there(place: Address, plan: Plan) -> None:
    if place.database is None and not place.exists():
        load_study(plan.storage, plan.name)
    if plan.name not in optuna.get_all_study_names(place.open()):
        load_study(plan.storage, plan.name)


def _fill(study: Study, plan: Plan, asked: dict[str, Any]) -> None:
    """Write what a new study is about; the identity last, so that a kill before it is a study not yet made."""
    trials = study.get_trials(deepcopy=False)
    if any(OWN not in trial.user_attrs for trial in trials):
        raise CseError(f"study '{plan.name}' was not made by `cse tune`", "give this search another --name")
    if not trials:
        study.enqueue_trial(sampling.own_values(plan.knobs), user_attrs={OWN: True})
    kept = replace(plan, storage=None, device="auto", workers=None, timeout=None, join=False)
    study.set_user_attr(_PLAN, kept.to_json())
    study.set_user_attr(_BUDGET, plan.trials or TRIALS)
    study.set_user_attr(_IDENTITY, asked)


def _enqueue_grid(study: Study, plan: Plan) -> None:
    every = sampling.grid(sampling.space(plan.knobs), budget(study))
    tried = [fixed(trial) for trial in study.get_trials(deepcopy=False)]
    for point in sampling.untried(every, tried):
        study.enqueue_trial(point)


DIRECTION: Final = "maximize"
_TABLE = re.compile(r"\{.*\}(?= → None$)|(?<=: None → )\{.*\}$")
_PROSE = {"title", "description", "paper", "tune"}


def base(plan: Plan) -> LoadedRecipe:
    """Return the recipe that a plan starts from, with what all trials have in common laid over it.

    Raises:
        CseError: It is not valid, or has no dev metric to tune by.
    """
    loaded = load(plan.recipe, common(plan), plan.unset)
    objective(loaded.recipe)
    return loaded


def common(plan: Plan) -> list[str]:
    """Return the `--set` texts of every trial."""
    return [*plan.overrides, *([] if plan.steps is None else [f"train.steps={plan.steps}"])]


def seeds(plan: Plan, recipe: Recipe) -> tuple[int, ...]:
    """Return the seeds that a trial's score is the mean of."""
    return plan.seeds or (recipe.train.seed,)


def identity(recipe: Recipe, knobs: Sequence[Knob], seeds: Sequence[int], steps: int | None) -> dict[str, Any]:
    """Return what all workers of a study must agree on, JSON-ready.

    Args:
        recipe: As `base` returns it.
        knobs: The space.
        seeds: Of every trial.
        steps: Of training, where they are not the recipe's.
    """
    settings = {key: value for key, value in recipe.resolved().items() if key not in _PROSE}
    settings["train"] = {key: value for key, value in settings["train"].items() if key != "seed"}
    settings["data"] = data_identity(settings["data"])
    return {
        "recipe": recipe.hash(),
        "direction": DIRECTION,
        "metric": recipe.evaluate.select,
        "seeds": list(seeds),
        "steps": steps,
        "space": {knob.name: knob.identity() for knob in knobs},
        "settings": settings,
    }


def demand_same(name: str, known: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    """Refuse to work on a study that asks another question.

    Raises:
        CseError: Naming everything that differs.
    """
    changed = list(differences(_essence(known), _essence(ours)))
    if known["recipe"] != ours["recipe"]:
        told = [line for line in differences(known["settings"], ours["settings"]) if not line.startswith("train.steps")]
        changed += told or ([] if changed else [f"recipe: {known['recipe']} → {ours['recipe']}"])
    if changed:
        raise CseError(
            f"study '{name}' asks another question:\n  " + "\n  ".join(map(_folded, changed)),
            f"put that back to go on with '{name}', or give this search another --name",
        )


def _folded(line: str) -> str:
    """Return a difference without the contents of a table that one side lacks: its name says enough."""
    return _TABLE.sub("{…}", line)


def _essence(identity: Mapping[str, Any]) -> dict[str, Any]:
    return {key: identity[key] for key in ("direction", "metric", "seeds", "steps", "space")}


OWN: Final = "own"
"""User attribute of the trial that has the recipe's own values."""
REASON: Final = "reason"
"""Why it failed, by itself: it counts, and is not repeated."""
RETRY_OF: Final = "retry_of"
"""Number of the lost trial that this one repeats."""
LOSSES: Final = "losses"
"""How often its process was gone before."""
INTERRUPTED: Final = "interrupted"
"""It was stopped on purpose, which is no loss."""
SAME_AS: Final = "same_as"
"""Number of the trial that had the same values already: it was not run."""
RUNS: Final = "runs"
"""Seed → run in the tracking store."""
SCORES: Final = "scores"
"""Seed → score."""
RUN: Final = "run"
"""The trial's own run in the tracking store."""

MOST_LOSSES = 3
GONE = f"its process was ended {MOST_LOSSES} times"
_STATES: Mapping[TrialState, State] = {TrialState.COMPLETE: "complete", TrialState.PRUNED: "pruned"}


def state(trial: FrozenTrial) -> State | None:
    """Return what came of a trial, or None: waiting, running, lost, or not run because another had the same values."""
    if trial.state != TrialState.FAIL:
        return _STATES.get(trial.state)
    return "failed" if SAME_AS not in trial.user_attrs and reason(trial) is not None else None


def reason(trial: FrozenTrial) -> str | None:
    """Return why a trial failed; None where it did not, or is to be repeated."""
    if trial.state != TrialState.FAIL:
        return None
    told = trial.user_attrs.get(REASON)
    return str(told) if told is not None else (GONE if losses(trial) >= MOST_LOSSES else None)


def losses(trial: FrozenTrial) -> int:
    """Return how often the processes of a failed trial, and of those it repeats, were gone."""
    this = INTERRUPTED not in trial.user_attrs and REASON not in trial.user_attrs
    return int(trial.user_attrs.get(LOSSES, 0)) + (1 if this else 0)


def settled(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """Return the trials that count: complete, pruned, or failed by themselves."""
    return [trial for trial in trials if state(trial) is not None]


def taken(trials: Sequence[FrozenTrial], number: int) -> list[FrozenTrial]:
    """Return the trials, other than `number`, whose values need no second one: those that count, and those at work."""
    at_work = [trial for trial in trials if trial.state == TrialState.RUNNING and trial.number != number]
    return [*settled(trials), *at_work]


def lost(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """Return the failed trials that are to be repeated and are not repeated yet."""
    repeated = {trial.user_attrs.get(RETRY_OF) for trial in trials}
    return [
        trial
        for trial in trials
        if trial.state == TrialState.FAIL
        and SAME_AS not in trial.user_attrs
        and reason(trial) is None
        and trial.number not in repeated
    ]


def outcomes(study: optuna.Study) -> list[Ended]:
    """Return every trial that counts, in order."""
    trials = study.get_trials(deepcopy=False)
    return [ended(trial, trials) for trial in settled(trials)]


def ended(trial: FrozenTrial, trials: Sequence[FrozenTrial]) -> Ended:
    """Return what came of one trial that counts.

    Args:
        trial: The trial.
        trials: All of its study.
    """
    became = state(trial)
    if became is None:
        raise ValueError(f"trial {trial.number} has no outcome")
    score = reached(trial)
    earlier = [t.value for t in trials if t.state == TrialState.COMPLETE and _before(t, trial) and t.value is not None]
    return Ended(
        number=trial.number,
        values=dict(trial.params),
        state=became,
        score=score,
        reason=reason(trial),
        best=became == "complete" and score is not None and all(score > value for value in earlier),
        seconds=trial.duration.total_seconds() if trial.duration is not None else 0.0,
        own=bool(trial.user_attrs.get(OWN)),
        run_id=trial.user_attrs.get(RUN),
    )


def reached(trial: FrozenTrial) -> float | None:
    """Return a complete trial's score, or the last that another one reported."""
    value: float | None = trial.value if trial.state == TrialState.COMPLETE else None
    if value is None and trial.last_step is not None:
        value = trial.intermediate_values[trial.last_step]
    return value


def counts(trials: Sequence[FrozenTrial]) -> dict[State, int]:
    """Return how many trials came to which end."""
    found: dict[State, int] = {"complete": 0, "pruned": 0, "failed": 0}
    for trial in trials:
        if (became := state(trial)) is not None:
            found[became] += 1
    return found


def fixed(trial: FrozenTrial) -> dict[str, Any]:
    """Return the values a trial has, or is to have where it was lost before it took them."""
    return {**trial.system_attrs.get("fixed_params", {}), **trial.params}


def _before(one: FrozenTrial, other: FrozenTrial) -> bool:
    if one.datetime_complete is None or other.datetime_complete is None:
        return False
    return (one.datetime_complete, one.number) < (other.datetime_complete, other.number)


OWNER: Final = "owner"
"""User attribute: host, process id and start time of the process that does, or did, a trial."""
_KEPT = (OWN, RUNS, RUN, SCORES)
"""What a repeated trial takes over: whether it is the recipe's own, and the runs it may go on with."""


def sign(trial: Trial) -> None:
    """Write whose trial it is, so that others can tell whether its process still lives."""
    process = psutil.Process()
    trial.set_user_attr(OWNER, [host(), process.pid, f"{process.create_time():.2f}"])
    # The heartbeat's own thread may come later than a kill; a trial without any would never count as silent.
    if (beat := getattr(trial.study._storage, "record_heartbeat", None)) is not None:
        beat(trial._trial_id)


def sweep(study: optuna.Study) -> list[tuple[int, int]]:
    """Fail the trials whose process is gone and queue them again; return numbers: the new one, the lost one.

    What is to be repeated is told from the trials themselves, so that a kill in the middle of this loses none, and
    doing it again repeats none twice.
    """
    fail_stale_trials(study)
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        if _is_gone(trial):
            with suppress(UpdateFinishedTrialError):
                study.tell(trial.number, state=TrialState.FAIL, skip_if_finished=True)
    repeated = []
    for trial in lost(study.get_trials(deepcopy=False)):
        kept = {key: trial.user_attrs[key] for key in _KEPT if key in trial.user_attrs}
        attributes = {**kept, RETRY_OF: trial.number, LOSSES: losses(trial)}
        study.enqueue_trial(fixed(trial), user_attrs=attributes)
        repeated.append((study.get_trials(deepcopy=False)[-1].number, trial.number))
    return repeated


def _is_gone(trial: FrozenTrial) -> bool:
    """Tell whether no process can be at a running trial, as far as this machine knows."""
    if OWNER not in trial.user_attrs:
        return True  # taken under the lock that is ours now, and never signed
    place, process, started = trial.user_attrs[OWNER]
    if place != host():
        return False  # its heartbeat tells
    return process == os.getpid() or not lives(process, started)


def host() -> str:
    """Return this machine, or container: where process ids mean the same processes."""
    try:
        return f"{socket.gethostname()} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return socket.gethostname()
