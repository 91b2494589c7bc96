"""Knobs → Optuna's distributions, samplers and pruners."""

from __future__ import annotations

import itertools
import math
import random
import zlib
from collections.abc import Iterator, Mapping, Sequence
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

from cse_cli.tuning.config import Plan, Value
from cse_cli.tuning.space import Knob
from registry.errors import CseError, suggestion

SAMPLERS: Final = ("tpe", "gp", "random", "grid", "qmc")
PRUNERS: Final = ("auto", "median", "percentile", "halving", "hyperband", "wilcoxon", "none")
MOST_POINTS = 10_000
"""Spaces with more points than this are never searched to their end."""
FEW_TRIALS = 5
"""Complete trials before a median says anything."""
LOSING_SEEDS = 0.15
"""Significance that prunes seed by seed: three seeds lost in a row (1/8) are enough, two (1/4) are not."""

Space = Mapping[str, BaseDistribution]


def space(knobs: Sequence[Knob]) -> Space:
    """Return the distribution of every knob."""
    return {knob.name: _distribution(knob) for knob in knobs}


def _distribution(knob: Knob) -> BaseDistribution:
    if knob.choices is not None:
        choices = knob.choices if knob.default is not None else (None, *knob.choices)
        return CategoricalDistribution(choices)
    if knob.low is None or knob.high is None:
        raise ValueError(f"{knob.name} has neither range nor choices")
    if knob.whole:
        return IntDistribution(int(knob.low), int(knob.high), log=knob.log, step=int(knob.step or 1))
    return FloatDistribution(knob.low, knob.high, log=knob.log, step=knob.step)


def own_values(knobs: Sequence[Knob]) -> dict[str, Value]:
    """Return the recipe's own values as far as a trial's parameters can hold them: on a log scale, 0 has no place."""
    found: dict[str, Value] = {}
    for knob, distribution in zip(knobs, space(knobs).values(), strict=True):
        try:
            distribution.to_internal_repr(knob.default)
        except ValueError:
            continue
        if knob.default is not None or knob.choices is not None:
            found[knob.name] = knob.default
    return found


def suggest(trial: optuna.Trial, name: str, distribution: BaseDistribution) -> Value:
    """Return the value of a parameter, chosen by the study's sampler."""
    if isinstance(distribution, CategoricalDistribution):
        choice: Value = trial.suggest_categorical(name, distribution.choices)
        return choice
    low, high, log, step = distribution.low, distribution.high, distribution.log, distribution.step
    if isinstance(distribution, IntDistribution):
        return int(trial.suggest_int(name, low, high, log=log, step=step))
    return float(trial.suggest_float(name, low, high, log=log, step=step))


def points(distributions: Space) -> list[dict[str, Value]] | None:
    """Return every point of a space; None where it is continuous or too large to count."""
    axes = [_values(distribution) for distribution in distributions.values()]
    known = [axis for axis in axes if axis is not None]
    if len(known) < len(axes) or math.prod(map(len, known)) > MOST_POINTS:
        return None
    return [dict(zip(distributions, values, strict=True)) for values in itertools.product(*known)]


def _values(distribution: BaseDistribution) -> list[Value] | None:
    if isinstance(distribution, CategoricalDistribution):
        return list(distribution.choices)
    if distribution.step is None:
        return None
    count = math.floor((distribution.high - distribution.low) / distribution.step + 1e-9) + 1
    if count > MOST_POINTS:
        return None
    return [distribution.low + number * distribution.step for number in range(count)]


def grid(distributions: Space, trials: int) -> list[dict[str, Value]]:
    """Return the points of a grid; a continuous range gets as many evenly spaced values as the trials allow.

    Raises:
        CseError: There are too many.
    """
    axes = {name: _values(distribution) for name, distribution in distributions.items()}
    continuous = [name for name, values in axes.items() if values is None]
    others = math.prod(len(values) for values in axes.values() if values is not None)
    if continuous:
        each = max(2, math.floor((trials / others) ** (1 / len(continuous)) + 1e-9))
        axes |= {name: list(_spaced(distributions[name], each)) for name in continuous}
    full = [values or [] for values in axes.values()]
    if math.prod(map(len, full)) > MOST_POINTS:
        raise CseError(
            f"--sampler grid: the space has {math.prod(map(len, full)):,} points, more than {MOST_POINTS:,}",
            "widen the steps (--range a..b:step), or use --sampler tpe",
        )
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*full)]


def _spaced(distribution: BaseDistribution, count: int) -> Iterator[Value]:
    low, high = distribution.low, distribution.high
    for number in range(count):
        share = number / (count - 1)
        value = low * (high / low) ** share if distribution.log else low + (high - low) * share
        yield round(value) if isinstance(distribution, IntDistribution) else min(max(value, low), high)


def untried(every: Sequence[Mapping[str, Value]], tried: Sequence[Mapping[str, Any]]) -> list[dict[str, Value]]:
    """Return the points that no trial has had yet."""
    had = {_key(values) for values in tried}
    return [dict(point) for point in every if _key(point) not in had]


def _key(values: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    # Text, because Python takes 1, 1.0 and True for one value, and sums of steps differ in their last digit.
    return tuple(sorted((k, f"{v:.10g}" if type(v) in (int, float) else repr(v)) for k, v in values.items()))


def same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Tell whether two trials have the same values."""
    return _key(one) == _key(other)


def any_of(every: Sequence[dict[str, Value]], seed: int) -> dict[str, Value]:
    """Return one point by chance."""
    return random.Random(seed).choice(every)


def check(plan: Plan) -> None:
    """Refuse samplers and pruners that do not exist, or that cannot start from the recipe's own values.

    Raises:
        CseError: Naming what to use instead.
    """
    for option, name, known in (("--sampler", plan.sampler, SAMPLERS), ("--pruner", plan.pruner, PRUNERS)):
        if name not in known:
            raise CseError(f"{option}: unknown '{name}'.{suggestion(name, known)}", f"use {', '.join(known)}")
    held = own_values(plan.knobs)
    if plan.sampler == "gp" and (without := [knob.name for knob in plan.knobs if knob.name not in held]):
        raise CseError(
            f"--sampler gp: the recipe's own {without[0]} is no point of the range, and a Gaussian process needs one",
            "use --sampler tpe, or --set a value of the range",
        )


def sampler(plan: Plan, distributions: Space, number: int) -> BaseSampler:
    """Return what chooses the values of trial `number`.

    The seed comes from the study's name and the number, so that one worker's search is the same each time, goes on
    after an interruption as it would have gone without, and two workers do not draw the same values.
    """
    seed = zlib.crc32(plan.name.encode())
    varying = {name: distribution for name, distribution in distributions.items() if not distribution.single()}
    startup = max(4, min(10, (plan.trials or 0) // 4))
    match plan.sampler:
        case "gp":
            chosen: BaseSampler = GPSampler(seed=seed + number, n_startup_trials=startup)
        case "qmc":
            # One seed: the storage counts which points of the sequence are taken.
            chosen = QMCSampler(qmc_type="sobol", scramble=True, seed=seed, warn_independent_sampling=False)
            varying = {k: v for k, v in varying.items() if not isinstance(v, CategoricalDistribution)}
        case "tpe":
            chosen = TPESampler(seed=seed + number, n_startup_trials=startup, multivariate=True, constant_liar=True)
        case _:
            return RandomSampler(seed=seed + number)
    # The space is known from the start; Optuna would take what all trials have in common, and the recipe's own values
    # may have no place in it.
    chosen.infer_relative_search_space = lambda _study, _trial: varying
    return chosen


def pruner_name(plan: Plan) -> str:
    """Return the pruner that "auto" stands for: seed by seed where there are several, else by the median."""
    if plan.pruner != "auto":
        return plan.pruner
    return "wilcoxon" if len(plan.seeds) > 1 else "median"


def pruner(plan: Plan, steps: int | None, every: int) -> BasePruner:
    """Return what decides whether a trial is worth going on with.

    Args:
        plan: Names it, and has the seeds.
        steps: Of one training; None where nobody knows before it begins.
        every: Steps between dev scores.
    """
    by_seed = len(plan.seeds) > 1
    longest = len(plan.seeds) if by_seed else steps
    least = 1 if by_seed else max(1, every)
    warm = 0 if by_seed else (steps or 0) // 4
    match pruner_name(plan):
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
