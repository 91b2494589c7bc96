"""A study in its storage: made once, opened by every worker, refused to those that ask another question."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, TypeAlias

import optuna

from cse_cli.tuning import sampling
from cse_cli.tuning import trials as words
from cse_cli.tuning.identity import DIRECTION, base, demand_same, identity, seeds
from cse_cli.tuning.locks import held
from cse_cli.tuning.plan import TRIALS, Plan
from cse_cli.tuning.storage import Address, address, names
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
    if any(words.OWN not in trial.user_attrs for trial in trials):
        raise CseError(f"study '{plan.name}' was not made by `cse tune`", "give this search another --name")
    if not trials:
        study.enqueue_trial(sampling.own_values(plan.knobs), user_attrs={words.OWN: True})
    kept = replace(plan, storage=None, device="auto", workers=None, timeout=None, join=False)
    study.set_user_attr(_PLAN, kept.to_json())
    study.set_user_attr(_BUDGET, plan.trials or TRIALS)
    study.set_user_attr(_IDENTITY, asked)


def _enqueue_grid(study: Study, plan: Plan) -> None:
    every = sampling.grid(sampling.space(plan.knobs), budget(study))
    tried = [words.fixed(trial) for trial in study.get_trials(deepcopy=False)]
    for point in sampling.untried(every, tried):
        study.enqueue_trial(point)
