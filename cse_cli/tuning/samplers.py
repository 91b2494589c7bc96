"""Parameters as Optuna's distributions, the points of a space, and the samplers and pruners by name."""

from __future__ import annotations

import itertools
import math
import random
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

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

from cse_cli.tuning.config import SearchConfig
from cse_cli.tuning.parameter import Parameter
from cse_cli.tuning.ranges import Value
from registry.errors import CseError, suggestion

SAMPLERS: Final = ("tpe", "gp", "random", "grid", "qmc")
PRUNERS: Final = ("auto", "median", "percentile", "halving", "hyperband", "wilcoxon", "none")
MOST_POINTS = 10_000
"""Spaces with more points than this are never searched to their end."""
FEW_TRIALS = 5
"""Complete trials before a median says anything."""
LOSING_SEEDS = 0.15
"""Significance level of pruning by seeds: three seeds lost in a row (1/8) are enough, two (1/4) are not."""

Space = Mapping[str, BaseDistribution]
Point = dict[str, Value | None]


def distributions(parameters: Sequence[Parameter]) -> Space:
    """Return the distribution of every parameter by name."""
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
    """Return the recipe's own values, without those that no trial can have: on a log scale, 0."""
    found: Point = {}
    space = distributions(parameters)
    for parameter in parameters:
        distribution = space[parameter.name]
        if not parameter.exists(found):
            continue
        try:
            distribution.to_internal_repr(parameter.default)
        except ValueError:
            continue
        if parameter.default is not None or parameter.choices is not None:
            found[parameter.name] = parameter.default
    return found


def suggest(trial: optuna.Trial, name: str, distribution: BaseDistribution) -> None:
    """Give a trial the value of a parameter, chosen by the study's sampler."""
    if isinstance(distribution, CategoricalDistribution):
        trial.suggest_categorical(name, distribution.choices)
        return
    choose = trial.suggest_int if isinstance(distribution, IntDistribution) else trial.suggest_float
    choose(name, distribution.low, distribution.high, log=distribution.log, step=distribution.step)


def count_points(space: Space) -> int | None:
    """Return how many different trials a space has; None where it is continuous."""
    counts = [_count(distribution) for distribution in space.values()]
    known = [count for count in counts if count is not None]
    return math.prod(known) if len(known) == len(counts) else None


def _count(distribution: BaseDistribution) -> int | None:
    if isinstance(distribution, CategoricalDistribution):
        return len(distribution.choices)
    if distribution.step is None:
        return None
    return int((distribution.high - distribution.low) / distribution.step + 1e-9) + 1


def _values(distribution: BaseDistribution) -> list[Value | None]:
    if isinstance(distribution, CategoricalDistribution):
        return list(distribution.choices)
    return [distribution.low + number * distribution.step for number in range(_count(distribution) or 0)]


def all_points(parameters: Sequence[Parameter]) -> list[Point] | None:
    """Return every point of a space; None where it is continuous or has more than `MOST_POINTS`."""
    space = distributions(parameters)
    count = count_points(space)
    if count is None or count > MOST_POINTS:
        return None
    return _product(parameters, [_values(distribution) for distribution in space.values()])


def _product(parameters: Sequence[Parameter], axes: Sequence[Sequence[Value | None]]) -> list[Point]:
    """Return every combination once, without the parameters that it does not have."""
    found: dict[tuple[tuple[str, str], ...], Point] = {}
    for values in itertools.product(*axes):
        point = dict(zip((one.name for one in parameters), values, strict=True))
        point = {one.name: point[one.name] for one in parameters if one.exists(point)}
        found.setdefault(_key(point), point)
    return list(found.values())


def grid_points(parameters: Sequence[Parameter], trials: int) -> list[Point]:
    """Return the points of a grid; a continuous range gets as many evenly spaced values as the trials allow.

    Raises:
        CseError: There are more than `MOST_POINTS`.
    """
    space = distributions(parameters)
    counts = {name: _count(distribution) or math.inf for name, distribution in space.items()}
    continuous = [name for name, count in counts.items() if count > MOST_POINTS]
    if continuous:
        others = math.prod(count for name, count in counts.items() if name not in continuous)
        each = max(2, math.floor((trials / others) ** (1 / len(continuous)) + 1e-9))
        counts |= dict.fromkeys(continuous, each)
    if (points := math.prod(counts.values())) > MOST_POINTS:
        raise CseError(
            f"--sampler grid: the space has {points:,} points, more than {MOST_POINTS:,}",
            "widen the steps (--range a..b:step), or use --sampler tpe",
        )
    axes = [
        _spaced(distribution, int(counts[name])) if name in continuous else _values(distribution)
        for name, distribution in space.items()
    ]
    return _product(parameters, axes)


def _spaced(distribution: BaseDistribution, count: int) -> list[Value | None]:
    low, high = distribution.low, distribution.high
    shares = [number / (count - 1) for number in range(count)]
    values = [low * (high / low) ** share if distribution.log else low + (high - low) * share for share in shares]
    return [round(v) if isinstance(distribution, IntDistribution) else min(max(v, low), high) for v in values]


def untried(points: Sequence[Point], tried: Sequence[Mapping[str, Any]]) -> list[Point]:
    """Return the points that no trial has had yet."""
    had = {_key(values) for values in tried}
    return [point for point in points if _key(point) not in had]


def is_same_point(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two trials have the same values."""
    return _key(one) == _key(other)


def _key(values: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    # Text, because Python takes 1, 1.0 and True for one value, and sums of steps differ in their last digit.
    return tuple(sorted((k, f"{v:.10g}" if type(v) in (int, float) else repr(v)) for k, v in values.items()))


def random_point(points: Sequence[Point], seed: int) -> Point:
    """Return one point by chance."""
    return random.Random(seed).choice(points)


def check_names(config: SearchConfig) -> None:
    """Refuse samplers and pruners that do not exist, or that cannot start from the recipe's own values.

    Raises:
        CseError: Naming what to use instead.
    """
    for option, name, known in (("--sampler", config.sampler, SAMPLERS), ("--pruner", config.pruner, PRUNERS)):
        if name not in known:
            raise CseError(f"{option}: unknown '{name}'.{suggestion(name, known)}", f"use {', '.join(known)}")
    own = own_values(config.parameters)
    if config.sampler == "gp" and (
        without := [one.name for one in config.parameters if one.when is None and one.name not in own]
    ):
        raise CseError(
            f"--sampler gp: the recipe's own {without[0]} is not in the range, and a Gaussian process needs it there",
            "use --sampler tpe, or --set a value of the range",
        )


def make_sampler(config: SearchConfig, space: Space, number: int) -> BaseSampler:
    """Return what chooses the values of trial `number`.

    The seed comes from the study's name and the number, so that one worker's search is the same each time and after
    an interruption, and two workers do not draw the same values.
    """
    seed = zlib.crc32(config.name.encode())
    # What only some trials have is suggested by itself, from those that have it.
    always = {parameter.name for parameter in config.parameters if parameter.when is None}
    varying = {name: one for name, one in space.items() if name in always and not one.single()}
    startup = max(4, min(10, (config.trials or 0) // 4))
    match config.sampler:
        case "gp":
            sampler: BaseSampler = GPSampler(seed=seed + number, n_startup_trials=startup)
        case "qmc":
            # One seed: the storage counts which points of the sequence are taken.
            sampler = QMCSampler(qmc_type="sobol", scramble=True, seed=seed, warn_independent_sampling=False)
            varying = {k: v for k, v in varying.items() if not isinstance(v, CategoricalDistribution)}
        case "tpe":
            sampler = TPESampler(seed=seed + number, n_startup_trials=startup, multivariate=True, constant_liar=True)
        case _:
            return RandomSampler(seed=seed + number)
    # The space is known from the start; Optuna would take what all trials have in common, and the first one may lack
    # the recipe's own values.
    sampler.infer_relative_search_space = lambda _study, _trial: varying
    return sampler


def pruner_name(config: SearchConfig) -> str:
    """Return the pruner that "auto" stands for: by seeds where there are several, else by the median."""
    if config.pruner != "auto":
        return config.pruner
    return "wilcoxon" if len(config.seeds) > 1 else "median"


def make_pruner(config: SearchConfig, steps: int | None, every: int) -> BasePruner:
    """Return what decides whether a trial is worth going on with.

    Args:
        config: Names it, and has the seeds.
        steps: Of one training; None where the number is not known before it begins.
        every: Steps between dev scores.
    """
    by_seed = len(config.seeds) > 1
    longest = len(config.seeds) if by_seed else steps
    least = 1 if by_seed else max(1, every)
    warm = 0 if by_seed else (steps or 0) // 4
    match pruner_name(config):
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
