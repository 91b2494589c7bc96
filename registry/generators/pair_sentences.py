"""Sentences of scored pairs as plain text."""

from __future__ import annotations

from collections.abc import Iterator

from registry import GENERATORS
from registry.resources.catalog import dataset_and_split, read_pairs
from registry.types import RowGenerator


@GENERATORS.register("pair_sentences")
class PairSentences(RowGenerator):
    """Yield both sentences of all pairs of other data sets as training text.

    The pairs keep their order, with the first sentence before the second, and repeated sentences stay. Scores are
    omitted. Training on these sentences and testing on the same pairs is transductive.

    Source: ConSERT (Yan et al. 2021, section 4.1), whose code reads the seven STS data sets in this way (`no_pair`).

    Args:
        sources: Data sets of pairs in order, "name" for all splits or "name/split" for one.

    Example:
        [generator]
        name = "pair_sentences"
        params = { sources = ["sts12", "stsb/test"] }
    """

    def __init__(self, sources: list[str]) -> None:
        self.sources = sources

    def rows(self, split: str) -> Iterator[dict[str, str]]:  # noqa: ARG002 - the hook's form
        """Yield `text`, the same for every split, because the sources are not divided again."""
        for written in self.sources:
            for pair in read_pairs(*dataset_and_split(written)):
                yield {"text": pair.first}
                yield {"text": pair.second}
