"""The Optuna study of a search: its settings, its journal, its attributes, and the states of its trials.

The directory of a search, `tuning/NAME/` in the state directory, contains the journal of its study, the lock of the
process that runs it, and its figures.
"""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Literal

import optuna
from optuna import Study as Study
from optuna.exceptions import ExperimentalWarning
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState
from pydantic import BaseModel, ConfigDict, Field

from cse_cli.core.formatting import differences, seed_list
from cse_cli.core.identity import Identity
from cse_cli.core.paths import home
from cse_cli.data.identity import Known, identify_known
from cse_cli.jobs.request import RunRequest
from cse_cli.recipe.load import LoadedRecipe, load
from cse_cli.recipe.named import settings
from cse_cli.recipe.schema import Recipe
from cse_cli.recipe.validate import is_test_split
from cse_cli.runs.lock import FileLock, is_held
from cse_cli.tuning import samplers
from cse_cli.tuning.parameter import Parameter
from registry import EVALUATORS, plugins
from registry.errors import CseError, TrackingError, UnknownNameError, suggestion
from registry.paths import make_folder

# Intended: the recipe's values outside a range, Wilcoxon's pruner, and a resumed run that reports some steps again.
warnings.filterwarnings("ignore", category=ExperimentalWarning)
warnings.filterwarnings("ignore", message="Fixed parameter")
warnings.filterwarnings("ignore", message="The reported value is ignored")
optuna.logging.set_verbosity(optuna.logging.CRITICAL)  # the driver reports failures without a traceback

# User attributes of a study.
IDENTITY: Final = "cse:identity"
_CONFIG: Final = "cse:config"
_BUDGET: Final = "cse:budget"
RECORD: Final = "cse:run"
"""ID of the record of the search."""

# User attributes of a trial.
OWN: Final = "own"
"""Whether it has the recipe's values."""
VALUES: Final = "values"
"""Values of a trial that an ended process left, for the queued one that has them now."""
REASON: Final = "reason"
"""Why it failed, or why its parts are not compatible."""
SAME_AS: Final = "same_as"
"""Number of the trial that already had the same values. This one was not run, and no list shows it."""
RUN: Final = "run"
"""ID of its run, or with several seeds of the record that summarizes them."""

State = Literal["complete", "pruned", "failed", "invalid", "running", "interrupted"]
_TABLE = re.compile(r"\{.*\}(?= → None$)|(?<=: None → )\{.*\}$")


TRIALS = 20
"""Default number of trials of a new search."""


class SearchConfig(BaseModel):
    """Settings of a search.

    Args:
        recipe: File or name of the recipe.
        parameters: Search space.
        overrides: `--set` strings of every trial.
        unset: `--unset` keys of every trial.
        plugins: Plug-in files of the components.
        trials: Total number of trials. None keeps the budget of an existing search.
        sampler: One of `samplers.SAMPLERS`.
        pruner: One of `samplers.PRUNERS`.
        seeds: Seeds of every trial, whose score is their mean. Empty for the recipe's seed.
        steps: Training steps of every trial instead of the recipe's.
        tags: Tags of the search and of its trials.
        timeout: Seconds after which this command starts no new trial.
        request: Options that decide where runs are executed and what is printed.
        save_best: File for a recipe with the best values.
        verify_seeds: Number of new seeds for a verification.
        resume: Whether the search must exist.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = ""
    recipe: str = ""
    parameters: tuple[Parameter, ...] = ()
    overrides: tuple[str, ...] = ()
    unset: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()
    trials: int | None = None
    sampler: str = "tpe"
    pruner: str = "auto"
    seeds: tuple[int, ...] = ()
    steps: int | None = None
    tags: dict[str, str] = Field(default_factory=dict)
    # Settings of one command, which the study does not keep.
    timeout: float | None = Field(None, exclude=True)
    request: RunRequest = Field(RunRequest(), exclude=True)
    save_best: Path | None = Field(None, exclude=True)
    verify_seeds: int | None = Field(None, exclude=True)
    resume: bool = Field(False, exclude=True)

    @property
    def used_pruner(self) -> str:
        """The pruner. "auto" is wilcoxon with several seeds, else median."""
        if self.pruner != "auto":
            return self.pruner
        return "wilcoxon" if len(self.seeds) > 1 else "median"

    @property
    def trial_overrides(self) -> list[str]:
        """`--set` strings of every trial, with `steps`."""
        return [*self.overrides, *([] if self.steps is None else [f"train.steps={self.steps}"])]

    @property
    def scored_by(self) -> str:
        """Seeds of the score of a trial: "seed 3", or "mean of seeds 0–2"."""
        return seed_list(self.seeds) if len(self.seeds) == 1 else f"mean of {seed_list(self.seeds)}"

    def load_base(self) -> LoadedRecipe:
        """Return the recipe with the settings that all trials share."""
        for file in self.plugins:
            plugins.add(file)
        loaded = load(self.recipe, self.trial_overrides, self.unset)
        dev_metric(loaded.recipe)
        return loaded

    def seeds_of(self, recipe: Recipe) -> tuple[int, ...]:
        """Return the seeds of every trial."""
        return self.seeds or (recipe.train.seed,)


def dev_metric(recipe: Recipe) -> str:
    """Return the "evaluator.metric" that a search maximizes: the metric that selects the best model."""
    dev = []
    for name, part in recipe.evaluators.items():
        if not is_test_split(part.params):
            dev.append(f"{name}.{EVALUATORS[part.name].cls.metric}")
    action = f"use --metric {dev[0]}" if dev else "add an evaluator with a dev split to the recipe"
    metric = recipe.evaluate.metric_for_best_model
    if metric is None:
        raise CseError("evaluate.metric_for_best_model is not set", action, code="tune.no_metric")
    params = recipe.evaluators[metric.rpartition(".")[0]].params
    if is_test_split(params):
        message = f"metric '{metric}' uses split '{params.get('split', 'test')}', but a search needs a dev split"
        raise CseError(message, action, code="tune.test_metric")
    return metric


def directory(name: str) -> Path:
    """Return the directory of a search."""
    return home() / "tuning" / name


def journal(name: str) -> Path:
    """Return the file with the study of a search."""
    return directory(name) / "journal.jsonl"


def search_names() -> list[str]:
    """Return the names of all searches. Nothing is created."""
    return sorted(file.parent.name for file in directory("").glob("*/journal.jsonl"))


@contextmanager
def driving(name: str) -> Iterator[None]:
    """Hold the lock of a search while this process runs its trials. A second process is an error."""
    lock = FileLock(directory(name) / "lock")
    if not lock.acquire():
        message = f"search '{name}' is already running in another process"
        action = f"wait for it, and use --workers for parallel trials; `cse tune --best {name}` shows it"
        raise CseError(message, action, code="tune.already_running")
    try:
        yield
    finally:
        lock.release()


def is_driven(name: str) -> bool:
    """Return whether a process runs a search. True if its lock cannot be tested."""
    return is_held(directory(name) / "lock") is not False


def _storage(name: str) -> JournalStorage:
    """Open the journal of a search, and create it if it is missing."""
    try:
        return JournalStorage(JournalFileBackend(str(journal(name))))
    except (ValueError, KeyError, TypeError, AssertionError) as error:
        message = f"the journal of search '{name}' is damaged: {journal(name)}"
        action = "restore it from a backup, or use another --name; `cse runs ls` lists its finished trials"
        raise TrackingError(message, action, code="tune.damaged_journal") from error


def open_study(config: SearchConfig) -> Study:
    """Open the study of a search, and create it if it is new. A budget in the config replaces the stored one."""
    recipe = config.load_base().recipe
    asked = identity(recipe, config.parameters, config.seeds_of(recipe), config.steps)
    make_folder(directory(config.name))
    if (file := journal(config.name)).exists():
        content = file.read_bytes()
        if not content:
            warnings.warn(f"{file} is empty: its trials are lost, and the search restarts", stacklevel=2)
        os.truncate(file, content.rfind(b"\n") + 1)  # a full disk leaves half a line
    study = optuna.create_study(
        study_name=config.name, storage=_storage(config.name), load_if_exists=True, direction="maximize"
    )
    if (known := study.user_attrs.get(IDENTITY)) is None:
        if not study.get_trials(deepcopy=False):
            study.enqueue_trial(samplers.own_values(config.parameters), user_attrs={OWN: True})
        study.set_user_attr(_CONFIG, config.model_dump_json())
        study.set_user_attr(_BUDGET, config.trials or TRIALS)
        study.set_user_attr(IDENTITY, asked)  # last: without it, the study counts as new
        return study
    check_same_search(config.name, known, asked)
    if config.trials is not None and config.trials != budget(study):
        study.set_user_attr(_BUDGET, config.trials)
    return study


def load_study(name: str) -> Study:
    """Open an existing study for reading."""
    if journal(name).exists():
        with suppress(KeyError):
            study = optuna.load_study(study_name=name, storage=_storage(name))
            if IDENTITY in study.user_attrs:
                return study
    raise _unknown_search(name)


def find_study(name: str) -> Study:
    """Open the study of a search by its name or a unique prefix."""
    known = search_names()
    matching = [name] if name in known else [one for one in known if one.startswith(name)]
    if len(matching) == 1:
        return load_study(matching[0])
    if matching:
        message = f"'{name}' matches {len(matching)} searches: {', '.join(matching[:5])}"
        raise UnknownNameError(message, "give more characters", code="tune.ambiguous_search")
    raise _unknown_search(name)


def _unknown_search(name: str) -> UnknownNameError:
    message = f"unknown search '{name}' in {directory('')}.{suggestion(name, search_names())}"
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
    return {
        "experiment": identify_known(recipe).model_dump(),
        "direction": "maximize",
        "metric": recipe.evaluate.metric_for_best_model,
        "seeds": list(seeds),
        "steps": steps,
        "space": {parameter.name: parameter.identity() for parameter in parameters},
        "settings": settings(recipe.resolved()),
    }


def check_same_search(name: str, known: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """Refuse to continue a search with different settings or other code. The message lists all differences."""
    keys = ("direction", "metric", "seeds", "steps", "space")
    changed = list(differences({key: known[key] for key in keys}, {key: asked[key] for key in keys}))
    then, now = Known(**known["experiment"]), Known(**asked["experiment"])
    if then.settings == now.settings:
        digests = {part: {key: one or "" for key, one in getattr(now, part).items()} for part in ("weights", "scored")}
        now_known = Identity(settings=now.settings, text=now.text or "", code=now.code, **digests)
        changed += map(str, then.differences(now_known))
    else:  # text and weights may differ too, and the settings show why
        lines = differences(known["settings"], asked["settings"])
        named = [line for line in lines if not line.startswith("train.steps")]
        changed += named or ([] if changed else [f"recipe: {then.settings} → {now.settings}"])
    if changed:
        # The name is enough for a table that only one side has.
        listed = "\n  ".join(_TABLE.sub("{…}", line) for line in changed)
        raise CseError(
            f"search '{name}' has different settings:\n  {listed}",
            "restore them, or use another --name",
            code="tune.different_settings",
        )


# States of trials.


def state(trial: FrozenTrial) -> State | None:
    """Return the state of a trial that has ended, or None if it waits, runs, was left, or repeats another one."""
    if trial.state == TrialState.FAIL:
        return "failed" if REASON in trial.user_attrs else None
    if trial.state == TrialState.PRUNED:
        return "invalid" if REASON in trial.user_attrs else "pruned"
    return "complete" if trial.state == TrialState.COMPLETE else None


def settled(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """Return the trials that count toward the budget: complete, pruned and failed ones."""
    return [trial for trial in trials if state(trial) not in (None, "invalid")]


def counts(trials: Sequence[FrozenTrial]) -> dict[State, int]:
    """Return the number of complete, pruned and failed trials."""
    states = [state(trial) for trial in trials]
    return {one: states.count(one) for one in ("complete", "pruned", "failed")}
