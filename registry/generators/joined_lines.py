"""Long texts made of short ones: consecutive lines of a data set, joined."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Annotated

from pydantic import Field

from registry import GENERATORS
from registry.resources.catalog import dataset_and_split, open_text
from registry.types import RowGenerator


@GENERATORS.register("joined_lines")
class JoinedLines(RowGenerator):
    """Join every n consecutive lines of other data sets with spaces.

    If a data set has its sentences in the order of its documents, the lines of a text have the same subject. They are
    not the documents themselves: a text can continue into the next document. The last incomplete text is omitted.

    Args:
        sources: Data sets of text in order, "name" for all splits or "name/split" for one.
        lines: Number of lines of a text.

    Example:
        [generator]
        name = "joined_lines"
        params = { sources = ["wiki1m_prefix/train"], lines = 10 }
    """

    def __init__(self, sources: list[str], lines: Annotated[int, Field(ge=1)] = 10) -> None:
        self.sources, self.lines = sources, lines

    def rows(self, split: str) -> Iterator[dict[str, str]]:  # noqa: ARG002 - the hook's form
        """Yield `text`, the same for every split, because the sources are not divided again."""
        for written in self.sources:
            texts = (row["text"] for row in open_text(*dataset_and_split(written)))
            while len(group := list(islice(texts, self.lines))) == self.lines:
                yield {"text": " ".join(group)}
