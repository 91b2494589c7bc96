"""What differs in the resolved recipes of the runs compared."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from cse_cli.compare.sides import Side
from cse_cli.recipe.schema import data_identity
from cse_cli.results import Result
from cse_cli.tracking import reader

_PROSE = frozenset({"title", "description", "paper", "tune", "schema"})
_ABSENT = object()


class Change(BaseModel):
    """One key that is not the same everywhere.

    Args:
        key: Dotted path; a table that is missing somewhere stands as a whole.
        values: Of each of those compared, in their order; None where the key is not set.
    """

    model_config = ConfigDict(frozen=True)

    key: str
    values: tuple[Any, ...]


def changes(recipes: Sequence[Mapping[str, Any]]) -> list[Change]:
    """Return the keys in which resolved recipes differ, in their order, seed and prose left out."""
    return _changes([_identity(recipe) for recipe in recipes], "")


def resolved(side: Side) -> dict[str, Any] | None:
    """Return the resolved recipe that a side's latest run recorded; None where it cannot be read."""
    text = reader.text_of(side.latest.run_id or "", "resolved.toml")
    try:
        return None if text is None else tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None


def circumstances(sides: Sequence[Side]) -> list[Change]:
    """Return what else was not the same: device, precision, versions, the training text behind an equal name."""
    told: dict[str, list[str]] = {}
    for side in sides:
        for name, values in _circumstances(list(side.runs.values())).items():
            told.setdefault(name, []).append(", ".join(sorted(values)))
    return [Change(key=name, values=tuple(values)) for name, values in told.items() if len(set(values)) > 1]


def _circumstances(runs: Sequence[Result]) -> dict[str, set[str]]:
    return {
        "device": {run.device for run in runs},
        "precision": {run.precision for run in runs},
        "torch": {run.versions.torch for run in runs},
        "transformers": {run.versions.transformers for run in runs},
        "training text": {run.fingerprints.get("training", "none")[:12] for run in runs},
    }


def _identity(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Return what makes a recipe the experiment it is, as `Recipe.hash()` has it."""
    kept = {key: value for key, value in recipe.items() if key not in _PROSE}
    kept["train"] = {key: value for key, value in kept.get("train", {}).items() if key != "seed"}
    kept["data"] = data_identity(kept.get("data", {}))
    return kept


def _changes(tables: Sequence[Mapping[str, Any]], prefix: str) -> list[Change]:
    found: list[Change] = []
    for key in dict.fromkeys(key for table in tables for key in table):
        values = [_named(table.get(key, _ABSENT)) for table in tables]
        if all(isinstance(value, Mapping) for value in values):
            found += _changes(values, f"{prefix}{key}.")
        elif any(value != values[0] for value in values):
            found.append(Change(key=f"{prefix}{key}", values=tuple(None if v is _ABSENT else v for v in values)))
    return found


def _named(value: Any) -> Any:
    """Return a list of components as a table by their names, as `--set` calls them; anything else as it is."""
    if isinstance(value, list) and value and all(isinstance(part, Mapping) and "name" in part for part in value):
        names = [part["name"] for part in value]
        if len(set(names)) == len(names):
            return dict(zip(names, value, strict=True))
    return value
