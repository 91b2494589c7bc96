"""The sentences of scored pairs, without pairing and scores."""

from __future__ import annotations

from collections.abc import Iterator

from registry import GENERATORS
from registry.catalogue import read_pairs
from registry.catalogue.entries import dataset_and_split
from registry.types import Generator


@GENERATORS.register("pair_sentences")
class PairSentences(Generator):
    """Give both sentences of every pair of other data sets as text to train on.

    The pairs stand in their own order, the first sentence before the second, repeated sentences repeated; scores and
    pairing are left out. Who trains on it and tests on the same pairs does so transductively.

    Source: ConSERT (Yan et al. 2021, section 4.1), whose code reads the seven STS data sets so (`no_pair`).

    Args:
        sources: Data sets of pairs, "name" for all its splits or "name/split" for one, in order.
    """

    def __init__(self, sources: list[str]) -> None:
        self.sources = sources

    def rows(self, split: str) -> Iterator[dict[str, str]]:  # noqa: ARG002 - the hook's form
        """Yield `text`, the same whatever the split: the data sets named are not divided again.

        Raises:
            MissingError: One of the data sets is not on this machine and cannot be fetched.
        """
        for written in self.sources:
            for pair in read_pairs(*dataset_and_split(written)):
                yield {"text": pair.first}
                yield {"text": pair.second}
