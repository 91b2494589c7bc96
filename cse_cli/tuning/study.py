"""The Optuna study of a search: its attributes, the question that it belongs to, and the states of its trials."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Literal

import optuna
from optuna import Study as Study
from optuna.trial import FrozenTrial, TrialState

from cse_cli.core.formatting import differences
from cse_cli.core.identity import Difference, Identity
from cse_cli.data.identity import Known, identify_known
from cse_cli.recipe.named import data_identity
from cse_cli.recipe.schema import PROSE, Recipe
from cse_cli.tuning import samplers
from cse_cli.tuning.config import TRIALS, SearchConfig
from cse_cli.tuning.owner import choosing
from cse_cli.tuning.parameter import Parameter
from cse_cli.tuning.storage import address, directory, search_names
from registry.errors import CseError, UnknownNameError, suggestion

# User attributes of a study.
IDENTITY: Final = "cse:identity"
_CONFIG: Final = "cse:config"
_BUDGET: Final = "cse:budget"
RECORD: Final = "cse:run"
"""ID of the record of the search."""
ACCEPTED: Final = "cse:accepted"
"""Code that changed during the search and was accepted, such as "code of losses.info_nce"."""

# User attributes of a trial.
OWN: Final = "own"
"""Whether it has the recipe's values."""
REASON: Final = "reason"
"""Why it failed, or why its parts are not compatible."""
SAME_AS: Final = "same_as"
"""Number of the trial that already had the same values. This one was not run, and no list shows it."""
NUMBER: Final = "number"
"""Number of the trial in lists, which counts from 0 without repetitions. Optuna numbers repetitions, too."""
RUNS: Final = "runs"
"""Seed → ID of its run."""
SCORES: Final = "scores"
"""Seed → score."""
RUN: Final = "run"
"""ID of its run, or with several seeds of the record that summarizes them."""
BEGUN: Final = "begun"
"""Time at which a process resumed it, in seconds since 1970."""

DIRECTION: Final = "maximize"
State = Literal["complete", "pruned", "failed", "invalid", "running", "interrupted"]
_TABLE = re.compile(r"\{.*\}(?= → None$)|(?<=: None → )\{.*\}$")


def open_study(config: SearchConfig) -> Study:
    """Open the study of a search, and create it if it is new. A budget in the config replaces the stored one."""
    samplers.check_names(config)
    recipe = config.load_base().recipe
    asked = identity(recipe, config.parameters, config.seeds_of(recipe), config.steps)
    place = address(config.storage, config.name)
    if config.resume and config.name not in search_names(config.storage):
        raise _unknown_search(config.name, place.shown, config.storage)
    with choosing(place, config.name):
        if place.is_emptied():
            warnings.warn(f"{place.shown} is empty: its trials are lost, and the search restarts", stacklevel=2)
        study = optuna.create_study(
            study_name=config.name, storage=place.open(), load_if_exists=True, direction=DIRECTION
        )
        if (known := study.user_attrs.get(IDENTITY)) is None:
            _fill(study, config, asked)
        else:
            if changed := check_same_search(config.name, known, asked, accept_changed=config.accept_changed):
                accepted = [*study.user_attrs.get(ACCEPTED, []), *changed]
                study.set_user_attr(ACCEPTED, list(dict.fromkeys(accepted)))
                study.set_user_attr(IDENTITY, asked)
            if config.trials is not None and config.trials != budget(study):
                study.set_user_attr(_BUDGET, config.trials)
        if config.sampler == "grid":
            grid = samplers.grid_points(config.parameters, budget(study))
            for point in samplers.untried(grid, [values_of(trial) for trial in study.get_trials(deepcopy=False)]):
                study.enqueue_trial(point)
    return study


def _fill(study: Study, config: SearchConfig, asked: dict[str, Any]) -> None:
    """Write the attributes of a new study. The identity is last: without it, the study counts as new."""
    trials = study.get_trials(deepcopy=False)
    if any(OWN not in trial.user_attrs for trial in trials):
        raise _foreign(config.name)
    if not trials:
        study.enqueue_trial(samplers.own_values(config.parameters), user_attrs={OWN: True})
    study.set_user_attr(_CONFIG, config.model_dump_json())
    study.set_user_attr(_BUDGET, config.trials or TRIALS)
    study.set_user_attr(IDENTITY, asked)


def _foreign(name: str) -> CseError:
    return CseError(f"study '{name}' was not created by `cse tune`", "use another --name", code="tune.foreign_study")


def load_study(storage: str | None, name: str) -> Study:
    """Open an existing study for reading."""
    place = address(storage, name)
    if place.exists() and not place.is_emptied():
        with suppress(KeyError):
            study = optuna.load_study(study_name=name, storage=place.open())
            if IDENTITY not in study.user_attrs:
                raise _foreign(name)
            return study
    raise _unknown_search(name, place.shown, storage)


def find_study(storage: str | None, name: str) -> Study:
    """Open the study of a search by its name or a unique prefix."""
    known = search_names(storage)
    matching = [name] if name in known else [one for one in known if one.startswith(name)]
    if len(matching) == 1:
        return load_study(storage, matching[0])
    if matching:
        message = f"'{name}' matches {len(matching)} searches: {', '.join(matching[:5])}"
        raise UnknownNameError(message, "give more characters", code="tune.ambiguous_search")
    raise _unknown_search(name, str(directory()) if storage is None else address(storage, name).shown, storage)


def _unknown_search(name: str, place: str, storage: str | None) -> UnknownNameError:
    message = f"unknown search '{name}' in {place}.{suggestion(name, search_names(storage))}"
    return UnknownNameError(message, "run `cse tune ls`", code="tune.unknown_search")


def stored_config(study: Study) -> SearchConfig:
    """Return the settings of a search, with its present budget."""
    stored = json.loads(study.user_attrs[_CONFIG]) | {"trials": budget(study)}
    return SearchConfig(**{key: value for key, value in stored.items() if key in SearchConfig.model_fields})


def budget(study: Study) -> int:
    """Return the total number of trials of a search."""
    return int(study.user_attrs[_BUDGET])


def metric(study: Study) -> str:
    """Return the dev metric that a search maximizes."""
    return str(study.user_attrs[IDENTITY]["metric"])


# Identity of a search.


def identity(
    recipe: Recipe, parameters: Sequence[Parameter], seeds: Sequence[int], steps: int | None
) -> dict[str, Any]:
    """Return the settings that all trials of a search share, as JSON values."""
    settings = {key: value for key, value in recipe.resolved().items() if key not in PROSE}
    settings["train"] = {key: value for key, value in settings["train"].items() if key != "seed"}
    settings["data"] = data_identity(settings["data"])
    return {
        "experiment": identify_known(recipe).model_dump(),
        "direction": DIRECTION,
        "metric": recipe.evaluate.metric_for_best_model,
        "seeds": list(seeds),
        "steps": steps,
        "space": {parameter.name: parameter.identity() for parameter in parameters},
        "settings": settings,
    }


def check_same_search(
    name: str, known: Mapping[str, Any], asked: Mapping[str, Any], *, accept_changed: bool = False
) -> list[str]:
    """Refuse to continue a search with different settings. The message lists all differences.

    Returns:
        Accepted changes, such as "code of losses.info_nce".
    """
    keys = ("direction", "metric", "seeds", "steps", "space")
    changed = list(differences({key: known[key] for key in keys}, {key: asked[key] for key in keys}))
    then, now = Known(**known["experiment"]), Known(**asked["experiment"])
    made: list[Difference] = []
    if then.settings == now.settings:  # otherwise text and weights differ too, and the settings show why
        weights = {place: digest or then.weights.get(place) or "" for place, digest in now.weights.items()}
        text = now.text if now.text is not None else then.text  # an unknown part counts as equal
        filled = Identity(settings=now.settings, text=text or "", weights=weights, code=now.code)
        made = then.differences(filled)
    else:
        lines = differences(known["settings"], asked["settings"])
        named = [line for line in lines if not line.startswith("train.steps")]
        changed += named or ([] if changed else [f"recipe: {then.settings} → {now.settings}"])
    code = [str(one) for one in made if one.part == "code"]
    if changed := [*changed, *(str(one) for one in made if one.part != "code")]:
        # The name is enough for a table that only one side has.
        listed = "\n  ".join(_TABLE.sub("{…}", line) for line in [*changed, *code])
        raise CseError(
            f"search '{name}' has different settings:\n  {listed}",
            "restore them, or use another --name",
            code="tune.different_settings",
        )
    if code and not accept_changed:
        raise CseError(
            f"the code has changed since search '{name}':\n  " + "\n  ".join(code),
            "use another --name to run the trials again, or add --accept-changed to keep them",
            code="tune.changed_code",
        )
    return code


# States of trials.


def state(trial: FrozenTrial) -> State | None:
    """Return the state of a trial that has ended, or None if it waits, runs, or repeats the values of another one."""
    if trial.state == TrialState.FAIL:
        return "failed" if SAME_AS not in trial.user_attrs and REASON in trial.user_attrs else None
    if trial.state == TrialState.PRUNED:
        return "invalid" if REASON in trial.user_attrs else "pruned"
    return "complete" if trial.state == TrialState.COMPLETE else None


def number_of(trial: FrozenTrial | optuna.Trial) -> int:
    """Return the number of a trial in lists. A process that was killed may not have chosen one."""
    return int(trial.user_attrs.get(NUMBER, trial.number))


def settled(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """Return the trials that count toward the budget: complete, pruned and failed ones."""
    return [trial for trial in trials if state(trial) not in (None, "invalid")]


def counts(trials: Sequence[FrozenTrial]) -> dict[State, int]:
    """Return the number of complete, pruned and failed trials."""
    states = [state(trial) for trial in trials]
    return {one: states.count(one) for one in ("complete", "pruned", "failed")}


def values_of(trial: FrozenTrial) -> dict[str, Any]:
    """Return the values that a trial has, or will have."""
    return {**trial.system_attrs.get("fixed_params", {}), **trial.params}
