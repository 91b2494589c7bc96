"""Longer texts made of short ones: consecutive lines of a data set, joined."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Annotated

from pydantic import Field

from registry import GENERATORS
from registry.catalogue import open_text
from registry.catalogue.entries import dataset_and_split
from registry.types import Generator


@GENERATORS.register("joined_lines")
class JoinedLines(Generator):
    """Join every n consecutive lines of other data sets by blanks.

    Where a data set has its sentences in the order of its documents, this gives texts that keep to their subject, but
    not the documents themselves: a text may run over the end of one. Lines that fill no last text are left out.

    Args:
        sources: Data sets of text, "name" for all splits or "name/split" for one, in order.
        lines: Lines of a text.
    """

    def __init__(self, sources: list[str], lines: Annotated[int, Field(ge=1)] = 10) -> None:
        self.sources, self.lines = sources, lines

    def rows(self, split: str) -> Iterator[dict[str, str]]:  # noqa: ARG002 - the hook's form
        """Yield `text`, the same whatever the split: the data sets named are not divided again.

        Raises:
            MissingError: One of the data sets is not on this machine and cannot be fetched.
        """
        for written in self.sources:
            texts = (row["text"] for row in open_text(*dataset_and_split(written)))
            while len(group := list(islice(texts, self.lines))) == self.lines:
                yield {"text": " ".join(group)}
