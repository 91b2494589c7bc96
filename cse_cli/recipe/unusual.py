"""What a valid recipe says and its author hardly meant: told as warnings by `cse check` and `cse run`."""

from __future__ import annotations

from collections.abc import Iterator

from cse_cli.recipe.describe import tune_of
from cse_cli.recipe.errors import dotted
from cse_cli.recipe.paths import entry, parts
from cse_cli.recipe.schema import Recipe

FAR = 100
"""A value is far from a range where it is so many times its upper end, or so small a part of its lower one."""


def unusual(recipe: Recipe) -> Iterator[str]:
    """Yield a line about each loss that is maximised, and each value far from those that `cse tune` searches."""
    for name, loss in recipe.losses.items():
        if loss.weight < 0:
            yield f"losses.{name}.weight = {loss.weight:g} is negative: training makes this loss larger"
    for keys, part in parts(recipe):
        for parameter, field in entry(keys, part).parameters.model_fields.items():
            tune, value = tune_of(field), part.params.get(parameter)
            if tune is None or isinstance(value, bool) or not isinstance(value, int | float):
                continue
            if value > FAR * tune.high or 0 < value < tune.low / FAR:
                path = dotted((*keys, parameter))
                yield f"{path} = {value:g} is far from what `cse tune` searches, {tune.low:g} to {tune.high:g}"
