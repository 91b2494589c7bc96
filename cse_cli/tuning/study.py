"""A study in its storage: what it asks, and what became of its trials."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import optuna
from optuna import Study as Study
from optuna.trial import FrozenTrial, TrialState

from cse_cli.core.formatting import differences
from cse_cli.core.identity import Difference, Identity
from cse_cli.data.identity import Known, identify_known
from cse_cli.recipe.schema import PROSE, Recipe, data_identity
from cse_cli.tuning import samplers
from cse_cli.tuning.config import ELSEWHERE, TRIALS, SearchConfig
from cse_cli.tuning.owner import choosing
from cse_cli.tuning.parameter import Parameter
from cse_cli.tuning.storage import address, folder, study_names
from registry.errors import CseError, UnknownNameError, suggestion

# User attributes of a study.
_IDENTITY: Final = "cse:identity"
_CONFIG: Final = "cse:plan"
_BUDGET: Final = "cse:budget"
_RUN: Final = "cse:run"
_ACCEPTED: Final = "cse:accepted"

# User attributes of a trial.
OWN: Final = "own"
"""It has the recipe's own values."""
REASON: Final = "reason"
"""Why it failed, or why its parts do not fit together."""
SAME_AS: Final = "same_as"
"""Number of the trial that had the same values already: this one was not run."""
RUNS: Final = "runs"
"""Seed → ID of its run."""
SCORES: Final = "scores"
"""Seed → score."""
RUN: Final = "run"
"""ID of its run, or with several seeds of the record that summarizes them."""
BEGUN: Final = "begun"
"""When a process resumed it, in seconds since 1970."""

DIRECTION: Final = "maximize"
State = Literal["complete", "pruned", "failed", "refused", "running", "interrupted"]
_TABLE = re.compile(r"\{.*\}(?= → None$)|(?<=: None → )\{.*\}$")


def open_study(config: SearchConfig) -> Study:
    """Open the study of a search, and create it if it is new. The budget of the config, if it has one, becomes its own.

    Raises:
        CseError: If the study asks another question, or is to be joined and does not exist.
    """
    samplers.check_names(config)
    recipe = config.load_base().recipe
    asked = identity(recipe, config.parameters, config.seeds_of(recipe), config.steps)
    place = address(config.storage, config.name)
    if config.join and config.name not in study_names(config.storage):
        load_study(config.storage, config.name)  # raises, naming similar ones
    storage = place.open()
    with choosing(place, config.name):
        study = optuna.create_study(study_name=config.name, storage=storage, load_if_exists=True, direction=DIRECTION)
        if (known := study.user_attrs.get(_IDENTITY)) is None:
            _fill(study, config, asked)
        else:
            _go_on(study, config, known, asked)
        if config.sampler == "grid":
            grid = samplers.grid_points(config.parameters, budget(study))
            for point in samplers.untried(grid, [values_of(trial) for trial in study.get_trials(deepcopy=False)]):
                study.enqueue_trial(point)
    return study


def _fill(study: Study, config: SearchConfig, asked: dict[str, Any]) -> None:
    """Write what a new study is about; the identity last, so that a kill before it is a study not yet made."""
    trials = study.get_trials(deepcopy=False)
    if any(OWN not in trial.user_attrs for trial in trials):
        raise CseError(f"study '{config.name}' was not made by `cse tune`", "give this search another --name")
    if not trials:
        study.enqueue_trial(samplers.own_values(config.parameters), user_attrs={OWN: True})
    study.set_user_attr(_CONFIG, config.model_dump_json(exclude=ELSEWHERE))
    study.set_user_attr(_BUDGET, config.trials or TRIALS)
    study.set_user_attr(_IDENTITY, asked)


def _go_on(study: Study, config: SearchConfig, known: dict[str, Any], asked: dict[str, Any]) -> None:
    """Check that a search is the one that its study was created for, and remember code that the user accepted."""
    if changed := check_same_search(config.name, known, asked, accept_changed=config.accept_changed):
        study.set_user_attr(_ACCEPTED, list(dict.fromkeys([*accepted(study), *changed])))
        study.set_user_attr(_IDENTITY, asked)
    if config.trials is not None and config.trials != budget(study):
        study.set_user_attr(_BUDGET, config.trials)


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
            stored_config(study)
            return study
    raise _unknown_study(name, place.shown, study_names(storage))


def find_study(storage: str | None, name: str) -> Study:
    """Open the study of a name or of its unique beginning.

    Raises:
        UnknownNameError: None or several begin so.
    """
    known = study_names(storage)
    matching = [name] if name in known else [one for one in known if one.startswith(name)]
    if len(matching) == 1:
        return load_study(storage, matching[0])
    if matching:
        listed = ", ".join(matching[:6])
        raise UnknownNameError(f"'{name}' may be {len(matching)} studies: {listed}", "write more of it")
    place = address(storage, name)
    raise _unknown_study(name, str(folder()) if storage is None else place.shown, known)


def _unknown_study(name: str, place: str, known: Sequence[str]) -> UnknownNameError:
    hint = suggestion(name, known) or (f" Known: {', '.join(known[:10])}." if known else "")
    return UnknownNameError(f"no study '{name}' in {place}.{hint}", "`cse tune ls` lists studies")


def stored_config(study: Study, storage: str | None = None) -> SearchConfig:
    """Return the config that a study was made with, kept at `storage`.

    Raises:
        CseError: It was not made by `cse tune`.
    """
    text = study.user_attrs.get(_CONFIG)
    if text is None or _IDENTITY not in study.user_attrs:
        raise CseError(f"study '{study.study_name}' was not made by `cse tune`", "give this search another --name")
    return SearchConfig(**{**json.loads(text), "storage": storage, "trials": budget(study)})


def budget(study: Study) -> int:
    """Return how many trials a study is to have in all."""
    return int(study.user_attrs[_BUDGET])


def recipe_hash(study: Study) -> str:
    """Return the hash of the recipe that a study starts from."""
    return str(study.user_attrs[_IDENTITY]["experiment"]["settings"])


def metric(study: Study) -> str:
    """Return the dev metric that a study maximises."""
    return str(study.user_attrs[_IDENTITY]["metric"])


def accepted(study: Study) -> list[str]:
    """Return which code changed during the search and was accepted, such as "code of losses.info_nce"."""
    return list(study.user_attrs.get(_ACCEPTED, []))


def run_of(study: Study) -> str | None:
    """Return the ID of the study's record."""
    run: str | None = study.user_attrs.get(_RUN)
    return run


def set_run(study: Study, run_id: str) -> None:
    """Remember the ID of the study's record."""
    study.set_user_attr(_RUN, run_id)


# What makes two searches the same search.


def identity(
    recipe: Recipe, parameters: Sequence[Parameter], seeds: Sequence[int], steps: int | None
) -> dict[str, Any]:
    """Return what all trials of a study have in common, JSON-ready.

    Args:
        recipe: As `SearchConfig.load_base` returns it.
        parameters: The space.
        seeds: Of every trial.
        steps: Of training, where they are not the recipe's.
    """
    settings = {key: value for key, value in recipe.resolved().items() if key not in PROSE}
    settings["train"] = {key: value for key, value in settings["train"].items() if key != "seed"}
    settings["data"] = data_identity(settings["data"])
    return {
        "experiment": identify_known(recipe).model_dump(),
        "direction": DIRECTION,
        "metric": recipe.evaluate.select,
        "seeds": list(seeds),
        "steps": steps,
        "space": {parameter.name: parameter.identity() for parameter in parameters},
        "settings": settings,
    }


def check_same_search(
    name: str, known: Mapping[str, Any], asked: Mapping[str, Any], *, accept_changed: bool = False
) -> list[str]:
    """Refuse to continue a study that asks another question.

    Args:
        name: Name of the study.
        known: Identity of the study.
        asked: Identity of the search that is to continue it.
        accept_changed: Whether other code of the components is accepted.

    Returns:
        Accepted changes, such as "code of losses.info_nce".

    Raises:
        CseError: It names everything that differs.
    """
    keys = ("direction", "metric", "seeds", "steps", "space")
    changed = list(differences({key: known[key] for key in keys}, {key: asked[key] for key in keys}))
    then, now = Known(**known["experiment"]), Known(**asked["experiment"])
    if then.settings != now.settings:  # what it trains with differs too, and is named by the settings
        lines = differences(known["settings"], asked["settings"])
        named = [line for line in lines if not line.startswith("train.steps")]
        changed += named or ([] if changed else [f"recipe: {then.settings} → {now.settings}"])
        made = []
    else:
        made = _made_of(then, now)
    code = [str(one) for one in made if one.part == "code"]
    if changed := [*changed, *(str(one) for one in made if one.part != "code")]:
        # Of a table that one side lacks, the name says enough.
        listed = "\n  ".join(_TABLE.sub("{…}", line) for line in [*changed, *code])
        raise CseError(
            f"study '{name}' asks another question:\n  {listed}",
            f"undo that to continue '{name}', or give this search another --name",
        )
    if code and not accept_changed:
        raise CseError(
            f"the trials of study '{name}' were made by other code:\n  " + "\n  ".join(code),
            "--name NEW starts a search that runs them again; --accept-changed keeps them and continues",
        )
    return code


def _made_of(then: Known, now: Known) -> list[Difference]:
    """Return how text, weights and code differ. What one side does not know is taken to be the same."""
    return _filled(then, now).differences(_filled(now, then))


def _filled(known: Known, other: Known) -> Identity:
    text = known.text if known.text is not None else other.text
    weights = {place: digest or other.weights.get(place) or "" for place, digest in known.weights.items()}
    return Identity(settings=known.settings, text=text or "", weights=weights, code=known.code)


# What became of trials.


def state(trial: FrozenTrial) -> State | None:
    """Return what came of a trial, or None: waiting, at work, or not run because another had the same values."""
    if trial.state == TrialState.FAIL:
        return "failed" if SAME_AS not in trial.user_attrs and reason(trial) is not None else None
    if trial.state == TrialState.PRUNED and REASON in trial.user_attrs:
        return "refused"
    ends: dict[TrialState, State] = {TrialState.COMPLETE: "complete", TrialState.PRUNED: "pruned"}
    return ends.get(trial.state)


def reason(trial: FrozenTrial) -> str | None:
    """Return why a trial failed or was refused, or None."""
    ended = trial.state in (TrialState.FAIL, TrialState.PRUNED)
    return trial.user_attrs.get(REASON) if ended else None


def settled(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """Return the trials that count: complete, pruned, or failed by their own fault; what was refused cost nothing."""
    return [trial for trial in trials if state(trial) not in (None, "refused")]


def counts(trials: Sequence[FrozenTrial]) -> dict[State, int]:
    """Return how many trials came to which end."""
    found: dict[State, int] = {"complete": 0, "pruned": 0, "failed": 0}
    for trial in settled(trials):
        found[state(trial) or "failed"] += 1
    return found


def values_of(trial: FrozenTrial) -> dict[str, Any]:
    """Return the values a trial has, or is to have."""
    return {**trial.system_attrs.get("fixed_params", {}), **trial.params}
