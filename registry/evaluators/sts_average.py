"""Mean over several data sets of semantic textual similarity, for the selection of checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from registry import EVALUATORS
from registry.evaluators.sts import Sts
from registry.types import DatasetName, Encode, Evaluator


@EVALUATORS.register("sts_average")
class StsAverage(Evaluator):
    """Average the correlations of several `sts` data sets.

    spearman = (1/n) Σ spearman(data set), and pearson similarly. The summands are not rounded, unlike the last columns
    of the papers' tables.

    Source: DCLR's code selects by the mean of the dev splits of STS-B and SICK-R (`avg_sts`, methods/dclr.md). MoCoSE's
    code selects by that of the seven test splits, which requires evaluate.allow_test_selection and marks the result
    (methods/mocose.md M8).

    Args:
        datasets: Data sets of scored pairs in the catalog.
        split: Split of each data set.
        aggregate: Aggregate of the subsets of a data set, as in `sts`.

    Example:
        [evaluators.avg_dev]
        name = "sts_average"
        datasets = ["stsb", "sickr"]
        split = "dev"
    """

    metric: ClassVar[str] = "spearman"
    metrics: ClassVar[tuple[str, ...]] = ("spearman", "pearson")

    def __init__(
        self,
        datasets: Annotated[list[DatasetName], Field(min_length=1)],
        split: str = "test",
        aggregate: Literal["all", "mean", "wmean"] = "all",
    ) -> None:
        self.split = split
        self.parts = [Sts(dataset, split, aggregate) for dataset in datasets]

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Return the means of Spearman's and Pearson's correlations."""
        return self._mean([part(encode) for part in self._limited()])

    def word_overlap(self) -> dict[str, float]:
        """Return the means of the correlations of word overlap."""
        return self._mean([part.word_overlap() for part in self._limited()])

    def _limited(self) -> Sequence[Sts]:
        for part in self.parts:
            part.limit = self.limit
        return self.parts

    def _mean(self, found: Sequence[dict[str, float]]) -> dict[str, float]:
        return {name: sum(one[name] for one in found) / len(found) for name in self.metrics}

    def texts(self) -> Sequence[str]:
        """Return the sentences of all splits of all data sets."""
        return [text for part in self.parts for text in part.texts()]

    def fingerprints(self) -> dict[str, str]:
        """Return "dataset/split" → content digest."""
        return {name: digest for part in self.parts for name, digest in part.fingerprints().items()}
