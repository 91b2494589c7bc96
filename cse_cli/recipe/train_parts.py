"""The optimizer and the schedule of a recipe: registered components whose parameters are keys of [train]."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cse_cli.recipe.schema import DEFAULT_OPTIMIZER, Train
from registry import OPTIMIZERS, SCHEDULES
from registry.core import Entry, Registry

TRAIN_PARTS: dict[str, Registry[Any]] = {"optimizer": OPTIMIZERS, "schedule": SCHEDULES}
"""Key of [train] → registry of the component that it names. "<key>_settings" contains its own parameters."""


def name_of_part(train: Train, key: str) -> str:
    """Return the name of the optimizer or schedule."""
    return str(getattr(train, key) or DEFAULT_OPTIMIZER)


def entry_of(train: Train, key: str) -> Entry[Any]:
    """Return the entry of the optimizer or schedule.

    Raises:
        UnknownNameError: If it does not exist.
    """
    return TRAIN_PARTS[key][name_of_part(train, key)]


def train_entries(train: Train) -> Iterator[Entry[Any]]:
    """Yield the entries of the optimizer and of the schedule, if the recipe trains."""
    for key in TRAIN_PARTS if train.steps != 0 else ():
        yield entry_of(train, key)


def parameters_of(train: Train, key: str) -> dict[str, Any]:
    """Return the parameters of the optimizer or schedule: keys of [train] with their names, and its own settings."""
    shared = train.model_dump(mode="json", include={*shared_keys(entry_of(train, key))}, exclude_none=True)
    return {**shared, **(getattr(train, f"{key}_settings") or {})}


def shared_keys(entry: Entry[Any]) -> list[str]:
    """Return the parameters of a component that are keys of [train]."""
    return [name for name in entry.parameters.model_fields if name in Train.model_fields]


def build_part(train: Train, key: str) -> Any:
    """Return the optimizer or schedule.

    Raises:
        CseError: If a value is not valid.
    """
    return entry_of(train, key).build(parameters_of(train, key))
