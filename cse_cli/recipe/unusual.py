"""What a valid recipe says and its author hardly meant: told as warnings by `cse check` and `cse run`."""

from __future__ import annotations

from collections.abc import Iterator

from cse_cli.recipe.describe import tune_of
from cse_cli.recipe.errors import dotted
from cse_cli.recipe.paths import entry, parts
from cse_cli.recipe.schema import Recipe, Train

HIGHEST_RATE = 10.0
"""Of learning; SGD has been used with 1 and a little more."""
FAR = 100
"""A value is far from a range where it is so many times its upper end, or so small a part of its lower one."""


def unusual(recipe: Recipe) -> Iterator[str]:
    """Yield a line about losses that are maximised, rates of learning, and values far from what `cse tune` searches."""
    yield from _rates(recipe.train)
    for name, loss in recipe.losses.items():
        weight = min(loss.weight, loss.weight if loss.weight_schedule is None else loss.weight_schedule.end)
        if weight < 0:
            yield f"losses.{name}.weight = {weight:g} is negative: training makes this loss larger"
    for keys, part in parts(recipe):
        for parameter, field in entry(keys, part).parameters.model_fields.items():
            tune, value = tune_of(field), part.params.get(parameter)
            if tune is None or isinstance(value, bool) or not isinstance(value, int | float):
                continue
            if value > FAR * tune.high or 0 < value < tune.low / FAR:
                path = dotted((*keys, parameter))
                yield f"{path} = {value:g} is far from what `cse tune` searches, {tune.low:g} to {tune.high:g}"


def _rates(train: Train) -> Iterator[str]:
    rates = {"learning_rate": train.learning_rate, "head_learning_rate": train.head_learning_rate or 0.0}
    rates |= {f"rates.{number}": rate for number, rate in enumerate(train.rates or ())}
    for name, rate in rates.items():
        if rate > HIGHEST_RATE:
            yield f"train.{name} = {rate:g} is far above any that trains, {HIGHEST_RATE:g} at most"
