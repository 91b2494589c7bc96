"""Warnings of `cse check` and `cse run` about values that are valid but probably mistakes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import combinations
from typing import Any

from cse_cli.recipe.cells import Cell
from cse_cli.recipe.describe import tune_of
from cse_cli.recipe.schema import LossPart, Part, Recipe, Train
from cse_cli.recipe.train_parts import entry_of
from registry.resources import catalog
from registry.types import Tune

HIGHEST = {
    "batch_size": 16_384, "warmup_steps": 1e6, "weight_decay": 10.0, "epochs": 10_000, "steps": 1e8,
}  # fmt: skip
"""Keys of [train] → highest plausible value. Optimizers have that of the learning rates."""
RATES = ("learning_rate", "head_learning_rate")
LOWEST_RATE = 1e-9
WEIGHTS = Tune(1e-4, 10.0)
"""Plausible weights of losses, about twice the range in the recipes of the package."""
FAR = 250
"""Factor by which a value exceeds a plausible range before it is reported."""
MANY_RUNS = 1000
"""Number of runs of a study above which it is reported. The largest study of the package has 66."""


def lint(recipe: Recipe) -> Iterator[str]:
    """Yield a warning about each implausible or repeated part of a recipe."""
    yield from _training(recipe.train)
    yield from _weights(recipe.losses)
    yield from _far_values(recipe)
    yield from _repeated(recipe)
    yield from _misspelled_tasks(recipe.evaluators)


def lint_study(cells: Sequence[Cell], seeds: int, trials: Sequence[Cell] = ()) -> Iterator[str]:
    """Yield the warnings about the recipes of a study's cells and trials, each once, and about the cells together."""
    if (runs := len(cells) * seeds) > MANY_RUNS:
        yield f"{len(cells):,} cells with {seeds:,} seeds are {runs:,} runs"
    known: dict[Any, str] = {}
    same = [(known.setdefault((cell.columns, cell.hash), cell.row), cell.row) for cell in cells]
    yield from (f"rows '{one}' and '{row}' have the same settings" for one, row in dict.fromkeys(same) if one != row)
    yield from dict.fromkeys(line for cell in (*cells, *trials) if cell.resolved for line in lint(cell.resolved))


def _training(train: Train) -> Iterator[str]:
    values = {name: getattr(train, name) or 0 for name in (*RATES, *HIGHEST)}
    values |= {f"learning_rates.{number}": rate for number, rate in enumerate(train.learning_rates or ())}
    for name, value in values.items():
        is_rate = "learning_rate" in name
        highest = entry_of(train, "optimizer").cls.highest_rate if is_rate else HIGHEST[name]
        if value > highest:
            yield f"train.{name} = {value:g} is implausibly high, above {highest:g}"
        elif is_rate and 0 < value < LOWEST_RATE:
            yield f"train.{name} = {value:g} is implausibly low, below {LOWEST_RATE:g}"
    if train.steps and train.warmup_steps >= train.steps:
        yield f"train.warmup_steps = {train.warmup_steps} is not below train.steps = {train.steps}"


def _weights(losses: Mapping[str, LossPart]) -> Iterator[str]:
    for name, loss in losses.items():
        weight = min(loss.weight, loss.weight_schedule.end if loss.weight_schedule else loss.weight)
        if weight < 0:
            yield f"losses.{name}.weight = {weight:g} is negative: training increases this loss"
        elif _is_far(loss.weight, WEIGHTS):
            yield f"losses.{name}.weight = {loss.weight:g} is far from the usual {WEIGHTS.low:g} to {WEIGHTS.high:g}"


def _far_values(recipe: Recipe) -> Iterator[str]:
    """Yield the parameters that are far from the range that their component declares for `cse tune`."""
    for placed in recipe.parts():
        for name, field in placed.entry.parameters.model_fields.items():
            value, tune = placed.part.params.get(name), tune_of(field)
            if tune is not None and _is_far(value, tune):
                path = f"{placed.place}.{name}"
                yield f"{path} = {value:g} is far from the range of `cse tune`, {tune.low:g} to {tune.high:g}"


def _is_far(value: Any, usual: Tune) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return value >= FAR * usual.high or 0 < value <= usual.low / FAR


def _repeated(recipe: Recipe) -> Iterator[str]:
    for section in ("losses", "evaluators"):
        for (first, one), (second, other) in combinations(getattr(recipe, section).items(), 2):
            if one == other:
                yield f"{section}.{second} is the same as {section}.{first}"


def _misspelled_tasks(evaluators: Mapping[str, Part]) -> Iterator[str]:
    """Yield evaluators whose names are similar to the data set that they score. Tables find scores by these names."""
    for name, part in evaluators.items():
        dataset = str(part.params.get("dataset"))
        if name not in catalog.names() and dataset not in evaluators and get_close_matches(name, [dataset], cutoff=0.8):
            yield f"evaluators.{name} scores dataset '{dataset}'. Tables find its scores only as evaluators.{dataset}"
