"""What is wrong with a recipe or study, all of it at once, each problem with its file, line and column.

Problems are collected by the paths of their values; where a path stands is looked up in the files afterwards.
"""

from __future__ import annotations

import copy
import json
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import tree_sitter_toml
from pydantic import ValidationError
from pydantic_core import ErrorDetails
from tree_sitter import Language, Node, Parser

from cse_cli.recipe.files import read_limited
from registry.errors import CseError, suggestion
from registry.validation import should_be

Keys = tuple[str | int, ...]
"""Path of a value in nested tables: keys, and positions within arrays."""

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_LONG_WORD = re.compile(r"(\S{150})\S{150,}")
MOST_PROBLEMS = 100
"""Told at once. What is nearest to an unknown name is looked for among all known ones, so that more take minutes."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return " Did you mean …?", or all known names where none is near, to follow a message."""
    known = list(known)
    return suggestion(name, known) or f" Known: {', '.join(known) or 'none'}."


def dotted(keys: Keys) -> str:
    """Return a path as `--set` reads it; keys with unusual characters are quoted."""
    return ".".join([str(k) if _BARE.fullmatch(str(k)) else json.dumps(k) for k in keys])


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
        named = not self.keys or self.where.endswith(f" {self.keys}")
        text = f"{self.where}: {self.message}" if named else f"{self.where}: {self.keys}: {self.message}"
        return _LONG_WORD.sub(r"\1…", text)


class RecipeError(CseError):
    """A recipe or study that cannot be run, with every reason."""

    def __init__(self, problems: list[Problem], what: str = "recipe") -> None:
        self.problems = problems
        lines = [str(problem) for problem in problems]
        count = f"{len(lines)} problems in the {what}"
        if len(lines) >= MOST_PROBLEMS:
            count += ", and perhaps more: they are looked for once these are mended"
        super().__init__(lines[0] if len(lines) == 1 else "\n".join([count, *lines]))


@dataclass(frozen=True)
class Finding:
    """A problem whose place is not looked up yet.

    Args:
        keys: Path of the value that is wrong, or of the table that misses something.
        at_key: Whether the key itself is wrong, rather than its value.
    """

    keys: Keys
    message: str
    at_key: bool = False


class EnoughProblems(Exception):  # noqa: N818 - an end on purpose, not an error
    """`MOST_PROBLEMS` are found."""


@dataclass
class Problems:
    """Collects what is wrong while a recipe is checked."""

    found: list[Finding] = field(default_factory=list)

    def add(self, keys: Keys, message: str, *, at_key: bool = False) -> None:
        """Add one problem; the same message about the same value counts once.

        Raises:
            EnoughProblems: There is no room for more.
        """
        problem = Finding(keys, message, at_key)
        if problem not in self.found:
            self.found.append(problem)
        if len(self.found) >= MOST_PROBLEMS:
            raise EnoughProblems


@dataclass(frozen=True)
class Position:
    """A line and a column, both counted from 1, the column in characters."""

    line: int
    column: int


@dataclass(frozen=True)
class Span:
    """Where a key stands, and where its value starts; the same place for items of arrays and for tables."""

    key: Position
    value: Position


@dataclass(frozen=True)
class Source:
    """One file of a recipe.

    Args:
        label: The path as messages show it.
        tables: What `tomllib` reads in it.
    """

    path: Path
    label: str
    text: str
    tables: dict[str, Any]

    @cached_property
    def spans(self) -> dict[Keys, Span]:
        """Path → where it stands."""
        return positions(self.text)

    def where(self, keys: Keys, *, at_key: bool = False) -> str | None:
        """Return `file:line:column` of a path, or None where this file does not write it."""
        span = self.spans.get(keys)
        if span is None:
            return None
        place = span.key if at_key else span.value
        return f"{self.label}:{place.line}:{place.column}"


def shown(path: Path) -> str:
    """Return a path for messages: relative where it lies below the current folder."""
    absolute = Path(os.path.normpath(path.absolute()))
    here = Path.cwd()
    return str(absolute.relative_to(here) if absolute.is_relative_to(here) else absolute)


def read_source(path: Path) -> Source:
    """Read and parse one file.

    Raises:
        RecipeError: It is missing, unreadable, not UTF-8 or not TOML.
    """
    label = shown(path)
    try:
        # Windows editors put a byte-order mark in front, which TOML itself does not know.
        text = read_limited(path).decode("utf-8-sig")
    except FileNotFoundError:
        hint = suggestion(path.name, [other.name for other in path.parent.glob("*.toml")])
        words = f"no such file.{hint} `cse list recipes` shows the recipes known by name"
        raise _refused(label, Position(1, 1), words) from None
    except IsADirectoryError:
        raise _refused(label, Position(1, 1), "this is a folder; name one recipe, or use `cse check FOLDER`") from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        message = f"not UTF-8 text (byte {error.object[error.start]:#04x}); save the file as UTF-8"
        raise _refused(label, Position(line, 1), message) from None
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte in it
        why = error.strerror if isinstance(error, OSError) else None
        raise _refused(label, Position(1, 1), f"cannot be read: {why or error}") from None
    return Source(path, label, text, _parsed(label, text))


def _parsed(label: str, text: str) -> dict[str, Any]:
    try:
        if too_deep(text):
            raise RecursionError
        return copy.deepcopy(_loads(text))
    except RecursionError:
        raise _refused(label, Position(1, 1), "not TOML: nested too deeply") from None
    except ValueError as error:
        raise _refused(label, *_syntax(str(error), text)) from None


# Of a key with n parts Python's parser keeps n²/2 of them: 3.6 GB for 100,000.
_MOST_PARTS = 64
_PART = r"""(?:[A-Za-z0-9_-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')"""
_DEEP_KEY = re.compile(rf"(?<![A-Za-z0-9_.-]){_PART}(?:[ \t]*\.[ \t]*{_PART}){{{_MOST_PARTS}}}")


def too_deep(text: str) -> bool:
    """Return whether a TOML text has a dotted key of more parts than anything in a recipe could have."""
    return text.count(".") >= _MOST_PARTS and _DEEP_KEY.search(text) is not None


@lru_cache(maxsize=256)
def _loads(text: str) -> dict[str, Any]:
    """Parse once what many recipes and all cells of a study extend."""
    return tomllib.loads(text)


def _syntax(message: str, text: str) -> tuple[Position, str]:
    """Split the parser's message into place and text: it has the place nowhere else."""
    if match := re.search(r"^(.*) \(at line (\d+), column (\d+)\)$", message, re.DOTALL):
        place, words = Position(int(match[2]), int(match[3])), match[1]
    else:
        lines = text.split("\n")
        place, words = Position(len(lines), len(lines[-1]) + 1), message.removesuffix(" (at end of document)")
    return place, f"not TOML: {words[:1].lower()}{words[1:]}"


def _refused(label: str, place: Position, message: str) -> RecipeError:
    return RecipeError([Problem(f"{label}:{place.line}:{place.column}", "", message)])


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

    def error(self, findings: Iterable[Finding], what: str = "recipe") -> RecipeError:
        """Return the error with all of them, each with its place, in the order of the files."""
        problems = [Problem(self.where(f.keys, at_key=f.at_key), dotted(f.keys), f.message) for f in findings]
        return RecipeError(sorted(problems, key=_file_order), what)


def _file_order(problem: Problem) -> tuple[str, int, int]:
    match = re.fullmatch(r"(.*):(\d+):(\d+)", problem.where, re.DOTALL)
    return (match[1], int(match[2]), int(match[3])) if match else (problem.where, 0, 0)


_HEADERS = frozenset({"table", "table_array_element"})
_KEY_TYPES = frozenset({"bare_key", "quoted_key", "dotted_key"})


def positions(text: str) -> dict[Keys, Span]:
    """Return path → span for every table, key and array item of a TOML text.

    Tables that only exist as part of a longer header or dotted key stand where they are first written.
    """
    tree = Parser(Language(tree_sitter_toml.language())).parse(text.encode())
    return _Walk(text.encode().split(b"\n")).document(tree.root_node)


class _Walk:
    """One pass over the syntax tree."""

    def __init__(self, lines: list[bytes]) -> None:
        self.lines = lines
        self.spans: dict[Keys, Span] = {}
        self.lengths: dict[Keys, int] = {}
        """Elements seen so far of each array of tables."""

    def document(self, root: Node) -> dict[Keys, Span]:
        for node in root.named_children:
            if node.type in _HEADERS:
                self.table(node)
            elif node.type == "pair":
                self.pair((), node)
        return self.spans

    def table(self, node: Node) -> None:
        prefix: Keys = ()
        segments = list(_segments(node.named_children[0]))
        for number, (name, part) in enumerate(segments):
            prefix = (*prefix, name)
            self.note(prefix, part, part)
            if node.type == "table_array_element" and number == len(segments) - 1:
                self.lengths[prefix] = self.lengths.get(prefix, 0) + 1
            if prefix in self.lengths:
                prefix = (*prefix, self.lengths[prefix] - 1)
                self.note(prefix, part, part)
        for child in node.named_children:
            if child.type == "pair":
                self.pair(prefix, child)

    def pair(self, prefix: Keys, node: Node) -> None:
        key = node.named_children[0]
        value = next((c for c in node.named_children[1:] if c.type not in _KEY_TYPES and c.type != "comment"), key)
        parts = list(_segments(key))
        for number, (name, part) in enumerate(parts):
            prefix = (*prefix, name)
            self.note(prefix, part, value if number == len(parts) - 1 else part)
        self.value(prefix, value)

    def value(self, prefix: Keys, node: Node) -> None:
        if node.type == "inline_table":
            for child in node.named_children:
                if child.type == "pair":
                    self.pair(prefix, child)
        elif node.type == "array":
            for index, child in enumerate(c for c in node.named_children if c.type != "comment"):
                self.note((*prefix, index), child, child)
                self.value((*prefix, index), child)

    def note(self, keys: Keys, key: Node, value: Node) -> None:
        self.spans.setdefault(keys, Span(self.place(key), self.place(value)))

    def place(self, node: Node) -> Position:
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
class Checking:
    """A table under validation, as messages name it.

    Args:
        table: As written.
        keys: Its path in the recipe.
        known: Keys it may have.
        what: What it is, such as "loss 'info_nce'" or "[train]".
        noun: What its keys are called.
    """

    table: Mapping[str, Any]
    keys: Keys
    known: Sequence[str]
    what: str
    noun: str = "key"


def report(error: ValidationError, checking: Checking, problems: Problems) -> list[Keys]:
    """Add every error of a validated table to `problems`, and return the paths within the table that are wrong."""
    grouped: dict[Keys, list[ErrorDetails]] = {}
    for detail in error.errors(include_url=False):
        if detail["type"] == "too_short" and len(detail["input"]) >= detail["ctx"]["min_length"]:
            continue  # an item of it is wrong, which is told by itself
        grouped.setdefault(_within(checking.table, detail), []).append(detail)
    for path, details in grouped.items():
        _add(path, details, checking, problems)
    return list(grouped)


def _add(path: Keys, details: list[ErrorDetails], checking: Checking, problems: Problems) -> None:
    first, keys = details[0], checking.keys
    if first["type"] == "missing":
        problems.add((*keys, *path[:-1]), f"{checking.what} needs '{path[-1]}'", at_key=True)
    elif first["type"] == "extra_forbidden" and len(path) == 1:
        hint = suggestion(str(path[-1]), checking.known) or _listed(checking.known)
        problems.add((*keys, *path), f"unknown {checking.noun} '{path[-1]}' of {checking.what}.{hint}", at_key=True)
    else:
        problems.add((*keys, *path), should_be(details))


def _listed(known: Sequence[str]) -> str:
    return f" Known: {', '.join(known)}." if known else " It has none."


def _within(table: Any, detail: ErrorDetails) -> Keys:
    """Return the part of an error's location that the data has: union members and "[key]" are pydantic's own."""
    path: Keys = ()
    at = table
    for key in detail["loc"]:
        inside = (isinstance(at, Mapping) and key in at) or (
            isinstance(at, list | tuple) and isinstance(key, int) and key < len(at)
        )
        if not inside:
            return (*path, key) if detail["type"] == "missing" else path
        path, at = (*path, key), at[key]
    return path
