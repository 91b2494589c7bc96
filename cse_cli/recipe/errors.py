"""Error of a recipe or study: one message with all its problems, each with its file, line and column."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from registry.errors import CseError, suggestion

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

    Args:
        where: `file:line:column`, or the `--set` option that set the value. Empty if the value has no place.
        keys: Dotted path of the value. Empty for the whole file.
        code: Stable identifier, such as "recipe.unknown_key".
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
