"""Exceptions in components that are not part of the package: the component, its line and its own frames."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cse_cli.core.devices import missing_memory
from registry import REGISTRIES
from registry.errors import CseError, PartError
from registry.machinery.core import OWN, Entry


@contextmanager
def part_errors() -> Iterator[None]:
    """Raise `PartError` for an exception in a component that is not part of the package."""
    try:
        yield
    except Exception as error:
        if (explained := explain(error)) is None:
            raise
        raise explained from error


def explain(error: Exception) -> PartError | None:
    """Return the error of the component that raised an exception, or None if no foreign component did."""
    if isinstance(error, CseError) or missing_memory(error) is not None:
        return None
    walked = list(traceback.walk_tb(error.__traceback__))
    own = {
        entry.cls: entry
        for registry in REGISTRIES
        for entry in registry.registered.values()
        if entry.distribution != OWN
    }
    objects = ((place, own.get(type(frame.f_locals.get("self")))) for place, (frame, _) in enumerate(walked))
    found = next(((place, entry) for place, entry in objects if entry is not None), None)
    if found is None:
        return None
    first, entry = found
    folder = Path(entry.file).parent
    frames = traceback.StackSummary.extract(iter(walked[first:]))
    inside = [frame for frame in frames if Path(frame.filename).parent.is_relative_to(folder)] or frames[:1]
    lines = [f"{_shown(frame.filename)}:{frame.lineno} in {frame.name}\n    {frame.line}" for frame in inside]
    reason = " ".join(str(error).split()) or "no message"
    where = f"{_shown(inside[-1].filename)}:{inside[-1].lineno}"
    return PartError(
        "\n  ".join([f"{part(entry)} failed at {where}: {type(error).__name__}: {reason}", *lines]),
        f"correct {_shown(inside[-1].filename)}, then run the command again",
        code="part.failed",
    )


def part(entry: Entry[Any]) -> str:
    """Return the kind and name of a component for messages: "loss 'uniformity'"."""
    registry = next(registry for registry in REGISTRIES if registry.kind == entry.kind)
    return f"{registry.singular} '{entry.name}'"


def _shown(file: str) -> str:
    """Return a path: relative if it is below the current directory."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
