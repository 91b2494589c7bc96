"""Where each value of a merged recipe came from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cse_cli.recipe.positions import Keys
from cse_cli.recipe.problems import Found, Problem, RecipeError, dotted
from cse_cli.recipe.sources import Source


@dataclass(frozen=True)
class Origins:
    """The layers a recipe is made of.

    Args:
        sources: Files, nearest first.
        overrides: Path and label of every value from outside the files, in the order they were laid over them.
    """

    sources: tuple[Source, ...]
    overrides: tuple[tuple[Keys, str], ...] = ()

    def where(self, keys: Keys, *, at_key: bool = False) -> str:
        """Return `file:line:column` or the override that wrote a value; its nearest table where nothing did."""
        return (
            self._override(keys)
            or self._file(keys, at_key=at_key)
            or self._override_below(keys)
            or self._table(keys)
            or f"{self.sources[0].label}:1:1"
        )

    def folder(self, keys: Keys) -> Path:
        """Return the folder a relative path written at `keys` counts from."""
        if self._override(keys):
            return Path.cwd()
        return next((s.path.parent for s in self.sources if s.where(keys)), Path.cwd())

    def _override(self, keys: Keys) -> str | None:
        return next((label for path, label in reversed(self.overrides) if keys[: len(path)] == path), None)

    def _override_below(self, keys: Keys) -> str | None:
        return next((label for path, label in reversed(self.overrides) if keys and path[: len(keys)] == keys), None)

    def _file(self, keys: Keys, *, at_key: bool) -> str | None:
        return next((place for s in self.sources if (place := s.where(keys, at_key=at_key))), None)

    def _table(self, keys: Keys) -> str | None:
        shorter = (self._file(keys[:length], at_key=True) for length in range(len(keys) - 1, 0, -1))
        return next((place for place in shorter if place), None)

    def error(self, found: Iterable[Found], what: str = "recipe") -> RecipeError:
        """Return the error that tells all of them, each at its place, in the order of the files."""
        told = [(self._rank(p), Problem(self.where(p.keys, at_key=p.at_key), dotted(p.keys), p.message)) for p in found]
        return RecipeError([problem for _, problem in sorted(told, key=lambda pair: pair[0])], what)

    def _rank(self, problem: Found) -> tuple[str, int, int]:
        where = self.where(problem.keys, at_key=problem.at_key)
        file, _, place = where.rpartition(":")
        file, _, line = file.rpartition(":")
        return (file, int(line), int(place)) if line.isdigit() and place.isdigit() else (where, 0, 0)
