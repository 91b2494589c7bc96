"""Columns that have to be made before a recipe can train, such as translations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from cse_cli.data.identity import columns_read
from cse_cli.data.requirements import availability
from cse_cli.data.sources import open_steps
from cse_cli.recipe.requirements import requirements
from cse_cli.recipe.schema import Recipe
from registry.errors import MissingError
from registry.resources import catalog


class Step(Protocol):
    """A column that a generator makes."""

    @property
    def column(self) -> str:
        """Name of the column."""

    @property
    def title(self) -> str:
        """Description, such as "translating text to de with google-t5/t5-base"."""

    @property
    def rows(self) -> int:
        """Number of rows."""

    @property
    def done(self) -> int:
        """Number of rows that exist."""

    def measure(self, device: str, seconds: float) -> float:
        """Return the rows per second on a device, measured for about this many seconds."""


@dataclass(frozen=True)
class LaterStep:
    """A column whose text or model is not on this machine. `rows` is the number in the catalog, or 0."""

    column: str
    title: str
    rows: int
    done: int = 0

    def measure(self, device: str, seconds: float) -> float:  # noqa: ARG002
        """Raise `MissingError`, because nothing can be measured."""
        raise MissingError(f"{self.title}: its text or model is not on this machine", code="plan.missing")


def data_steps(recipe: Recipe) -> Sequence[Step]:
    """Return the columns that a recipe makes for its training text and that are not finished."""
    data = recipe.data
    if not data.columns or recipe.train.steps == 0:
        return []
    needed = [one for one in requirements(recipe) if one.wanted_by[0].startswith("data.")]
    if all(availability(one).state == "here" for one in needed):
        return open_steps(data, columns_read(recipe))
    known = [catalog.entry(name).split(data.split).rows for name in data.dataset if not name.startswith("hf:")]
    rows = min(sum(known), data.limit or sum(known))
    return [LaterStep(name, _title(part.name, part.params), rows) for name, part in data.columns.items()]


def _title(generator: str, params: dict[str, Any]) -> str:
    to, model = params.get("to"), params.get("model")
    return generator + (f" to {to}" if to else "") + (f" with {model}" if model else "")
