"""What a valid recipe or study says and its author hardly meant: told as warnings by `cse check` and `cse run`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import combinations, pairwise
from math import inf
from typing import Any

from cse_cli.recipe.cells import Cell
from cse_cli.recipe.describe import tune_of
from cse_cli.recipe.errors import dotted
from cse_cli.recipe.paths import entry, parts
from cse_cli.recipe.schema import LossPart, Part, Recipe, Train
from registry import catalogue
from registry.types import Tune

IN_USE = {
    "learning_rate": (1e-9, 0.1), "batch_size": (0, 16_384), "clip_norm": (1e-6, inf), "warmup_steps": (0, 1e6),
    "weight_decay": (0, 10.0), "epochs": (0, 10_000), "steps": (0, 1e8),
}  # fmt: skip
"""Of [train]: what may train something."""
SGD_RATE = 10.0
"""The highest rate of SGD, which has been used with 1 and a little more."""
WEIGHTS = Tune(1e-4, 10.0)
"""Of losses: from half of the smallest weight of any shipped recipe to a little more than the largest."""
FAR = 100
"""A value is far from a range where it is so many times its upper end, or so small a part of its lower one."""
MANY_RUNS = 1000
"""Of a study: the largest that comes with the package has 22 cells, with three seeds each."""


def unusual(recipe: Recipe) -> Iterator[str]:
    """Yield a line about each value that is far from any in use, has no effect, or stands there twice."""
    yield from _training(recipe.train)
    yield from _weights(recipe.losses)
    yield from _far_values(recipe)
    yield from _without_effect(recipe)
    yield from _twice(recipe)
    yield from _repeated_names(recipe)
    yield from _misspelt_tasks(recipe.evaluators)


def unusual_study(cells: Sequence[Cell], seeds: int) -> Iterator[str]:
    """Yield the same of the recipes of a study's cells, each line once, and what is odd about the cells together."""
    if (runs := len(cells) * seeds) > MANY_RUNS:
        yield f"{len(cells):,} cells and {seeds:,} seeds make {runs:,} runs"
    known: dict[Any, str] = {}
    same = [(known.setdefault((cell.columns, cell.hash), cell.row), cell.row) for cell in cells]
    yield from (f"rows '{one}' and '{row}' have the same settings" for one, row in dict.fromkeys(same) if one != row)
    yield from dict.fromkeys(line for cell in cells if cell.resolved is not None for line in unusual(cell.resolved))


def _training(train: Train) -> Iterator[str]:
    values = {name: getattr(train, name) or 0 for name in IN_USE} | {
        "head_learning_rate": train.head_learning_rate or 0.0
    }
    values |= {f"rates.{number}": rate for number, rate in enumerate(train.rates or ())}
    for name, value in values.items():
        low, high = IN_USE.get(name, IN_USE["learning_rate"])
        if train.optimizer == "sgd" and high == IN_USE["learning_rate"][1]:
            high = SGD_RATE
        if value > high:
            yield f"train.{name} = {value:g} is far above any that trains, {high:g} at most"
        elif 0 < value < low:
            yield f"train.{name} = {value:g} is far below any that trains, {low:g} at least"
    if train.steps and train.warmup_steps >= train.steps:
        yield f"train.warmup_steps = {train.warmup_steps}: in {train.steps} steps the rate never comes to its peak"


def _weights(losses: Mapping[str, LossPart]) -> Iterator[str]:
    for name, loss in losses.items():
        weight = min(loss.weight, loss.weight if loss.weight_schedule is None else loss.weight_schedule.end)
        if weight < 0:
            yield f"losses.{name}.weight = {weight:g} is negative: training makes this loss larger"
        elif _is_far(loss.weight, WEIGHTS):
            yield f"losses.{name}.weight = {loss.weight:g} is far from any in use, {WEIGHTS.low:g} to {WEIGHTS.high:g}"


def _far_values(recipe: Recipe) -> Iterator[str]:
    """Yield what is far from the range that a parameter declares, the values that [tune] tries included."""
    tried: dict[str, list[Any]] = defaultdict(list)
    for about in recipe.tune.values():
        for path in about.paths:
            tried[path] += [about.low, about.high, *(about.choices or ())]
    for keys, part in parts(recipe):
        for parameter, field in entry(keys, part).parameters.model_fields.items():
            path, tune = dotted((*keys, parameter)), tune_of(field)
            for value in (part.params.get(parameter), *tried[path]):
                if tune is not None and _is_far(value, tune):
                    yield f"{path} = {value:g} is far from what `cse tune` searches, {tune.low:g} to {tune.high:g}"


def _is_far(value: Any, usual: Tune) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return value >= FAR * usual.high or 0 < value <= usual.low / FAR


def _without_effect(recipe: Recipe) -> Iterator[str]:
    """Yield what says how a file or a data set is read where that is not read."""
    if recipe.data.split != "train" and not recipe.data.dataset:
        yield f"data.split = '{recipe.data.split}' is of data sets, and none is named: it has no effect"
    for keys, part in parts(recipe):
        about, params = entry(keys, part), part.params
        fields, resources = about.parameters.model_fields, about.resources.items()
        changed = [name for name in fields if params[name] != fields[name].default]
        for name in changed:
            path = dotted((*keys, name))
            if params.get("dataset") and "file" in params and name.endswith("_column"):
                yield f"{path} is of a file, and dataset '{params['dataset']}' is read: it has no effect"
            if name == "split" and any(params[key] == each.evaluated for key, each in resources if each.evaluated):
                yield f"{path} is of a data set, and the evaluators' own are read: it has no effect"


def _twice(recipe: Recipe) -> Iterator[str]:
    """Yield losses and evaluators that are the same as others, and augmenters as the one before them."""
    for section in ("losses", "evaluators"):
        for (first, one), (second, other) in combinations(getattr(recipe, section).items(), 2):
            if one == other:
                yield f"{section}.{second} is the same as {section}.{first}"
    for name, view in recipe.views.items():
        same = [one.name for one, other in pairwise(view.augment) if one == other]
        yield from (f"views.{name}.augment has '{augmenter}' twice, with the same parameters" for augmenter in same)


def _repeated_names(recipe: Recipe) -> Iterator[str]:
    lists: dict[str, Any] = {"data.dataset": recipe.data.dataset, "data.file": recipe.data.files}
    lists |= {f"tune.{name}.paths": about.paths for name, about in recipe.tune.items()}
    lists |= {dotted((*keys, name)): value for keys, part in parts(recipe) for name, value in part.params.items()}
    for path, names in lists.items():
        for place, name in enumerate(names if isinstance(names, list | tuple) else ()):
            if isinstance(name, str) and name in names[:place]:
                yield f"{path} names '{name}' twice"


def _misspelt_tasks(evaluators: Mapping[str, Part]) -> Iterator[str]:
    """Yield evaluators whose names are nearly that of the data set they score: tables know scores by these names."""
    for name, part in evaluators.items():
        dataset = str(part.params.get("dataset"))
        if (
            name not in catalogue.names()
            and dataset not in evaluators
            and get_close_matches(name, [dataset], cutoff=0.8)
        ):
            yield f"evaluators.{name} scores dataset '{dataset}', and tables look for its scores under that name"
