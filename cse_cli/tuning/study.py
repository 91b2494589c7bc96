"""The Optuna study of a search: its settings, its journal, the states of its trials, its samplers and pruners.

The directory of a search, `tuning/NAME/` in the state directory, contains the journal of its study, the lock of the
process that runs it, and its figures. ADR 0002 explains why the points of a finite space are enumerated here and not by
Optuna's `GridSampler` or `BruteForceSampler`.
"""

from __future__ import annotations

import itertools
import math
import os
import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Literal

import optuna
from optuna import Study as Study
from optuna import pruners, samplers
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
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
from cse_cli.recipe.schema import Recipe, settings
from cse_cli.recipe.validate import is_test_split
from cse_cli.runs.lock import FileLock, is_held
from cse_cli.tuning.parameters import Parameter, Value
from registry import EVALUATORS
from registry.errors import CseError, TrackingError, UnknownNameError, suggestion
from registry.machinery import plugins
from registry.paths import make_folder

# Intended: the recipe's values outside a range, Wilcoxon's pruner, and a resumed run that reports some steps again.
warnings.filterwarnings("ignore", category=ExperimentalWarning)
warnings.filterwarnings("ignore", message="Fixed parameter")
warnings.filterwarnings("ignore", message="The reported value is ignored")
optuna.logging.set_verbosity(optuna.logging.CRITICAL)  # the driver reports failures without a traceback

# User attributes of a study.
IDENTITY: Final = "cse:identity"
_CONFIG: Final = "cse:config"
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
TRIALS = 20
"""Default number of trials of a new search."""
SAMPLERS: Final = ("tpe", "gp", "random", "grid", "qmc")
PRUNERS: Final = ("auto", "median", "percentile", "halving", "hyperband", "wilcoxon", "none")
MOST_POINTS = 10_000
"""Number of points above which a space counts as infinite."""
FEW_TRIALS = 5
"""Complete trials that a median needs."""
LOSING_SEEDS = 0.15
"""Significance level of pruning by seeds: three seeds lost in a row (1/8) are enough, two (1/4) are not."""
Point = dict[str, Value | None]
Key = frozenset[tuple[str, str]]


class SearchConfig(BaseModel):
    """Settings of a search.

    `overrides` and `unset` apply to every trial, `steps` replaces the recipe's training steps. The score of a trial is
    the mean over `seeds`, which are empty until the recipe's seed is known. `trials` is the total number, or None for
    the budget of an existing search. `timeout` is the time in seconds after which this command starts no new trial.
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


def dev_metric(recipe: Recipe) -> str:
    """Return the "evaluator.metric" that a search maximizes: the metric that selects the best model."""
    named = ((name, part) for name, part in recipe.evaluators.items() if not is_test_split(part.params))
    dev = [f"{name}.{EVALUATORS[part.name].cls.metric}" for name, part in named]
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
    try:
        return JournalStorage(JournalFileBackend(str(journal(name))))
    except (ValueError, KeyError, TypeError, AssertionError) as error:
        message = f"the journal of search '{name}' is damaged: {journal(name)}"
        action = "restore it from a backup, or use another --name; `cse runs ls` lists its finished trials"
        raise TrackingError(message, action, code="tune.damaged_journal") from error


def open_study(config: SearchConfig) -> Study:
    """Open the study of a search, and create it if it is new. A budget in the config replaces the stored one."""
    asked = identity(config, config.load_base().recipe)
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
            study.enqueue_trial(own_values(config.parameters), user_attrs={OWN: True})
        kept = config.model_copy(update={"trials": config.trials or TRIALS})
        study.set_user_attr(_CONFIG, kept.model_dump_json())
        study.set_user_attr(IDENTITY, asked)  # last: without it, the study counts as new
        return study
    check_same_search(config.name, known, asked)
    if config.trials is not None and config.trials != (stored := stored_config(study)).trials:
        study.set_user_attr(_CONFIG, stored.model_copy(update={"trials": config.trials}).model_dump_json())
    return study


def load_study(name: str) -> Study:
    """Open an existing study for reading."""
    if journal(name).exists():
        with suppress(KeyError):
            study = optuna.load_study(study_name=name, storage=_storage(name))
            if IDENTITY in study.user_attrs:
                return study
    message = f"unknown search '{name}' in {directory('')}.{suggestion(name, search_names())}"
    raise UnknownNameError(message, "run `cse tune ls`", code="tune.unknown_search")


def find_study(name: str) -> Study:
    """Open the study of a search by its name or a unique prefix."""
    known = search_names()
    matching = [name] if name in known else [one for one in known if one.startswith(name)]
    if len(matching) > 1:
        message = f"'{name}' matches {len(matching)} searches: {', '.join(matching[:5])}"
        raise UnknownNameError(message, "give more characters", code="tune.ambiguous_search")
    return load_study(next(iter(matching), name))


def stored_config(study: Study) -> SearchConfig:
    """Return the settings of a search, whose budget is the present one."""
    return SearchConfig.model_validate_json(study.user_attrs[_CONFIG])


# Identity of a search.


def identity(config: SearchConfig, recipe: Recipe) -> dict[str, Any]:
    """Return the settings that all trials of a search share, as JSON values."""
    return {
        "experiment": identify_known(recipe).model_dump(),
        "direction": "maximize",
        "metric": recipe.evaluate.metric_for_best_model,
        "seeds": list(config.seeds),
        "steps": config.steps,
        "space": {parameter.name: parameter.identity() for parameter in config.parameters},
        "settings": settings(recipe.resolved()),
    }


def check_same_search(name: str, known: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """Refuse to continue a search with different settings or other code. The message lists all differences."""
    keys = ("direction", "metric", "seeds", "steps", "space")
    changed = list(differences({key: known[key] for key in keys}, {key: asked[key] for key in keys}))
    then, now = Known(**known["experiment"]), Known(**asked["experiment"])
    if then.settings == now.settings:
        # What is unknown now, such as a column that is not made yet, counts as equal.
        weights = {place: digest or then.weights.get(place) or "" for place, digest in now.weights.items()}
        scored = then.scored if None in now.scored.values() else now.scored
        known_scored = {name: digest or "" for name, digest in scored.items()}
        filled = now.model_dump() | {"text": now.text or then.text or "", "weights": weights, "scored": known_scored}
        changed += map(str, then.differences(Identity(**filled)))
    else:  # text and weights may differ too, and the settings show why
        lines = differences(known["settings"], asked["settings"])
        named = [line for line in lines if not line.startswith("train.steps")]
        changed += named or ([] if changed else [f"recipe: {then.settings} → {now.settings}"])
    if changed:
        message = "\n  ".join([f"search '{name}' has different settings:", *changed])
        raise CseError(message, "restore them, or use another --name", code="tune.different_settings")


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


# Samplers and pruners.


def check_settings(config: SearchConfig) -> None:
    """Refuse unknown samplers and pruners, and samplers that cannot search the space."""
    if config.sampler not in SAMPLERS:
        message = f"--sampler: unknown sampler '{config.sampler}'.{suggestion(config.sampler, SAMPLERS)}"
        raise CseError(message, f"use {', '.join(SAMPLERS)}", code="tune.unknown_sampler")
    if config.pruner not in PRUNERS:
        message = f"--pruner: unknown pruner '{config.pruner}'.{suggestion(config.pruner, PRUNERS)}"
        raise CseError(message, f"use {', '.join(PRUNERS)}", code="tune.unknown_pruner")
    own = own_values(config.parameters)
    outside = [one.name for one in config.parameters if one.when is None and one.name not in own]
    if config.sampler == "grid":
        points(config.parameters, config.trials or TRIALS)  # a grid that is too large is an error
    if config.sampler == "gp" and outside:
        message = f"--sampler gp: the recipe's '{outside[0]}' is outside the range, where a Gaussian process needs it"
        action = "use --sampler tpe, or set a value inside the range with --set"
        raise CseError(message, action, code="tune.own_outside")


def distribution(one: Parameter) -> BaseDistribution:
    """Return Optuna's distribution of a parameter. A choice may be None if the recipe's value is unset."""
    if one.choices is not None:
        known = one.default is not None or one.when is not None
        return CategoricalDistribution(one.choices if known else (None, *one.choices))
    if one.low is None or one.high is None:
        raise ValueError(f"{one.name} has neither range nor choices")
    if one.whole:
        return IntDistribution(int(one.low), int(one.high), log=one.log, step=int(one.step or 1))
    return FloatDistribution(one.low, one.high, log=one.log, step=one.step)


def suggest(trial: optuna.Trial, parameter: Parameter) -> None:
    """Give a trial the value of a parameter that the study's sampler chooses."""
    name, space = parameter.name, distribution(parameter)
    if isinstance(space, CategoricalDistribution):
        trial.suggest_categorical(name, space.choices)
    else:
        choose = trial.suggest_int if isinstance(space, IntDistribution) else trial.suggest_float
        choose(name, space.low, space.high, log=space.log, step=space.step)


def own_values(parameters: Sequence[Parameter]) -> Point:
    """Return the recipe's values, without those that no trial can have, such as 0 on a log scale."""
    found: Point = {}
    for one in parameters:
        if one.exists(found) and (one.default is not None or one.choices is not None):
            with suppress(ValueError):
                distribution(one).to_internal_repr(one.default)
                found[one.name] = one.default
    return found


def points(parameters: Sequence[Parameter], trials: int | None = None) -> list[Point] | None:
    """Return every point of a space once, or None if the space is continuous or has more than `MOST_POINTS`.

    A point has no values of parameters that do not exist in it. With `trials`, the points are those of a grid: a
    continuous range has as many evenly spaced values as the trials allow.
    """
    axes = [_values(parameter) for parameter in parameters]
    if trials is not None and None in axes:
        others = math.prod(len(axis) for axis in axes if axis is not None)
        each = max(2, math.floor((trials / others) ** (1 / axes.count(None)) + 1e-9))
        axes = [_values(one, each) if axis is None else axis for one, axis in zip(parameters, axes, strict=True)]
    finite = [axis for axis in axes if axis is not None]
    number = math.prod(map(len, finite))
    if len(finite) < len(axes) or number > MOST_POINTS:
        if trials is None:
            return None
        message = f"--sampler grid: the space has {number:,} points, more than {MOST_POINTS:,}"
        raise CseError(message, "use larger steps (--range a..b:step), or --sampler tpe", code="tune.large_grid")
    found: dict[Key, Point] = {}
    for values in itertools.product(*finite):
        point = dict(zip((one.name for one in parameters), values, strict=True))
        point = {one.name: point[one.name] for one in parameters if one.exists(point)}
        found.setdefault(key_of(point), point)
    return list(found.values())


def _values(parameter: Parameter, count: int | None = None) -> list[Value | None] | None:
    """Return all values of a parameter, or `count` evenly spaced ones.

    Without `count`, return None for a continuous parameter, and for one with more than `MOST_POINTS` values.
    """
    space = distribution(parameter)
    if isinstance(space, CategoricalDistribution):
        return list(space.choices)
    low, high = space.low, space.high
    if count is None:
        steps = math.inf if space.step is None else int((high - low) / space.step + 1e-9)
        return [low + number * space.step for number in range(int(steps) + 1)] if steps < MOST_POINTS else None
    shares = [number / (count - 1) for number in range(count)]
    spaced = [low * (high / low) ** share if space.log else low + (high - low) * share for share in shares]
    return [round(one) if isinstance(space, IntDistribution) else min(max(one, low), high) for one in spaced]


def key_of(values: Mapping[str, Any]) -> Key:
    """Return a key that is equal for two trials with the same values."""
    # Strings, because 1, 1.0 and True are equal in Python, and sums of steps differ in their last digit.
    return frozenset((k, f"{v:.10g}" if type(v) in (int, float) else repr(v)) for k, v in values.items())


def make_sampler(config: SearchConfig, number: int) -> samplers.BaseSampler:
    """Return the sampler of the values of trial `number`.

    Its seed depends only on the name of the search and the number. So one worker's search is the same each time and
    after an interruption, and two workers do not sample the same values.
    """
    seed = zlib.crc32(config.name.encode())
    # A parameter that only some trials have is sampled independently, from the trials that have it.
    always = {one.name: distribution(one) for one in config.parameters if one.when is None}
    varying = {name: one for name, one in always.items() if not one.single()}
    startup = max(4, min(10, (config.trials or 0) // 4))
    match config.sampler:
        case "gp":
            sampler: samplers.BaseSampler = samplers.GPSampler(seed=seed + number, n_startup_trials=startup)
        case "qmc":
            # One seed for all trials: the storage counts the points of the sequence.
            sampler = samplers.QMCSampler(qmc_type="sobol", scramble=True, seed=seed, warn_independent_sampling=False)
            varying = {k: v for k, v in varying.items() if not isinstance(v, CategoricalDistribution)}
        case "tpe":
            sampler = samplers.TPESampler(
                seed=seed + number, n_startup_trials=startup, multivariate=True, constant_liar=True
            )
        case _:
            return samplers.RandomSampler(seed=seed + number)
    # Optuna would use the parameters that all trials have, and the first trial may lack some of the recipe's values.
    sampler.infer_relative_search_space = lambda _study, _trial: varying
    return sampler


def make_pruner(config: SearchConfig, steps: int | None, every: int) -> pruners.BasePruner:
    """Return the pruner of a search. `steps`: training steps, if known. `every`: those between dev scores."""
    longest, least, warm = steps, max(1, every), (steps or 0) // 4
    if len(config.seeds) > 1:
        longest, least, warm = len(config.seeds), 1, 0
    match config.used_pruner:
        case "median":
            return pruners.MedianPruner(n_startup_trials=FEW_TRIALS, n_warmup_steps=warm)
        case "percentile":
            return pruners.PercentilePruner(25.0, n_startup_trials=FEW_TRIALS, n_warmup_steps=warm)
        case "halving":
            return pruners.SuccessiveHalvingPruner(min_resource=least, reduction_factor=3)
        case "hyperband":
            return pruners.HyperbandPruner(min_resource=least, max_resource=longest or "auto", reduction_factor=3)
        case "wilcoxon":
            return pruners.WilcoxonPruner(p_threshold=LOSING_SEEDS, n_startup_steps=2)
        case _:
            return pruners.NopPruner()
