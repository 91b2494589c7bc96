"""The problems of a recipe or study, each with its place, and the error that lists them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from cse_cli.recipe.keys import Keys, dotted
from registry.errors import CseError, suggestion
from registry.machinery.validation import should_be

MOST_SHOWN = 50
"""Maximum number of problems in one message."""
MOST_NAMES = 5
"""Maximum number of valid names in one message."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return " Did you mean …?", or the valid names if none is similar, or "". It follows a message."""
    known = list(known)
    more = f", … ({len(known)} in total)" if len(known) > MOST_NAMES else ""
    valid = f" Valid: {', '.join(known[:MOST_NAMES])}{more}." if known else ""
    return suggestion(name, known) or valid


@dataclass(frozen=True, order=True)
class Problem:
    """One problem.

    `where` is `file:line:column`, or the `--set` option that set the value. `keys` is the dotted path of the value.
    A value without a place has "" for both.
    """

    where: str
    keys: str
    message: str
    code: str

    def __str__(self) -> str:
        named = self.where.endswith(f" {self.keys}")
        return ": ".join(filter(None, (self.where, "" if named else self.keys, self.message)))


class RecipeError(CseError):
    """Error of an invalid recipe or study, with all its problems. Its code is that of the first one."""

    def __init__(self, problems: Sequence[Problem], what: str = "recipe") -> None:
        self.problems = list(problems)
        lines = [str(problem) for problem in problems[:MOST_SHOWN]]
        message, action = lines[0], None
        if len(problems) > 1:
            message = "\n".join([f"{len(problems)} problems in the {what}", *lines])
        if len(problems) > MOST_SHOWN:
            action = f"only the first {MOST_SHOWN} problems are shown: fix them and check again"
        super().__init__(message, action, code=problems[0].code)


@dataclass
class Problems:
    """Collection of the problems of a recipe or study while it is checked. By default, values have no places."""

    where: Callable[..., str] = lambda *_, **__: ""
    is_inherited: Callable[[Keys, Keys], bool] = lambda *_: False
    _found: dict[Problem, None] = field(default_factory=dict)

    def add(self, code: str, keys: Keys, message: str, *, at_key: bool = False) -> None:
        """Add the problem of a value, or of its key if `at_key`. A missing value has the path of its table."""
        self._found[Problem(self.where(keys, at_key=at_key), dotted(keys), message, code)] = None

    def conflict(self, keys: Keys, message: str) -> None:
        """Add the problem of a key that does not fit another one."""
        self.add("recipe.conflict", keys, message, at_key=True)

    def known(
        self, what: str, name: str, names: Iterable[str], keys: Keys, *, owner: str = "", at_key: bool = False
    ) -> bool:
        """Add a problem if a name does not exist, and return whether it exists."""
        names = list(names)
        if name not in names:
            message = f"{owner} has no {what} '{name}'" if owner else f"unknown {what} '{name}'"
            self.add(f"recipe.unknown_{what}", keys, f"{message}.{nearest(name, names)}", at_key=at_key)
        return name in names

    @property
    def found(self) -> list[Problem]:
        """All problems in the order of the files. A mistyped name is not also a part that nothing uses."""
        unknown = {one.code.replace("unknown", "unused") for one in self._found if "unknown" in one.code}
        return sorted((one for one in self._found if one.code not in unknown), key=_file_order)

    def raise_if_any(self, what: str = "recipe") -> None:
        """Raise an error with all problems."""
        if self._found:
            raise RecipeError(self.found, what)


def _file_order(problem: Problem) -> tuple[str, int, int]:
    match = re.fullmatch(r"(.*):(\d+):(\d+)", problem.where, re.DOTALL)
    return (match[1], int(match[2]), int(match[3])) if match else (problem.where, 0, 0)


def report(
    error: ValidationError,
    table: Mapping[str, Any],
    keys: Keys,
    known: Sequence[str],
    names: tuple[str, str],
    problems: Problems,
) -> set[str]:
    """Add every error of a validated table to `problems`, and return the wrong keys of the table.

    `names` are those of a key and of the table in messages, such as ("parameter", "loss 'info_nce'").
    """
    grouped: dict[Keys, list[ErrorDetails]] = {}
    for detail in error.errors(include_url=False):
        if detail["type"] == "too_short" and len(detail["input"]) >= detail["ctx"]["min_length"]:
            continue  # follows from a wrong item, which has its own problem
        grouped.setdefault(_within(table, detail), []).append(detail)
    for path, details in grouped.items():
        place, kind = (*keys, *path), details[0]["type"]
        if kind == "missing":
            problems.add("recipe.missing_key", place[:-1], f"{names[1]} needs '{path[-1]}'", at_key=True)
        elif kind == "extra_forbidden" and len(path) == 1:
            message = f"unknown {names[0]} '{path[0]}' of {names[1]}.{nearest(str(path[0]), known)}"
            problems.add("recipe.unknown_key", place, message, at_key=True)
        else:
            problems.add(kind if kind.startswith("recipe.") else "recipe.invalid_value", place, should_be(details))
    return {str(path[0]) for path in grouped if path}


def _within(table: Any, detail: ErrorDetails) -> Keys:
    """Return the part of an error's location that exists in the data. Pydantic adds names of union members to it."""
    path: Keys = ()
    at = table
    for key in detail["loc"]:
        inside = key in at if isinstance(at, Mapping) else isinstance(at, list | tuple) and key in range(len(at))
        if not inside:
            return (*path, key) if detail["type"] == "missing" else path
        path, at = (*path, key), at[key]
    return path
