"""Semantic textual similarity: correlation of cosines with human scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from registry import EVALUATORS
from registry.evaluators.pairs import PairEvaluator, similarities
from registry.resources import catalog
from registry.resources.catalog import HUB, Pair, PairFile
from registry.resources.rows import Column, names_a_file
from registry.statistics import AGGREGATES, aggregates, spearman_interval
from registry.types import DatasetName, Encode, FileName
from registry.words import word_overlap

SEVEN = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")
"""The seven English data sets of the papers' tables, in order."""


INTERVAL = ("spearman_low", "spearman_high")
"""Metrics that only the bootstrap computes."""


@EVALUATORS.register("sts")
class Sts(PairEvaluator):
    """Correlate the cosine similarities of sentence pairs with gold scores, × 100.

    A data set can consist of subsets: the sources of a yearly SemEval task, or the genres of STS-B. "all" correlates
    over the pairs of all subsets together, "mean" averages the correlations of the subsets, "wmean" weights them by
    their number of pairs. Every result contains all three, and `spearman` and `pearson` repeat the selected one.

    `spearman_low` and `spearman_high` are the ends of the percentile bootstrap interval: ρ of `bootstrap` samples of as
    many pairs, drawn with replacement, for "mean" and "wmean" within each subset. The random numbers are the same in
    every call. Without bootstrap there is no interval.

    As in SentEval, white space is reduced to single spaces, and a NaN similarity counts as 0. A correlation that is
    undefined because one side is constant counts as 0. Each distinct sentence is encoded once.

    Source: SimCSE's copy of SentEval (`senteval/sts.py`); cosine without a regressor for STS-B and SICK-R as well.
    Doubtful: the aggregate of a paper. SimCSE and papers that compare with it use "all" (methods/simcse.md §7).

    Args:
        dataset: Data set in the catalog. Alternative to `file`.
        split: Split of the data set or of the Hub data set, or role of the file. "all" joins the splits of `dataset`.
            Only splits such as "dev" can select checkpoints.
        aggregate: Aggregate of `spearman` and `pearson`.
        file: Your own pairs: a .tsv, .csv, .jsonl (plain or .gz) or .parquet file with named columns. A relative path
            is resolved against the current directory, then against $CSE_DATA. Or a Hub data set, "hf:owner/name".
        score_column: Column of the file with the gold score, on any scale. Higher means more similar.
        first_column: Column of the file with the first sentence.
        second_column: Column of the file with the second sentence.
        subset_column: Column of the file with the subset. Default: a single subset.
        bootstrap: Number of bootstrap samples for the confidence interval. With 0 no interval is computed.
        level: Confidence level of the interval.

    Example:
        [evaluators.dev]
        name = "sts"
        dataset = "stsb_open"
        split = "dev"
    """

    version = 2
    metric: ClassVar[str] = "spearman"
    metrics: ClassVar[tuple[str, ...]] = (
        "spearman", "pearson", *(f"{name}_{how}" for name in ("spearman", "pearson") for how in AGGREGATES), *INTERVAL,
    )  # fmt: skip
    suites: ClassVar[Mapping[str, tuple[str, ...]]] = {"sts": SEVEN, "all": SEVEN, "sts_zh": ("cstsb", "simclue")}

    def __init__(
        self,
        dataset: DatasetName | None = None,
        split: str = "test",
        aggregate: Literal["all", "mean", "wmean"] = "all",
        file: FileName | None = None,
        score_column: str = "score",
        first_column: str = "sentence1",
        second_column: str = "sentence2",
        subset_column: str | None = None,
        bootstrap: Annotated[int, Field(ge=0, le=100_000)] = 0,
        level: Annotated[float, Field(ge=0.5, lt=1)] = 0.95,
    ) -> None:
        catalog.require_one("sts", dataset, file)
        self.dataset = dataset or ""
        self.split, self.aggregate, self.bootstrap, self.level = split, aggregate, bootstrap, level
        if file is not None:
            subset = None if subset_column is None else Column("subset_column", subset_column)
            first, second = Column("first_column", first_column), Column("second_column", second_column)
            self.own = PairFile(file, first, second, Column("score_column", score_column), subset, split)
            self.own.scored()  # report a malformed file before training
        self._series: Mapping[str, Sequence[float]] = {}

    @classmethod
    def parameters_for(cls, name: str) -> dict[str, Any] | None:
        """Return the parameters of a data set ("name" or "name/split"), a file or a Hub data set of scored pairs."""
        if names_a_file(name) or name.startswith(HUB):
            return {"file": name}
        dataset, _, split = name.partition("/")
        if dataset not in catalog.names() or catalog.entry(dataset).kind != "pairs":
            return None
        scored = "score" in catalog.entry(dataset).columns_of(split or "test")
        return {"dataset": dataset, "split": split or "test"} if scored else None

    def returned_metrics(self) -> tuple[str, ...]:
        """Return all metrics, or those without the interval if it is not computed."""
        return tuple(name for name in self.metrics if self.bootstrap or name not in INTERVAL)

    def shown_metrics(self) -> tuple[str, ...]:
        """Return both correlations, and the interval if it is computed."""
        return ("spearman", "pearson", *(INTERVAL if self.bootstrap else ()))

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Return Spearman's and Pearson's correlation in every aggregate, and the interval of Spearman's."""
        pairs = self.pairs()
        subsets, gold = [pair.subset for pair in pairs], [pair.score for pair in pairs]
        predicted = similarities(pairs, encode)
        self._series = {"gold": gold, "cosine": predicted}
        values = self._correlations(pairs, predicted)
        if self.bootstrap:
            ends = spearman_interval(subsets, (gold, predicted), self.aggregate, self.bootstrap, self.level)
            values |= zip(INTERVAL, ends, strict=True)
        return values

    def word_overlap(self) -> dict[str, float]:
        """Return the correlations of the pairs' `registry.words.word_overlap` in every aggregate."""
        pairs = self.pairs()
        return self._correlations(pairs, [word_overlap(pair.first, pair.second) for pair in pairs])

    def _correlations(self, pairs: Sequence[Pair], predicted: Sequence[float]) -> dict[str, float]:
        values = aggregates([pair.subset for pair in pairs], [pair.score for pair in pairs], predicted)
        return {**{name: values[f"{name}_{self.aggregate}"] for name in ("spearman", "pearson")}, **values}

    def series(self) -> Mapping[str, Sequence[float]]:
        """Return "gold" and "cosine" of every pair."""
        return self._series
