"""A sample of a training text, so that a probe does not tokenize a million rows."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from cse_cli.data.cache import Progress
from cse_cli.data.sources import Text
from registry.tokens import Vocabulary

SENTENCES = 4096
"""Rows of a sample, unless the batches need more."""


class Cells(list[Any]):
    """Cells of a column in memory, with the access of `cse_cli.data.tokens.Column`."""

    def take(self, indices: Sequence[int]) -> list[Any]:
        """Return the cells of some rows in the given order."""
        return [self[index] for index in indices]


@dataclass
class Sample:
    """Rows of a text at equal distances, with the interface that `Batches` reads.

    A column that does not exist yet, such as a translation, has the sentences of the first column that exists.

    Args:
        text: The text, with the existing columns.
        most: Maximum number of rows.
    """

    text: Text
    most: int
    seconds: float = field(default=0.0, init=False)
    """Seconds for tokenizing the rows that are not in the cache of tokens, over all columns."""
    bytes: int = field(default=0, init=False)
    """Size of their token files."""

    @property
    def rows(self) -> int:
        """Number of rows of the sample."""
        return min(self.text.rows, self.most)

    def sentences(self, column: str) -> Cells:
        """Return the cells of a column."""
        name = column if column in self.text.columns else self.text.columns[0]
        cells = self.text.sentences(name)
        return Cells(cells.take([place * self.text.rows // self.rows for place in range(self.rows)]))

    def tokens(self, column: str, vocabulary: Vocabulary, max_length: int, _: Progress | None = None) -> Cells:
        """Return the token ids of a column, and add the time and size of those of the whole text."""
        sentences = self.sentences(column)
        began = time.perf_counter()
        ids = vocabulary.ids(sentences, max_length)
        took = time.perf_counter() - began
        known = column in self.text.columns
        left = self.text.untokenized(column, vocabulary, max_length) if known else self.text.rows
        self.seconds += took / self.rows * left
        self.bytes += sum(map(len, ids)) * 4 // self.rows * left
        return Cells(ids)
