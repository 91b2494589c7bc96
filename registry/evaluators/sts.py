"""Semantic textual similarity: do cosines rank sentence pairs as people do?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from registry import EVALUATORS, catalogue
from registry.catalogue import Column, PairFile, names_a_file
from registry.catalogue.pairs import HUB
from registry.evaluators.pairs import PairEvaluator, similarities
from registry.statistics import AGGREGATES, aggregates, spearman_interval
from registry.types import DatasetName, Encode, FileName

SEVEN = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")
"""The English sets of every table, in the papers' order."""


@EVALUATORS.register("sts")
class Sts(PairEvaluator):
    """Correlate the cosines of sentence pairs with gold scores, × 100.

    A data set may consist of subsets: the sources of a yearly SemEval task, the genres of STS-B. "all" correlates over
    the pairs of all subsets together, "mean" averages the subsets' correlations, "wmean" weights them by their pairs.
    Every result names all three; `spearman` and `pearson` repeat the chosen one.

    `spearman_low` and `spearman_high` are the ends of its percentile bootstrap interval: ρ of `bootstrap` data sets of
    as many pairs, drawn with replacement, from each subset by itself for "mean" and "wmean". The draws are the same
    every time. Without resamples both equal `spearman`.

    As in SentEval, white space is reduced to single blanks and a NaN similarity counts as 0. A correlation that is
    undefined because one side is constant counts as 0. Each distinct sentence is encoded once.

    Source: SimCSE's copy of SentEval (`senteval/sts.py`); cosine without a regressor for STS-B and SICK-R as well.
    Doubtful: which aggregate a paper prints; SimCSE and those who compare with it use "all" (methods/simcse.md §7).

    Args:
        dataset: Name in the data catalogue; or give `file`.
        split: Split of it, or of the hub's; "all" joins the splits of `dataset`. Of a file, what it counts as: only
            "dev" and the like may select.
        aggregate: The aggregate shown as `spearman` and `pearson`.
        file: Pairs of your own instead: a .tsv, .csv, .jsonl (plain or .gz) or .parquet with named columns; a relative
            path counts from the current folder, then from $CSE_DATA. Or a data set of the hub, "hf:owner/name".
        score_column: Column of the file with the gold score: any scale, more is more alike.
        first_column: Column of the file with the first sentence.
        second_column: Column of the file with the second sentence.
        subset_column: Column of the file that divides it into subsets; without one it is a single one.
        bootstrap: Resamples for the confidence interval; 0 makes none.
        level: Share of the resamples inside the interval.
    """

    metric: ClassVar[str] = "spearman"
    metrics: ClassVar[tuple[str, ...]] = (
        "spearman", "pearson", *(f"{name}_{how}" for name in ("spearman", "pearson") for how in AGGREGATES),
        "spearman_low", "spearman_high",
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
        catalogue.require_one("sts", dataset, file)
        self.dataset = dataset or ""
        self.split, self.aggregate, self.bootstrap, self.level = split, aggregate, bootstrap, level
        if file is not None:
            subset = None if subset_column is None else Column("subset_column", subset_column)
            first, second = Column("first_column", first_column), Column("second_column", second_column)
            self.own = PairFile(file, first, second, Column("score_column", score_column), subset, split)
            self.own.scored()  # a malformed file is reported before training, not after
        self._series: Mapping[str, Sequence[float]] = {}

    @classmethod
    def parameters_for(cls, name: str) -> dict[str, Any] | None:
        """Return those of a data set of scored pairs, "name" or "name/split", of a file of pairs or of a hub's set."""
        if names_a_file(name) or name.startswith(HUB):
            return {"file": name}
        dataset, _, split = name.partition("/")
        if dataset not in catalogue.names() or catalogue.entry(dataset).kind != "pairs":
            return None
        scored = "score" in catalogue.entry(dataset).columns_of(split or "test")
        return {"dataset": dataset, "split": split or "test"} if scored else None

    def shown_metrics(self) -> tuple[str, ...]:
        """Return both correlations, and the interval if there is one."""
        return ("spearman", "pearson", *(("spearman_low", "spearman_high") if self.bootstrap else ()))

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Return Spearman's and Pearson's correlation in every aggregate, and the interval of the chosen Spearman's."""
        pairs = self.pairs()
        subsets, gold = [pair.subset for pair in pairs], [pair.score for pair in pairs]
        predicted = similarities(pairs, encode)
        self._series = {"gold": gold, "cosine": predicted}
        values = aggregates(subsets, gold, predicted)
        shown = {name: values[f"{name}_{self.aggregate}"] for name in ("spearman", "pearson")}
        low = high = shown["spearman"]
        if self.bootstrap:
            scores = (gold, predicted)
            low, high = spearman_interval(subsets, scores, self.aggregate, self.bootstrap, self.level)
        return {**shown, **values, "spearman_low": low, "spearman_high": high}

    def series(self) -> Mapping[str, Sequence[float]]:
        """Return "gold" and "cosine" of every pair."""
        return self._series
