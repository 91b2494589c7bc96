"""Optuna's distributions of parameters, samplers and pruners, and the points of a finite space.

ADR 0002 explains why the points are enumerated here and not by Optuna's `GridSampler` or `BruteForceSampler`.
"""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.pruners import (
    BasePruner,
    HyperbandPruner,
    MedianPruner,
    NopPruner,
    PercentilePruner,
    SuccessiveHalvingPruner,
    WilcoxonPruner,
)
from optuna.samplers import BaseSampler, GPSampler, QMCSampler, RandomSampler, TPESampler

from cse_cli.tuning.parameter import Parameter, Value
from registry.errors import CseError, suggestion

if TYPE_CHECKING:
    from cse_cli.tuning.study import SearchConfig

SAMPLERS: Final = ("tpe", "gp", "random", "grid", "qmc")
PRUNERS: Final = ("auto", "median", "percentile", "halving", "hyperband", "wilcoxon", "none")
MOST_POINTS = 10_000
"""Number of points above which a space counts as infinite."""
FEW_TRIALS = 5
"""Complete trials that a median needs."""
LOSING_SEEDS = 0.15
"""Significance level of pruning by seeds: three seeds lost in a row (1/8) are enough, two (1/4) are not."""

Space = Mapping[str, BaseDistribution]
Point = dict[str, Value | None]
Key = frozenset[tuple[str, str]]


def distributions(parameters: Sequence[Parameter]) -> Space:
    """Return name → distribution of every parameter."""
    return {parameter.name: _distribution(parameter) for parameter in parameters}


def _distribution(one: Parameter) -> BaseDistribution:
    if one.choices is not None:
        known = one.default is not None or one.when is not None
        return CategoricalDistribution(one.choices if known else (None, *one.choices))
    if one.low is None or one.high is None:
        raise ValueError(f"{one.name} has neither range nor choices")
    if one.whole:
        return IntDistribution(int(one.low), int(one.high), log=one.log, step=int(one.step or 1))
    return FloatDistribution(one.low, one.high, log=one.log, step=one.step)


def own_values(parameters: Sequence[Parameter]) -> Point:
    """Return the recipe's values, without those that no trial can have, such as 0 on a log scale."""
    found: Point = {}
    space = distributions(parameters)
    for parameter in parameters:
        if not parameter.exists(found):
            continue
        try:
            space[parameter.name].to_internal_repr(parameter.default)
        except ValueError:
            continue
        if parameter.default is not None or parameter.choices is not None:
            found[parameter.name] = parameter.default
    return found


def suggest(trial: optuna.Trial, name: str, distribution: BaseDistribution) -> None:
    """Give a trial the value of a parameter that the study's sampler chooses."""
    if isinstance(distribution, CategoricalDistribution):
        trial.suggest_categorical(name, distribution.choices)
        return
    choose = trial.suggest_int if isinstance(distribution, IntDistribution) else trial.suggest_float
    choose(name, distribution.low, distribution.high, log=distribution.log, step=distribution.step)


def points(parameters: Sequence[Parameter], trials: int | None = None) -> list[Point] | None:
    """Return every point of a space once, without the parameters that a point does not have.

    With `trials`, the points are those of a grid: a continuous range has as many evenly spaced values as the trials
    allow. Without it, the result is None if the space is continuous or has more than `MOST_POINTS`.
    """
    space = distributions(parameters)
    axes = {name: _values(one) for name, one in space.items()}
    if trials is not None and None in axes.values():
        others = math.prod(len(axis) for axis in axes.values() if axis is not None)
        each = max(2, math.floor((trials / others) ** (1 / [*axes.values()].count(None)) + 1e-9))
        axes = {name: _spaced(space[name], each) if axis is None else axis for name, axis in axes.items()}
    finite = [axis for axis in axes.values() if axis is not None]
    number = math.prod(map(len, finite))
    if len(finite) < len(axes) or number > MOST_POINTS:
        if trials is None:
            return None
        message = f"--sampler grid: the space has {number:,} points, more than {MOST_POINTS:,}"
        raise CseError(message, "use larger steps (--range a..b:step), or --sampler tpe", code="tune.large_grid")
    found: dict[Key, Point] = {}
    for values in itertools.product(*finite):
        point = dict(zip(axes, values, strict=True))
        point = {one.name: point[one.name] for one in parameters if one.exists(point)}
        found.setdefault(key_of(point), point)
    return list(found.values())


def _values(distribution: BaseDistribution) -> list[Value | None] | None:
    """Return all values of a distribution, or None if it is continuous or has more than `MOST_POINTS`."""
    if isinstance(distribution, CategoricalDistribution):
        return list(distribution.choices)
    if distribution.step is None:
        return None
    count = int((distribution.high - distribution.low) / distribution.step + 1e-9) + 1
    return [distribution.low + number * distribution.step for number in range(count)] if count <= MOST_POINTS else None


def _spaced(distribution: BaseDistribution, count: int) -> list[Value | None]:
    """Return evenly spaced values of a continuous range, or of one with more than `MOST_POINTS`."""
    low, high = distribution.low, distribution.high
    values: list[Value | None] = []
    for number in range(count):
        share = number / (count - 1)
        value = low * (high / low) ** share if distribution.log else low + (high - low) * share
        values.append(round(value) if isinstance(distribution, IntDistribution) else min(max(value, low), high))
    return values


def key_of(values: Mapping[str, Any]) -> Key:
    """Return what two trials with the same values have in common."""
    # Strings, because 1, 1.0 and True are equal in Python, and sums of steps differ in their last digit.
    return frozenset((k, f"{v:.10g}" if type(v) in (int, float) else repr(v)) for k, v in values.items())


def check_names(config: SearchConfig) -> None:
    """Refuse unknown samplers and pruners, and samplers that cannot search the space."""
    for option, name, known in (("sampler", config.sampler, SAMPLERS), ("pruner", config.pruner, PRUNERS)):
        if name not in known:
            message = f"--{option}: unknown {option} '{name}'.{suggestion(name, known)}"
            code = f"tune.unknown_{option}"
            raise CseError(message, f"use {', '.join(known)}", code=code)
    own = own_values(config.parameters)
    outside = [one.name for one in config.parameters if one.when is None and one.name not in own]
    if config.sampler == "gp" and outside:
        message = f"--sampler gp: the recipe's '{outside[0]}' is outside the range, where a Gaussian process needs it"
        action = "use --sampler tpe, or set a value inside the range with --set"
        raise CseError(message, action, code="tune.own_outside")


def make_sampler(config: SearchConfig, space: Space, number: int) -> BaseSampler:
    """Return the sampler of the values of trial `number`.

    Its seed depends only on the name of the search and the number. So one worker's search is the same each time and
    after an interruption, and two workers do not sample the same values.
    """
    seed = zlib.crc32(config.name.encode())
    # A parameter that only some trials have is sampled independently, from the trials that have it.
    always = {parameter.name for parameter in config.parameters if parameter.when is None}
    varying = {name: one for name, one in space.items() if name in always and not one.single()}
    startup = max(4, min(10, (config.trials or 0) // 4))
    match config.sampler:
        case "gp":
            sampler: BaseSampler = GPSampler(seed=seed + number, n_startup_trials=startup)
        case "qmc":
            # One seed for all trials: the storage counts the points of the sequence.
            sampler = QMCSampler(qmc_type="sobol", scramble=True, seed=seed, warn_independent_sampling=False)
            varying = {k: v for k, v in varying.items() if not isinstance(v, CategoricalDistribution)}
        case "tpe":
            sampler = TPESampler(seed=seed + number, n_startup_trials=startup, multivariate=True, constant_liar=True)
        case _:
            return RandomSampler(seed=seed + number)
    # Optuna would use the parameters that all trials have, and the first trial may lack some of the recipe's values.
    sampler.infer_relative_search_space = lambda _study, _trial: varying
    return sampler


def make_pruner(config: SearchConfig, steps: int | None, every: int) -> BasePruner:
    """Return the pruner of a search. `steps`: training steps, if known. `every`: those between dev scores."""
    by_seed = len(config.seeds) > 1
    longest = len(config.seeds) if by_seed else steps
    least = 1 if by_seed else max(1, every)
    warm = 0 if by_seed else (steps or 0) // 4
    match config.used_pruner:
        case "median":
            return MedianPruner(n_startup_trials=FEW_TRIALS, n_warmup_steps=warm)
        case "percentile":
            return PercentilePruner(25.0, n_startup_trials=FEW_TRIALS, n_warmup_steps=warm)
        case "halving":
            return SuccessiveHalvingPruner(min_resource=least, reduction_factor=3)
        case "hyperband":
            return HyperbandPruner(min_resource=least, max_resource=longest or "auto", reduction_factor=3)
        case "wilcoxon":
            return WilcoxonPruner(p_threshold=LOSING_SEEDS, n_startup_steps=2)
        case _:
            return NopPruner()
