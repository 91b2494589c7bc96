"""A searched parameter: its values, the trials that have it, and the places in the recipe that take its value."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cse_cli.recipe.errors import RecipeError
from cse_cli.recipe.load import LoadedRecipe, Override, changed
from cse_cli.recipe.overrides import parse_value
from cse_cli.recipe.paths import is_list_of_parts
from cse_cli.tuning.ranges import Range, Value
from registry.errors import CseError

REMOVE = "remove"
"""Key of a chosen table: the parameters of the recipe's component that the choice does without."""


@dataclass(frozen=True, kw_only=True)
class Parameter(Range):
    """A searched parameter.

    Args:
        name: Unique name: its key in [tune] or its dotted path. Inside a chosen part, the names of part, component and
            parameter, such as "queue.fifo.length".
        paths: Dotted paths of the recipe that take the value.
        whole: Whether only whole numbers are accepted.
        default: The recipe's value, or None if it is unset or differs between the paths. It may be outside the
            range: the first trial has it anyway.
        source: Origin of the range, for messages.
        part: Whether the choices are parts: names of components, TOML tables, or False to omit the part.
        drops: Entries of [tune] that belong to the recipe's part and are removed with it.
        when: Name of a part, and the choices of it that have the parameter. None if every trial has it.
    """

    name: str
    paths: tuple[str, ...]
    whole: bool = False
    default: Value | None = None
    source: str = ""
    part: bool = False
    drops: tuple[str, ...] = ()
    when: tuple[str, tuple[Value, ...]] | None = None

    def overrides(self, value: Value) -> list[Override]:
        """Return the overrides that give the recipe a value."""
        if not self.part:
            return [Override.of(path, self._typed(value)) for path in self.paths]
        (place,) = self.paths
        if value == self.default:
            return []
        tables = part_tables(value)
        if is_list_of_parts(place):
            return [Override.of(place, tables)]
        given = [(key, inner) for table in tables for key, inner in table.items() if key != REMOVE]
        return [Override.of(f"{place}.{key}", inner) for key, inner in given]

    def removals(self, value: Value) -> list[str]:
        """Return the `--unset` keys that belong to a value."""
        if not self.part or value == self.default:
            return []
        (place,) = self.paths
        drops = [f"tune.{name}" for name in self.drops]
        if is_list_of_parts(place):
            return drops
        removed = [f"{place}.{key}" for table in part_tables(value) for key in table.get(REMOVE, ())]
        return [*([place] if value is False else removed), *drops]

    def exists(self, values: Mapping[str, Any]) -> bool:
        """Return whether a trial with these parts has the parameter."""
        return self.when is None or values.get(self.when[0]) in self.when[1]

    def _typed(self, value: Value) -> Value:
        return round(value) if self.whole and isinstance(value, float) else value

    def identity(self) -> dict[str, Any]:
        """Return the properties that make two searches the same search, as JSON values."""
        plain = {key: value for key, value in asdict(self).items() if key not in ("default", "source", "drops")}
        return dict(json.loads(json.dumps(plain)))

    @property
    def holds_default(self) -> bool:
        """Whether the range contains the recipe's value."""
        if self.choices is not None or not isinstance(self.default, int | float):
            return self.default is not None
        if self.low is None or self.high is None or not self.low <= self.default <= self.high:
            return False
        return self.step is None or abs((self.default - self.low) / self.step % 1.0) < 1e-9

    def check_values(self, loaded: LoadedRecipe) -> None:
        """Validate the recipe with every choice, or with both ends of the range."""
        for value in self.choices if self.choices is not None else (self.low, self.high):
            if value is None:
                continue
            try:
                changed(loaded, self.overrides(value))
            except RecipeError as error:
                typed = json.dumps(self._typed(value), ensure_ascii=False)
                raise CseError(
                    f"{self.source}: {self.name} = {typed} is not valid: {error.problems[0].message}",
                    "see `cse show COMPONENT` for the values it accepts",
                    code="tune.invalid_value",
                ) from error


def part_tables(choice: Value) -> list[dict[str, Any]]:
    """Return the tables of a chosen part. Empty if the choice omits it."""
    if not isinstance(choice, str):
        return []
    chosen = parse_value(choice)
    return chosen if isinstance(chosen, list) else [chosen if isinstance(chosen, dict) else {"name": chosen}]


def settings_of(
    parameters: Sequence[Parameter], values: Mapping[str, Value | None]
) -> tuple[list[Override], list[str]]:
    """Return the overrides and `--unset` keys of a trial's values. Parameters without a value stay unchanged."""
    overrides: list[Override] = []
    removals: dict[str, None] = {}
    for parameter in parameters:
        if (value := values.get(parameter.name)) is not None:
            overrides += parameter.overrides(value)
            removals |= dict.fromkeys(parameter.removals(value))
    return overrides, list(removals)
