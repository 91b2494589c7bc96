"""Where every key and value of a TOML text stands: what error messages point at."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass

import tree_sitter_toml
from tree_sitter import Language, Node, Parser

Keys = tuple[str | int, ...]
"""Path of a value in nested tables: keys, and positions within arrays."""

_HEADERS = frozenset({"table", "table_array_element"})
_KEY_TYPES = frozenset({"bare_key", "quoted_key", "dotted_key"})


@dataclass(frozen=True)
class Place:
    """A line and a column, both counted from 1, the column in characters."""

    line: int
    column: int


@dataclass(frozen=True)
class Span:
    """Where a key stands, and where its value starts; the same place for items of arrays and for tables."""

    key: Place
    value: Place


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

    def place(self, node: Node) -> Place:
        row, column = node.start_point.row, node.start_point.column
        return Place(row + 1, len(self.lines[row][:column].decode(errors="replace")) + 1)


def _segments(node: Node) -> Iterator[tuple[str, Node]]:
    """Yield the parts of a bare, quoted or dotted key, left to right."""
    if node.type == "dotted_key":
        for child in node.named_children:
            yield from _segments(child)
    else:
        raw = (node.text or b"").decode()
        yield (next(iter(tomllib.loads(f"{raw} = 0"))) if node.type == "quoted_key" else raw), node
