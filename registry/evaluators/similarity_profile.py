"""What range a model's similarities take, and how they follow the gold scores."""

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
    """Describe the cosines that a model gives scored pairs: their range, and their mean for each band of gold scores.

    min, max and mean of all cosines; `low` and `high` are the quantiles `tail` and 1 − `tail` (between two values in
    proportion), and spread = high − low, which a few odd pairs do not move. Not multiplied by 100. As in `sts`, a NaN
    counts as 0.

    For figures: "gold" and "cosine" of every pair; and of each of `bins` equally wide bands of gold scores that has
    pairs: "bin_gold" its middle, "bin_cosine" its mean cosine, "bin_pairs" its pairs. A score between two bands belongs
    to the upper one.

    Source: IFCL (Xiao et al. 2023, Figure 4b), which reads off ranges, 0.75 to 0.9 for BERT and 0.35 to 0.9 for IFCL.
    Doubtful: whether such a range is that of all pairs, `min` and `max`, or of most, `low` and `high` (`tail`); "1.3k
    pairs" are taken to be STS-B's 1,379 test pairs (`split`).

    Args:
        dataset: Name in the data catalogue, scored pairs.
        split: Split of it; "all" joins its splits.
        tail: Share of the pairs below `low`, and above `high`.
        bins: Bands of gold scores between the lowest and the highest one.
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
        """Return "gold" and "cosine" of every pair; "bin_gold", "bin_cosine" and "bin_pairs" of every band."""
        return self._series


def bands(gold: Sequence[float], cosine: Sequence[float], bins: int) -> dict[str, list[float]]:
    """Return middle, mean cosine and pairs of each band of gold scores that has any; one band where all are equal."""
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
