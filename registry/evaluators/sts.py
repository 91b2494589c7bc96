"""Semantic textual similarity: do cosines rank sentence pairs as people do?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from torch import Tensor

from registry import EVALUATORS, catalogue
from registry.catalogue import PAIR_COLUMNS, Pair
from registry.evaluators.correlation import AGGREGATES, aggregates
from registry.types import Encode, Evaluator


@EVALUATORS.register("sts")
class Sts(Evaluator):
    """Correlate the cosines of sentence pairs with gold scores, × 100.

    A data set may consist of subsets: the sources of a yearly SemEval task, the genres of STS-B. "all" correlates over
    the pairs of all subsets together, "mean" averages the subsets' correlations, "wmean" weights them by their pairs.
    Every result names all three; `spearman` and `pearson` repeat the chosen one.

    As in SentEval, white space is reduced to single blanks and a NaN similarity counts as 0. A correlation that is
    undefined because one side is constant counts as 0. Each distinct sentence is encoded once.

    Source: SimCSE's copy of SentEval (`senteval/sts.py`); cosine without a regressor for STS-B and SICK-R as well.
    Doubtful: which aggregate a paper prints; SimCSE and those who compare with it use "all" (methods/simcse.md §7).

    Args:
        dataset: Name in the data catalogue.
        split: Split of it; "all" joins its splits.
        aggregate: The aggregate shown as `spearman` and `pearson`.
    """

    metric: ClassVar[str] = "spearman"
    metrics: ClassVar[tuple[str, ...]] = (
        "spearman", "pearson", *(f"{name}_{how}" for name in ("spearman", "pearson") for how in AGGREGATES),
    )  # fmt: skip

    def __init__(self, dataset: str, split: str = "test", aggregate: Literal["all", "mean", "wmean"] = "all") -> None:
        self.dataset = dataset
        self.split = split
        self.aggregate = aggregate

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Return Spearman's and Pearson's correlation in every aggregate."""
        pairs = catalogue.read_pairs(self.dataset, self.split)
        gold = [pair.score for pair in pairs]
        values = aggregates([pair.subset for pair in pairs], gold, similarities(pairs, encode))
        shown = {name: values[f"{name}_{self.aggregate}"] for name in ("spearman", "pearson")}
        return {**shown, **values}

    def texts(self) -> list[str]:
        """Return every distinct sentence of the data set, of all its splits that hold pairs."""
        about = catalogue.entry(self.dataset)
        splits = ("all",) if about.joinable else (s for s in about.parts if about.columns_of(s) == PAIR_COLUMNS)
        pairs = [pair for split in splits for pair in catalogue.read_pairs(self.dataset, split)]
        return list(dict.fromkeys(one_line(text) for pair in pairs for text in (pair.first, pair.second)))

    def fingerprints(self) -> dict[str, str]:
        """Return "dataset/split" → content digest."""
        return {f"{self.dataset}/{self.split}": catalogue.fingerprint(self.dataset, self.split)}


def similarities(pairs: Sequence[Pair], encode: Encode) -> list[float]:
    """Return the cosine of each pair; NaN in a vector or a similarity becomes 0."""
    sides = [(one_line(pair.first), one_line(pair.second)) for pair in pairs]
    rows = {text: row for row, text in enumerate(dict.fromkeys(text for side in sides for text in side))}
    vectors = encode(list(rows))
    return cosines(vectors[[rows[left] for left, _ in sides]], vectors[[rows[right] for _, right in sides]])


def cosines(left: Tensor, right: Tensor) -> list[float]:
    """Return the cosine of each row of `left` (n, D) with that of `right`; NaN in either or the result becomes 0."""
    first, second = left.double().nan_to_num(), right.double().nan_to_num()
    between = (first * second).sum(dim=1) / (first.norm(dim=1) * second.norm(dim=1))
    found: list[float] = between.nan_to_num().tolist()
    return found


def one_line(sentence: str) -> str:
    """Return a sentence with its white space reduced to single blanks."""
    return " ".join(sentence.split())
