"""What is wrong with a recipe, collected, and told all at once."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

from cse_cli.recipe.positions import Keys
from registry.errors import CseError

_BARE = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, order=True)
class Problem:
    """One thing wrong.

    Args:
        where: `file:line:column`, or the `--set` that brought the value.
        keys: Dotted path, empty for the file as a whole.
        message: What is wrong, with a suggestion where there is one.
    """

    where: str
    keys: str
    message: str

    def __str__(self) -> str:
        told = not self.keys or self.where.endswith(f" {self.keys}")
        return f"{self.where}: {self.message}" if told else f"{self.where}: {self.keys}: {self.message}"


class RecipeError(CseError):
    """A recipe or study that cannot be run, with every reason."""

    def __init__(self, problems: list[Problem], what: str = "recipe") -> None:
        self.problems = problems
        lines = [str(problem) for problem in problems]
        super().__init__(lines[0] if len(lines) == 1 else "\n".join([f"{len(lines)} problems in the {what}", *lines]))


@dataclass
class Found:
    """A problem before its place is looked up.

    Args:
        keys: Path of the value that is wrong, or of the table that misses something.
        at_key: Whether the key itself is wrong, rather than its value.
    """

    keys: Keys
    message: str
    at_key: bool = False


@dataclass
class Problems:
    """Collects what is wrong while a recipe is checked."""

    found: list[Found] = field(default_factory=list)

    def add(self, keys: Keys, message: str, *, at_key: bool = False) -> None:
        """Note one problem; the same words about the same value count once."""
        problem = Found(keys, message, at_key)
        if problem not in self.found:
            self.found.append(problem)


def dotted(keys: Keys) -> str:
    """Return a path as `--set` reads it; keys with unusual characters are quoted."""
    return ".".join([str(k) if _BARE.fullmatch(str(k)) else json.dumps(k) for k in keys])


__all__ = ["Found", "Problem", "Problems", "RecipeError", "dotted"]
