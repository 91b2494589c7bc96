"""Checks of what components return: type, number of rows, shape. The error names the component and its line.

A view with a missing row would train every pair shifted by one, without any other sign.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from torch import Tensor

from registry.errors import PartError

if TYPE_CHECKING:
    from registry.types import Evaluator


def place(function: Callable[..., Any]) -> str:
    """Return "file:line" of a function, relative to the current directory if it is below it."""
    path = Path(inspect.getsourcefile(function) or "")
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return f"{shown}:{inspect.getsourcelines(function)[1]}"


def refuse(what: str, function: Callable[..., Any], wrong: str, action: str) -> NoReturn:
    """Raise the error for a wrong result.

    `wrong` is what it returned.
    """
    raise PartError(f"{what} returned {wrong}: {place(function)}", action, code="part.invalid_result")


def _named(component: object, hook: str) -> tuple[str, Callable[..., Any]]:
    from registry.machinery.core import REGISTRIES  # imports this package

    cls = type(component)
    known = ((one.singular, entry) for one in REGISTRIES for entry in one.registered.values() if entry.cls is cls)
    found = next((f"{singular} '{entry.name}'" for singular, entry in known), cls.__name__)
    return f"{found}: {hook.strip('_')}", getattr(cls, hook)


def items(component: object, hook: str, given: object, kind: type, rows: int) -> None:
    """Check that a hook returned a list with one object of a type for each row of the batch."""
    action = f"return a list with one {kind.__name__} for each of the {rows} rows, in the same order"
    if not isinstance(given, Sequence):
        refuse(*_named(component, hook), type(given).__name__, action)
    if other := [each for each in given if not isinstance(each, kind)]:
        refuse(*_named(component, hook), f"a list that contains {type(other[0]).__name__}", action)
    count(component, hook, len(given), rows)


def count(component: object, hook: str, rows: int, expected: int) -> None:
    """Check the number of rows that a hook returned."""
    if rows != expected:
        refuse(*_named(component, hook), f"{rows} rows for {expected}", "return one row for each, in the same order")


def instance(component: object, hook: str, given: object, kind: type) -> None:
    """Check that a hook returned an object of a type."""
    if not isinstance(given, kind):
        refuse(*_named(component, hook), type(given).__name__, f"return {kind.__name__}")


def shape(component: object, hook: str, given: object, *sizes: int | None) -> None:
    """Check that a hook of a component returned a floating-point tensor of a shape. None is any size."""
    if not _fits(given, sizes):
        refuse(*_named(component, hook), *_difference(given, sizes))


def shape_of(what: str, function: Callable[..., Any], given: object, *sizes: int | None) -> None:
    """Check the result of a function, such as a pooling, as `shape` does."""
    if not _fits(given, sizes):
        refuse(what, function, *_difference(given, sizes))


def _fits(given: object, sizes: Sequence[int | None]) -> bool:
    if not isinstance(given, Tensor) or given.dim() != len(sizes) or not given.is_floating_point():
        return False
    return all(size in (None, found) for size, found in zip(sizes, given.shape, strict=True))


def _difference(given: object, sizes: Sequence[int | None]) -> tuple[str, str]:
    text = ", ".join("any" if size is None else str(size) for size in sizes)
    action = f"return a tensor of floating-point numbers of shape ({text})"
    if not isinstance(given, Tensor):
        return type(given).__name__, action
    return f"a tensor of {str(given.dtype).removeprefix('torch.')} and shape {tuple(given.shape)}", action


def scores(evaluator: Evaluator, given: object) -> None:
    """Check that an evaluator returned a finite number for each metric that it declares."""
    hook, metrics = "__call__", evaluator.returned_metrics()
    action = f"return a dictionary with a number for each of its metrics: {', '.join(metrics)}"
    if not isinstance(given, Mapping):
        refuse(*_named(evaluator, hook), type(given).__name__, action)
    if other := sorted(given.keys() ^ set(metrics)):
        verb = "no" if other[0] in metrics else "the undeclared metric"
        refuse(*_named(evaluator, hook), f"{verb} '{other[0]}'", action)
    for name, value in given.items():
        if not isinstance(value, int | float):
            refuse(*_named(evaluator, hook), f"{type(value).__name__} for '{name}'", action)
        if not math.isfinite(value):
            refuse(*_named(evaluator, hook), f"{value} for '{name}'", "return a finite number, also for equal scores")
