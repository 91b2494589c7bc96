"""The singular values of the embeddings: how many directions a model uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from registry import EVALUATORS
from registry.evaluators.pairs import Counted, PairEvaluator, pair_vectors, unit
from registry.types import DatasetName, Encode

CHUNK = 4096
"""Rows reduced at a time."""


@EVALUATORS.register("singular_values")
class SingularValues(PairEvaluator):
    """Measure by its singular values how many directions the matrix of sentence embeddings uses.

    With σ₁ ≥ … ≥ σ_D the singular values of the matrix whose rows are the sentences, and pₖ = σₖ / Σσ:
    effective_rank = exp(−Σ pₖ·log pₖ), between 1 and D; largest_share = p₁. A matrix of zeros has 0 and 0.
    The figure's series "singular_values" is σₖ/σ₁.

    Computed in double precision from the triangle R of a QR decomposition, chunk by chunk: R has the matrix's singular
    values, and unlike a Gram matrix keeps those far below the largest.

    Shapes: m sentences → (m, D) → D values; fewer distinct sentences than D give as many as there are.

    Source: MoCoSE (2022, Figure 6) for the spectrum on STS-B; Roy and Vetterli 2007 for the effective rank.
    Doubtful: the figure's matrix is not described further. Raw vectors here, uncentred, of every occurrence of a
    sentence on either side (`normalise`, `centre`, `sentences`).

    Args:
        dataset: Name in the data catalogue, scored pairs; scores are not read.
        split: Split of it; "all" joins its splits.
        normalise: Bring each vector to length 1 first.
        centre: Subtract the mean vector, after `normalise`: without it, a common direction of all sentences is counted.
        sentences: Every occurrence is a row, or each distinct sentence once.
    """

    metric: ClassVar[str] = "effective_rank"
    metrics: ClassVar[tuple[str, ...]] = ("effective_rank", "largest_share")
    suites: ClassVar[Mapping[str, tuple[str, ...]]] = {"geometry": ("singular_values",), "all": ("singular_values",)}

    def __init__(
        self,
        dataset: DatasetName = "stsb",
        split: str = "all",
        normalise: bool = False,
        centre: bool = False,
        sentences: Counted = "occurrences",
    ) -> None:
        self.dataset, self.split, self.normalise, self.centre = dataset, split, normalise, centre
        self.sentences: Counted = sentences
        self._series: Mapping[str, Sequence[float]] = {}

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Return effective rank and the largest value's share of the sum."""
        made = pair_vectors(self.pairs(), encode)
        rows = unit(made.vectors) if self.normalise else made.vectors
        values = spectrum(rows, made.counts(self.sentences), self.centre)
        largest = float(values[0])
        self._series = {"singular_values": (values / largest if largest > 0 else values).tolist()}
        share = largest / float(values.sum()) if largest > 0 else 0.0
        return {"effective_rank": effective_rank(values), "largest_share": share}

    def series(self) -> Mapping[str, Sequence[float]]:
        """Return "singular_values", the largest 1."""
        return self._series


def spectrum(rows: Tensor, counts: Tensor, centre: bool, chunk: int = CHUNK) -> Tensor:
    """Return the singular values, largest first, of the matrix that holds row i `counts[i]` times.

    Args:
        rows: (m, D) double.
        counts: (m,) double.
        centre: Subtract the mean of the repeated rows.
        chunk: Rows reduced at a time.
    """
    if centre:
        rows = rows - (counts @ rows) / counts.sum()
    # A row that stands n times adds as much to the Gram matrix as √n times the row.
    weighted = rows * counts.sqrt().unsqueeze(1)
    triangle = rows.new_zeros(0, rows.shape[1])
    for start in range(0, len(rows), chunk):
        triangle = torch.linalg.qr(torch.cat([triangle, weighted[start : start + chunk]]), mode="r").R
    found: Tensor = torch.linalg.svdvals(triangle)
    return found


def effective_rank(values: Tensor) -> float:
    """Return exp of the entropy of singular values brought to sum 1; 0 where all are 0."""
    total = float(values.sum())
    if total == 0:
        return 0.0
    return float(torch.special.entr(values / total).sum().exp())
