"""Lines and columns of the keys and values of a TOML text, from its syntax tree."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

import tree_sitter_toml
from tree_sitter import Language, Node, Parser

from cse_cli.recipe.keys import Keys


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
