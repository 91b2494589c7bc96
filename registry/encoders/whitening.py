"""BERT-whitening: make the directions of sentence space equally wide."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from registry import ENCODERS
from registry.encoders.adjusted import BASE, Adjusted, Vectors
from registry.encoders.export import MODULES, append_dense
from registry.errors import CseError, RunFailedError
from registry.types import Tune


@ENCODERS.register("whitening")
class Whitening(Adjusted):
    """Give another encoder's vectors mean 0 and covariance I, and keep the widest directions.

    x' = (x − μ)·W[:, :k], W = U·diag(1/√s), where μ and C = U·diag(s)·Uᵀ are mean and covariance (divisor n − 1) of the
    vectors of unlabelled sentences, gathered in double precision chunk by chunk, so a corpus of any size fits. Vectors
    are not brought to unit length: cosines do it. A saved model is a plain encoder with one more dense layer.

    Shapes: (B, D) → (B, k).

    Source: Su et al. 2021 (arXiv 2103.15316), Algorithm 1; the repositories bojone/BERT-whitening and
    autoliuweijie/BERT-whitening-pytorch. Doubtful and settled in methods/whitening.md: what is fitted on (W1,
    `fit_on`), width (W2, `k`), directions without variance (W3, `eps`), layers (W4, the other encoder's pooling).

    Args:
        k: Directions kept; all if left out.
        eps: Directions narrower than this share of the widest one's variance count as that wide, so that those without
            any variance are not blown up; 0 divides by what is there, as published.
    """

    method: ClassVar[str] = "whitening"

    def __init__(
        self,
        k: Annotated[int, Field(ge=1), Tune(64, 768, step=64)] | None = None,
        eps: Annotated[float, Field(ge=0, lt=1), Tune(1e-8, 1e-2, log=True)] = 1e-6,
        **fitted_to: Any,
    ) -> None:
        super().__init__(**fitted_to)
        self.k, self.eps = k, eps
        self._dense: dict[str, Tensor] = {}

    def fit_vectors(self, vectors: Vectors) -> None:
        """Fit mean and covariance."""
        moments = Moments()
        for chunk in vectors():
            self._check(chunk)
            moments.add(chunk)
        if moments.count < 2:
            return
        weight, bias = whitening(moments.mean, moments.covariance(), self.k or len(moments.mean), self.eps)
        self.restore({"weight": weight.float(), "bias": bias.float()})

    def adjust(self, vectors: Tensor) -> Tensor:
        """Return (B, k)."""
        return F.linear(vectors, *(self._dense[name].to(vectors.device) for name in ("weight", "bias")))

    def tensors(self) -> Mapping[str, Tensor]:
        """Return weight (k, D) and bias (k,) of the one layer that whitening is."""
        return self._dense

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Put weight and bias back."""
        self._dense = dict(tensors)
        self.dim = len(self._dense["bias"])

    def _check(self, vectors: Tensor) -> None:
        width = vectors.shape[1]
        if self.k is not None and self.k > width:
            raise CseError(f"whitening: k = {self.k}, but the vectors are {width} wide", f"use k ≤ {width}")
        if not vectors.isfinite().all():
            raise RunFailedError("whitening: the encoder gives vectors that are not finite", "look at its training")

    def write(self, draft: Path) -> None:
        """Put the layer behind the other encoder's modules, where it has such."""
        if not (self.fitted and (draft / BASE / MODULES).is_file()):
            super().write(draft)
            return
        append_dense(draft / BASE, self._dense["weight"], self._dense["bias"], self.note)
        for child in (draft / BASE).iterdir():
            child.rename(draft / child.name)
        (draft / BASE).rmdir()


def whitening(mean: Tensor, covariance: Tensor, k: int, eps: float) -> tuple[Tensor, Tensor]:
    """Return weight (k, D) and bias (k,) of x' = weight·x + bias.

    Raises:
        CseError: There is a direction without variance, and `eps` is 0.
    """
    directions, variances, _ = torch.linalg.svd(covariance)
    variances = variances.clamp(min=eps * float(variances[0]))[:k]
    if float(variances[-1]) <= 0:
        raise CseError(
            "whitening: the sentences fitted to leave a direction without variance, and eps = 0 divides by it",
            "fit to more sentences than the vectors are wide, or set eps = 1e-6",
        )
    weight = (directions[:, :k] / variances.sqrt()).T.contiguous()
    return weight, -weight @ mean


class Moments:
    """Mean and covariance in double precision, exact however the vectors are cut into chunks (Chan et al. 1983)."""

    def __init__(self) -> None:
        self.count = 0
        self.mean = torch.zeros(0, dtype=torch.float64)
        self._scatter = torch.zeros(0, dtype=torch.float64)

    def add(self, vectors: Tensor) -> None:
        """Take in (n, D) more vectors."""
        rows = vectors.double()
        mean = rows.mean(dim=0)
        centred = rows - mean
        scatter = centred.T @ centred
        if self.count == 0:
            self.count, self.mean, self._scatter = len(rows), mean, scatter
            return
        total = self.count + len(rows)
        gap = mean - self.mean
        self._scatter += scatter + torch.outer(gap, gap) * (self.count * len(rows) / total)
        self.mean = self.mean + gap * (len(rows) / total)
        self.count = total

    def covariance(self) -> Tensor:
        """Return (D, D), divided by one less than the number of vectors."""
        return self._scatter / (self.count - 1)
