"""Tables of the schema, checked one at a time so that every problem is told and not just the first."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from cse_cli.recipe.positions import Keys
from cse_cli.recipe.problems import Problems
from cse_cli.recipe.wording import Checking, report, shown_value

S = TypeVar("S", bound=BaseModel)


def check_section(model: type[S], table: Any, keys: Keys, problems: Problems) -> S | None:
    """Return the section; what is wrong is reported and takes its default, and None stands for what has none."""
    if not isinstance(table, Mapping):
        problems.add(keys, f"should be a table, not {shown_value(table)}")
        table = {}
    try:
        return model.model_validate(dict(table))
    except ValidationError as error:
        known = [field.alias or name for name, field in model.model_fields.items() if name != "params"]
        what = f"[{'.'.join(str(key) for key in keys)}]" if keys else "the recipe"
        wrong = report(error, Checking(table, keys, known, what), problems)
    try:
        return model.model_validate(_without(table, wrong))
    except ValidationError:
        return None


def _without(table: Mapping[str, Any], wrong: list[Keys]) -> dict[str, Any]:
    """Return the table less what is wrong; the key of a wrong item in an array goes as a whole."""
    repaired: dict[str, Any] = copy.copy(dict(table))
    for path in wrong:
        if path:
            repaired.pop(str(path[0]), None)
    return repaired
