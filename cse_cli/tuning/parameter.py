"""One searched parameter: what it may be, in which trials, and where its value goes in the recipe."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import tomlkit

from cse_cli.recipe.errors import RecipeError
from cse_cli.recipe.load import LoadedRecipe, toml_value, with_value
from cse_cli.recipe.paths import is_list_of_parts
from cse_cli.tuning.ranges import Range, Value
from registry.errors import CseError


@dataclass(frozen=True, kw_only=True)
class Parameter(Range):
    """One searched parameter: its range, and where its value goes in the recipe.

    Args:
        name: Its key in [tune], else its dotted path; inside a chosen part, the name of the part, of the component
            and its own, such as "queue.fifo.length". Unique in the space.
        paths: Dotted paths of the recipe that take the value.
        whole: Whether it takes whole numbers only.
        default: The recipe's own value, one of `choices` where there are any; None where it is unset or differs
            between the paths. It may lie outside the range: the first trial has it all the same.
        source: Who gave the range.
        part: Whether its choices are parts: names of components, tables in TOML, or False to leave the part out.
        drops: Of a part: names in [tune] of its own choices and of ranges inside it, which another part may not have.
        when: Name of a part, and those of its choices with which the parameter exists; None where it always does.
    """

    name: str
    paths: tuple[str, ...]
    whole: bool = False
    default: Value | None = None
    source: str = ""
    part: bool = False
    drops: tuple[str, ...] = ()
    when: tuple[str, tuple[Value, ...]] | None = None

    def overrides(self, value: Value) -> list[str]:
        """Return the `--set` texts that give the recipe a value."""
        if not self.part:
            return [f"{path}={as_toml(self._typed(value))}" for path in self.paths]
        (place,) = self.paths
        if value == self.default:
            return []
        tables = part_tables(value)
        if is_list_of_parts(place):
            return [f"{place}={as_toml(tables)}"]
        return [f"{place}.{key}={as_toml(inner)}" for table in tables for key, inner in table.items()]

    def removals(self, value: Value) -> list[str]:
        """Return the `--unset` keys that go with a value."""
        if not self.part or value == self.default:
            return []
        left_out = value is False and not is_list_of_parts(self.paths[0])
        return [*(self.paths if left_out else ()), *(f"tune.{name}" for name in self.drops)]

    def exists(self, values: Mapping[str, Any]) -> bool:
        """Return whether a trial with these values of parts has the parameter."""
        return self.when is None or values.get(self.when[0]) in self.when[1]

    def _typed(self, value: Value) -> Value:
        return round(value) if self.whole and isinstance(value, float) else value

    def identity(self) -> dict[str, Any]:
        """Return what makes two searches the same search, JSON-ready; without parts, what older studies keep."""
        plain = {key: value for key, value in asdict(self).items() if key not in ("default", "source", "drops")}
        known: dict[str, Any] = json.loads(json.dumps(plain))
        return {key: value for key, value in known.items() if value or key not in ("part", "when")}

    @property
    def holds_default(self) -> bool:
        """Whether the range has the recipe's own value."""
        if self.choices is not None or not isinstance(self.default, int | float):
            return self.default is not None
        if self.low is None or self.high is None or not self.low <= self.default <= self.high:
            return False
        return self.step is None or abs((self.default - self.low) / self.step % 1.0) < 1e-9

    def check_values(self, loaded: LoadedRecipe) -> None:
        """Put every choice, or both ends of the range, into the recipe.

        Raises:
            CseError: The recipe refuses one of them.
        """
        for value in self.choices if self.choices is not None else (self.low, self.high):
            if value is None:
                continue
            changed = loaded
            try:
                for path in self.paths:
                    changed = with_value(changed, path, self._typed(value))
            except RecipeError as error:
                raise CseError(
                    f"{self.source}: {self.name} cannot be {as_toml(self._typed(value))}: {error.problems[0].message}",
                    "`cse show COMPONENT` tells what a parameter takes",
                ) from error


def part_tables(choice: Value) -> list[dict[str, Any]]:
    """Return the tables that a choice of parts means; none where it leaves the part out."""
    if not isinstance(choice, str):
        return []
    chosen = toml_value(choice)
    return chosen if isinstance(chosen, list) else [chosen if isinstance(chosen, dict) else {"name": chosen}]


Settings = tuple[list[str], list[str]]
"""`--set` texts and `--unset` keys."""


def settings_of(parameters: Sequence[Parameter], values: Mapping[str, Value | None]) -> Settings:
    """Return the settings that give a recipe the values of a trial; what has none stays as it is."""
    given = [(one, value) for one in parameters if (value := values.get(one.name)) is not None]
    removals = dict.fromkeys(key for parameter, value in given for key in parameter.removals(value))
    return [text for parameter, value in given for text in parameter.overrides(value)], list(removals)


def as_toml(value: Any) -> str:
    """Return a value as `--set` takes it; tables and arrays on one line."""
    if isinstance(value, Mapping):
        table = tomlkit.inline_table()
        table.update(value)
        return table.as_string()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(as_toml, value))}]"
    return repr(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)
