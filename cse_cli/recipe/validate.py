"""Merged tables → a complete recipe, or every reason why not."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator, Mapping
from typing import Any

from cse_cli.recipe.data_rules import check_data
from cse_cli.recipe.draft import Draft, check_top_level, draft
from cse_cli.recipe.origins import Origins
from cse_cli.recipe.parts import Checked
from cse_cli.recipe.positions import Keys
from cse_cli.recipe.problems import Problems
from cse_cli.recipe.references import check_references, complete_inputs
from cse_cli.recipe.rules import check_rules
from cse_cli.recipe.schema import Data, EncoderPart, Evaluate, Part, Recipe, Train
from cse_cli.recipe.tune_paths import check_tune_paths


def validate(tables: Mapping[str, Any], origins: Origins) -> Recipe:
    """Return the recipe that merged tables describe; signatures are read, nothing is built.

    Raises:
        RecipeError: With everything that is wrong.
    """
    problems = Problems()
    for keys, value in _odd_values(tables, ()):
        problems.add(keys, f"{value} is not a value a recipe can have")
    check_top_level(tables, problems)
    parts = draft(tables, origins, problems)
    check_references(parts, problems)
    check_rules(parts, problems)
    check_data(parts, tables, problems)
    recipe = None if problems.found else _complete(tables, parts)
    if recipe is not None:
        check_tune_paths(recipe, problems)
    if problems.found or recipe is None:
        raise origins.error(problems.found)
    return recipe


def _odd_values(value: Any, keys: Keys) -> Iterator[tuple[Keys, Any]]:
    """Yield what TOML has and recipes do not: nan, infinities, dates, and numbers beyond 64 bits."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _odd_values(inner, (*keys, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _odd_values(inner, (*keys, number))
    elif isinstance(value, datetime.date | datetime.time) or _out_of_range(value):
        yield keys, value


def _out_of_range(value: Any) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    return isinstance(value, int) and not -(2**63) <= value < 2**63


def _complete(tables: Mapping[str, Any], parts: Draft) -> Recipe:
    inputs = complete_inputs(parts)
    plain = {key: tables[key] for key in ("schema", "title", "description", "language") if key in tables}
    return Recipe(
        **plain,
        paper=parts.paper,
        data=parts.data or Data(),
        encoders={
            name: EncoderPart(name=part.table["name"], params=part.params, heads=_built(parts.heads[name]))
            for name, part in parts.encoders.items()
        },
        views={
            name: view.model_copy(update={"augment": tuple(_part(a) for a in parts.augmenters[name])})
            for name, view in parts.views.items()
        },
        queue=None if parts.queue is None else _part(parts.queue),
        losses={name: loss.model_copy(update={"views": inputs[name]}) for name, loss in parts.losses.items()},
        train=parts.train or Train(),
        evaluate=parts.evaluate or Evaluate(),
        evaluators=_built(parts.evaluators),
        tune=parts.tune,
    )


def _built(parts: Mapping[str, Checked]) -> dict[str, Part]:
    return {name: _part(part) for name, part in parts.items()}


def _part(part: Checked) -> Part:
    return Part(name=part.table["name"], params=part.params)
