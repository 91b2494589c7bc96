"""Range of a model's similarities, and their relation to the gold scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from registry import EVALUATORS
from registry.evaluators.pairs import PairEvaluator, similarities
from registry.types import DatasetName, Encode


@EVALUATORS.register("similarity_profile")
class SimilarityProfile(PairEvaluator):
    """Describe the cosine similarities of scored pairs: their range, and their mean for each band of gold scores.

    min, max and mean are those of all cosines. `low` and `high` are the quantiles `tail` and 1 − `tail`, interpolated
    linearly, and spread = high − low, which is robust to outliers. Values are not multiplied by 100. As in `sts`, NaN
    counts as 0.

    The series for figures are "gold" and "cosine" of every pair and, for each of `bins` equally wide bands of gold
    scores that has pairs, "bin_gold" with its center, "bin_cosine" with its mean cosine, and "bin_pairs" with its
    number of pairs. A score between two bands belongs to the upper one.

    Source: IFCL (Xiao et al. 2023, Figure 4b), with the ranges 0.75 to 0.9 for BERT and 0.35 to 0.9 for IFCL.
    Doubtful: whether these ranges are those of all pairs, `min` and `max`, or of most, `low` and `high` (`tail`). "1.3k
    pairs" is interpreted as STS-B's 1,379 test pairs (`split`).

    Args:
        dataset: Data set of scored pairs in the catalog.
        split: Split of the data set. "all" joins its splits.
        tail: Share of the pairs below `low`, and above `high`.
        bins: Number of bands between the lowest and the highest gold score.

    Example:
        [evaluators.profile]
        name = "similarity_profile"
        dataset = "stsb_open"
        split = "test"
    """

    metric: ClassVar[str] = "spread"
    metrics: ClassVar[tuple[str, ...]] = ("spread", "low", "high", "min", "max", "mean")
    suites: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "geometry": ("similarity_profile",),
        "all": ("similarity_profile",),
    }

    def __init__(
        self,
        dataset: DatasetName = "stsb",
        split: str = "test",
        tail: Annotated[float, Field(ge=0, lt=0.5)] = 0.05,
        bins: Annotated[int, Field(ge=1)] = 5,
    ) -> None:
        self.dataset, self.split, self.tail, self.bins = dataset, split, tail, bins
        self._series: Mapping[str, Sequence[float]] = {}

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Return the range of the cosines."""
        pairs = self.pairs()
        gold, cosine = [pair.score for pair in pairs], similarities(pairs, encode)
        self._series = {"gold": gold, "cosine": cosine, **bands(gold, cosine, self.bins)}
        low, high = (float(value) for value in np.quantile(cosine, [self.tail, 1 - self.tail]))
        return {
            "spread": high - low,
            "low": low,
            "high": high,
            "min": min(cosine),
            "max": max(cosine),
            "mean": float(np.mean(cosine)),
        }

    def series(self) -> Mapping[str, Sequence[float]]:
        """Return the series "gold", "cosine", "bin_gold", "bin_cosine" and "bin_pairs"."""
        return self._series


def bands(gold: Sequence[float], cosine: Sequence[float], bins: int) -> dict[str, list[float]]:
    """Return center, mean cosine and number of pairs of each band with pairs. Equal gold scores are one band."""
    lowest, width = min(gold), (max(gold) - min(gold)) / bins
    members: dict[int, list[float]] = {}
    for score, value in zip(gold, cosine, strict=True):
        band = min(int((score - lowest) / width), bins - 1) if width > 0 else 0
        members.setdefault(band, []).append(value)
    ordered = sorted(members.items())
    return {
        "bin_gold": [lowest + (band + 0.5) * width for band, _ in ordered],
        "bin_cosine": [sum(values) / len(values) for _, values in ordered],
        "bin_pairs": [float(len(values)) for _, values in ordered],
    }
