"""The tables of a recipe that identify an experiment, in which data and models have names instead of directories."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from registry.core import Entry

PROSE = frozenset({"title", "description", "paper", "tune"})
"""Top-level keys of a recipe that do not change any result."""


def settings(resolved: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a resolved recipe on which its results depend.

    Prose, tuning ranges, the seed and `train.compile` are left out. Files of data have no directory, because the
    identity of an experiment contains a digest of the text.
    """
    kept = {key: value for key, value in resolved.items() if key not in PROSE}
    kept["train"] = {key: value for key, value in kept.get("train", {}).items() if key not in ("seed", "compile")}
    kept["data"] = dict(kept.get("data", {}))
    if (file := kept["data"].get("file")) is not None:
        kept["data"]["file"] = Path(file).name if isinstance(file, str) else [Path(each).name for each in file]
    return kept


def part_identity(table: Mapping[str, Any], entry: Entry[Any]) -> dict[str, Any]:
    """Return the part of a component's table that identifies the experiment, without directories of models and files.

    The identity of the experiment contains a digest of their contents.
    """
    named = {key: mark.kind for key, mark in entry.resources.items() if mark.kind != "dataset"}
    return {key: _without_directory(value, named[key]) if key in named else value for key, value in table.items()}


def _without_directory(value: Any, kind: Literal["model", "file"]) -> Any:
    """Return the bare name of a path. Hub IDs `owner/name` are unchanged.

    A directory called `model`, as in every run, keeps the name of its parent.
    """
    if isinstance(value, list | tuple):
        return [_without_directory(each, kind) for each in value]
    if not isinstance(value, str):
        return value
    if kind == "file":
        is_path = not value.startswith("hf:")
    else:
        is_path = value.startswith((".", "/", "~")) or value.count("/") > 1
    if not is_path:
        return value
    return "/".join(Path(value).parts[-2:]) if Path(value).name == "model" else Path(value).name or value
