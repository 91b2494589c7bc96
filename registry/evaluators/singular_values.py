"""Singular values of the embeddings: the number of directions that a model uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from registry import EVALUATORS
from registry.evaluators.pairs import Counted, PairEvaluator, pair_vectors, unit
from registry.types import DatasetName, Encode

CHUNK = 4096
"""Number of rows of a chunk."""


@EVALUATORS.register("singular_values")
class SingularValues(PairEvaluator):
    """Measure the number of directions that the embeddings use, by the singular values of their matrix.

    With the singular values σ₁ ≥ … ≥ σ_D of the matrix of embeddings, and pₖ = σₖ / Σσ:
    effective_rank = exp(−Σ pₖ·log pₖ), between 1 and D; largest_share = p₁. For a matrix of zeros both are 0.
    The series "singular_values" for figures is σₖ/σ₁.

    Computed in double precision from the triangle R of a QR decomposition in chunks. R has the singular values of the
    matrix and, unlike a Gram matrix, keeps the precision of small ones.

    Shapes: m sentences → (m, D) → D values, or fewer if there are fewer distinct sentences.

    Source: MoCoSE (2022, Figure 6) for the spectrum on STS-B; Roy and Vetterli 2007 for the effective rank.
    Doubtful: the matrix of the figure is not specified further. Here it contains the raw embeddings, not centered, of
    every occurrence of a sentence on either side (`normalize`, `center`, `sentences`).

    Args:
        dataset: Data set of scored pairs in the catalog. Scores are not used.
        split: Split of the data set. "all" joins its splits.
        normalize: Scale each embedding to length 1.
        center: Subtract the mean embedding after `normalize`. Otherwise a common direction of all sentences counts.
        sentences: Rows of the matrix: all "occurrences" of a sentence, or only "distinct" sentences.

    Example:
        [evaluators.spectrum]
        name = "singular_values"
        dataset = "stsb_open"
        split = "dev"
    """

    metric: ClassVar[str] = "effective_rank"
    metrics: ClassVar[tuple[str, ...]] = ("effective_rank", "largest_share")
    suites: ClassVar[Mapping[str, tuple[str, ...]]] = {"geometry": ("singular_values",), "all": ("singular_values",)}

    def __init__(
        self,
        dataset: DatasetName = "stsb",
        split: str = "all",
        normalize: bool = False,
        center: bool = False,
        sentences: Counted = "occurrences",
    ) -> None:
        self.dataset, self.split, self.normalize, self.center = dataset, split, normalize, center
        self.sentences: Counted = sentences
        self._series: Mapping[str, Sequence[float]] = {}

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Return the effective rank and the share of the largest value."""
        made = pair_vectors(self.pairs(), encode)
        rows = unit(made.vectors) if self.normalize else made.vectors
        values = spectrum(rows, made.counts(self.sentences), self.center)
        largest = float(values[0])
        self._series = {"singular_values": (values / largest if largest > 0 else values).tolist()}
        share = largest / float(values.sum()) if largest > 0 else 0.0
        return {"effective_rank": effective_rank(values), "largest_share": share}

    def series(self) -> Mapping[str, Sequence[float]]:
        """Return "singular_values", divided by the largest one."""
        return self._series


def spectrum(rows: Tensor, counts: Tensor, center: bool, chunk: int = CHUNK) -> Tensor:
    """Return the singular values, largest first, of the matrix with row i repeated `counts[i]` times."""
    if center:
        rows = rows - (counts @ rows) / counts.sum()
    # A row repeated n times adds as much to the Gram matrix as √n times the row.
    weighted = rows * counts.sqrt().unsqueeze(1)
    triangle = rows.new_zeros(0, rows.shape[1])
    for start in range(0, len(rows), chunk):
        triangle = torch.linalg.qr(torch.cat([triangle, weighted[start : start + chunk]]), mode="r").R
    found: Tensor = torch.linalg.svdvals(triangle)
    return found


def effective_rank(values: Tensor) -> float:
    """Return the exponential of the entropy of normalized singular values, or 0 if all are 0."""
    total = float(values.sum())
    if total == 0:
        return 0.0
    return float(torch.special.entr(values / total).sum().exp())
