"""Component tables checked against their components' signatures: names, parameters, defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from cse_cli.recipe.positions import Keys
from cse_cli.recipe.problems import Problems
from cse_cli.recipe.wording import Checking, report, shown_value
from registry.core import Entry, Registry
from registry.errors import UnknownNameError


@dataclass(frozen=True)
class Checked:
    """A component table after its check.

    Args:
        keys: Its path in the recipe.
        table: `name`, `params` with every default, and the recipe's own keys as written.
        entry: None where no component has that name.
    """

    keys: Keys
    table: dict[str, Any]
    entry: Entry[Any] | None

    @property
    def params(self) -> dict[str, Any]:
        """Parameter → value."""
        params: dict[str, Any] = self.table["params"]
        return params


def check_part(table: Any, registry: Registry[Any], keys: Keys, own: frozenset[str], problems: Problems) -> Checked:
    """Check one component table; the last of `keys` is its name where it gives none, `own` are the recipe's keys."""
    if not isinstance(table, Mapping):
        problems.add(keys, f"should be a table, not {shown_value(table)}")
        return Checked(keys, {"name": str(keys[-1]), "params": {}}, None)
    rest = {key: value for key, value in table.items() if key in own}
    params = {key: value for key, value in table.items() if key not in own and key != "name"}
    entry = _entry(table, registry, keys, problems)
    if entry is None:
        return Checked(keys, {"name": str(table.get("name", keys[-1])), "params": {}, **rest}, None)
    known = [*entry.parameters.model_fields, *sorted(own)]
    params = _check_params(
        entry, Checking(params, keys, known, f"{registry.singular} '{entry.name}'", "parameter"), problems
    )
    return Checked(keys, {"name": entry.name, "params": params, **rest}, entry)


def _entry(table: Mapping[str, Any], registry: Registry[Any], keys: Keys, problems: Problems) -> Entry[Any] | None:
    keyed = isinstance(keys[-1], str) and len(keys) > 1
    if "name" not in table and not keyed:
        problems.add(keys, f"needs a `name`: which {registry.singular} it is", at_key=True)
        return None
    name = table.get("name", keys[-1])
    if not isinstance(name, str):
        problems.add((*keys, "name"), f"should be text in quotes, not {shown_value(name)}")
        return None
    try:
        return registry[name]
    except UnknownNameError as error:
        hint = "" if "name" in table else f"; a table called otherwise needs a `name`, one of the {registry.kind}"
        action = f" Known: {', '.join(registry.names())}." if "Did you mean" not in error.message else ""
        where = (*keys, "name") if "name" in table else keys
        problems.add(where, f"{error.message}{action}{hint}", at_key="name" not in table)
        return None


def _check_params(entry: Entry[Any], checking: Checking, problems: Problems) -> dict[str, Any]:
    """Return the parameters with every default; wrong ones are reported and take their default."""
    try:
        params = entry.parameters.model_validate(dict(checking.table)).model_dump()
    except ValidationError as error:
        wrong = report(error, checking, problems)
    else:
        for name, value in checking.table.items():
            if isinstance(value, bool) and not isinstance(params[name], bool):
                # A choice among 0 and 1 takes false and true: Python calls them equal.
                problems.add((*checking.keys, name), f"should be {int(value)}, not {shown_value(value)}")
        return params
    good = {key: value for key, value in checking.table.items() if key not in {path[0] for path in wrong if path}}
    fields = entry.parameters.model_fields.items()
    defaults = {name: field.get_default(call_default_factory=True) for name, field in fields if not field.is_required()}
    return {**defaults, **good}
