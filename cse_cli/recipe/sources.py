"""The files of a recipe or study, and the place that each of its values comes from."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import tree_sitter_toml
from tree_sitter import Language, Node, Parser

from cse_cli.recipe.files import read_limited
from cse_cli.recipe.keys import Keys, dotted
from cse_cli.recipe.problems import Problem, RecipeError
from registry.errors import suggestion


class Position(NamedTuple):
    """Line and column, both counted from 1, the column in characters."""

    line: int
    column: int


class Span(NamedTuple):
    """Positions of a key and of its value. They are equal for tables and for items of arrays."""

    key: Position
    value: Position


@lru_cache(maxsize=1024)
def positions(text: str) -> Mapping[Keys, Span]:
    """Return the span of every table, key and array item of a TOML text.

    A table that exists only as a part of longer headers or dotted keys has the position of the first of them. Many
    recipes extend one file, so its positions are kept.
    """
    tree = Parser(Language(tree_sitter_toml.language())).parse(text.encode())
    walk = _Walk(text.encode().split(b"\n"))
    walk.pairs((), tree.root_node)
    for node in tree.root_node.named_children:
        if node.type in ("table", "table_array_element"):
            walk.table(node)
    return walk.spans


class _Walk:
    def __init__(self, lines: list[bytes]) -> None:
        self.lines = lines
        self.spans: dict[Keys, Span] = {}
        self.lengths: dict[Keys, int] = {}
        """Number of elements so far of each array of tables."""

    def table(self, node: Node) -> None:
        keys: Keys = ()
        header = list(_segments(node.named_children[0]))
        for number, (name, part) in enumerate(header, start=1):
            keys = (*keys, name)
            self.note(keys, part, part)
            if node.type == "table_array_element" and number == len(header):
                self.lengths[keys] = self.lengths.get(keys, 0) + 1
            if keys in self.lengths:
                keys = (*keys, self.lengths[keys] - 1)
                self.note(keys, part, part)
        self.pairs(keys, node)

    def pairs(self, keys: Keys, node: Node) -> None:
        for pair in node.named_children:
            if pair.type != "pair":
                continue
            key, value = [child for child in pair.named_children if child.type != "comment"]
            inner, segments = keys, list(_segments(key))
            for number, (name, part) in enumerate(segments, start=1):
                inner = (*inner, name)
                self.note(inner, part, value if number == len(segments) else part)
            self.value(inner, value)

    def value(self, keys: Keys, node: Node) -> None:
        if node.type == "inline_table":
            self.pairs(keys, node)
        elif node.type == "array":
            items = (child for child in node.named_children if child.type != "comment")
            for index, item in enumerate(items):
                self.note((*keys, index), item, item)
                self.value((*keys, index), item)

    def note(self, keys: Keys, key: Node, value: Node) -> None:
        self.spans.setdefault(keys, Span(self.position(key), self.position(value)))

    def position(self, node: Node) -> Position:
        row, column = node.start_point.row, node.start_point.column
        return Position(row + 1, len(self.lines[row][:column].decode(errors="replace")) + 1)


def _segments(node: Node) -> Iterator[tuple[str, Node]]:
    """Yield the parts of a bare, quoted or dotted key, left to right."""
    if node.type == "dotted_key":
        for child in node.named_children:
            yield from _segments(child)
    else:
        raw = (node.text or b"").decode()
        yield (next(iter(tomllib.loads(f"{raw} = 0"))) if node.type == "quoted_key" else raw), node


@dataclass(frozen=True)
class Source:
    """One file of a recipe.

    `label` is its path in messages: relative if it is below the current directory.
    """

    path: Path
    label: str
    text: str
    tables: dict[str, Any]

    @cached_property
    def spans(self) -> Mapping[Keys, Span]:
        """Path of each key → its position."""
        return positions(self.text)

    def where(self, keys: Keys, *, at_key: bool = False) -> str | None:
        """Return `file:line:column` of a path, or None if this file does not contain it."""
        span = self.spans.get(keys)
        if span is None:
            return None
        place = span.key if at_key else span.value
        return f"{self.label}:{place.line}:{place.column}"

    def refuse(self, code: str, keys: Keys, message: str) -> RecipeError:
        """Return the error for one problem in this file."""
        return RecipeError([Problem(self.where(keys) or f"{self.label}:1:1", dotted(keys), message, code)])


def read_source(path: Path) -> Source:
    """Read and parse one file."""
    absolute = Path(os.path.normpath(path.absolute()))
    here = Path.cwd()
    label = str(absolute.relative_to(here) if absolute.is_relative_to(here) else absolute)
    try:
        # Windows editors write a byte-order mark, which is not valid TOML.
        text = read_limited(path).decode("utf-8-sig")
        return Source(path, label, text, _parse(text))
    except (OSError, ValueError, RecursionError) as error:
        place, code, message = _reading_problem(path, error)
        raise RecipeError([Problem(f"{label}:{place}", "", message, code)]) from None


_parse = lru_cache(maxsize=256)(tomllib.loads)
"""Many recipes, and all cells of a study, extend the same files."""


def _reading_problem(path: Path, error: Exception) -> tuple[str, str, str]:
    """Return line and column, error code and message."""
    match error:
        case FileNotFoundError():
            near = suggestion(path.name, [other.name for other in path.parent.glob("*.toml")])
            return "1:1", "recipe.missing_file", f"no such file.{near} `cse list recipes` shows the recipes with a name"
        case IsADirectoryError():
            return "1:1", "recipe.is_directory", "this is a directory. Name a file, or use `cse check DIRECTORY`"
        case UnicodeDecodeError():
            line = error.object[: error.start].count(b"\n") + 1
            byte = error.object[error.start]
            return f"{line}:1", "recipe.not_utf8", f"not UTF-8 (byte {byte:#04x}). Save the file as UTF-8"
        case RecursionError():
            return "1:1", "recipe.not_toml", "not TOML: nested too deeply"
        case tomllib.TOMLDecodeError():
            message, _, end = str(error).partition(" (at ")
            lines = path.read_text(encoding="utf-8-sig").split("\n")
            place = re.findall(r"\d+", end) or [len(lines), len(lines[-1]) + 1]  # else it is the end of the document
            hint = "Check quotes, brackets, commas and = up to this place"
            return f"{place[0]}:{place[1]}", "recipe.not_toml", f"not TOML: {message}. {hint}"
    return "1:1", "recipe.unreadable", f"cannot be read: {getattr(error, 'strerror', None) or error}"


@dataclass(frozen=True)
class Origins:
    """The layers of a recipe.

    A file precedes the one that it extends. `overrides` has path and label of every value from outside the files.
    """

    sources: tuple[Source, ...]
    overrides: tuple[tuple[Keys, str], ...] = ()

    def where(self, keys: Keys, *, at_key: bool = False) -> str:
        """Return `file:line:column`, or the label of the override, that wrote a value or its nearest table."""
        inside = (label for path, label in reversed(self.overrides) if keys and path[: len(keys)] == keys)
        tables = (keys[:length] for length in range(len(keys) - 1, 0, -1))
        return (
            self._override(keys)
            or self._in_files([keys], at_key=at_key)
            or next(inside, None)
            or self._in_files(tables, at_key=True)
            or f"{self.sources[0].label}:1:1"
        )

    def is_inherited(self, keys: Keys, name: Keys) -> bool:
        """Return whether a value comes from a file that is extended, or overridden, by the layer that sets `name`."""
        if len(self.sources) == 1 and not self.overrides:
            return False
        return self._layer(keys) > self._layer(name)

    def _layer(self, keys: Keys) -> int:
        """Return 0 for an override, else the number of the file that wrote a value, 1 for the recipe itself."""
        if self._override(keys):
            return 0
        found = (number for number, source in enumerate(self.sources, start=1) if keys in source.spans)
        return next(found, len(self.sources) + 1)

    def directory(self, keys: Keys) -> Path:
        """Return the directory that a relative path at `keys` starts from."""
        if self._override(keys):
            return Path.cwd()
        return next((source.path.parent for source in self.sources if source.where(keys)), Path.cwd())

    def _override(self, keys: Keys) -> str | None:
        return next((label for path, label in reversed(self.overrides) if keys[: len(path)] == path), None)

    def _in_files(self, paths: Iterable[Keys], *, at_key: bool) -> str | None:
        found = (source.where(keys, at_key=at_key) for keys in paths for source in self.sources)
        return next((place for place in found if place), None)
