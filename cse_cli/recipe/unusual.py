"""What a valid recipe says and its author hardly meant: told as warnings by `cse check` and `cse run`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cse_cli.recipe.describe import tune_of
from cse_cli.recipe.errors import dotted
from cse_cli.recipe.paths import parts
from cse_cli.recipe.schema import Recipe
from registry import AUGMENTERS, ENCODERS, EVALUATORS, HEADS, LOSSES, QUEUES
from registry.core import Registry

FAR = 100
"""A value is far from a range where it is so many times its upper end, or so small a part of its lower one."""
_SECTIONS: dict[str, Registry[Any]] = {
    "encoders": ENCODERS,
    "losses": LOSSES,
    "evaluators": EVALUATORS,
    "views": AUGMENTERS,
    "queue": QUEUES,
}


def unusual(recipe: Recipe) -> Iterator[str]:
    """Yield a line about each loss that is maximised, and each value far from those that `cse tune` searches."""
    for name, loss in recipe.losses.items():
        if loss.weight < 0:
            yield f"losses.{name}.weight = {loss.weight:g} is negative: training makes this loss larger"
    for keys, part in parts(recipe):
        registry = HEADS if "heads" in keys else _SECTIONS[str(keys[0])]
        for parameter, field in registry[part.name].parameters.model_fields.items():
            tune, value = tune_of(field), part.params.get(parameter)
            if tune is None or isinstance(value, bool) or not isinstance(value, int | float):
                continue
            if value > FAR * tune.high or 0 < value < tune.low / FAR:
                path = dotted((*keys, parameter))
                yield f"{path} = {value:g} is far from what `cse tune` searches, {tune.low:g} to {tune.high:g}"
