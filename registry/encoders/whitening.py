"""Linear adjustments of sentence embeddings: their base class, and BERT-whitening."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from registry import ENCODERS
from registry.encoders.adjusted import BASE, Adjusted, Vectors
from registry.encoders.export import SETTINGS, append_dense
from registry.errors import CseError, RunFailedError
from registry.masking import Share
from registry.types import Tune


class LinearAdjustment(Adjusted):
    """Adjustment x' = Wx + b that follows from mean and covariance of the embeddings.

    An export is the other encoder with one more dense layer.
    """

    def __init__(self, **fitted_to: Any) -> None:
        super().__init__(**fitted_to)
        self._dense: dict[str, Tensor] = {}

    def fit_vectors(self, vectors: Vectors) -> None:
        """Fit to mean and covariance of all chunks."""
        moments = Moments()
        for chunk in vectors():
            self.check(chunk)
            moments.add(chunk)
        if moments.count < 2:
            return
        weight, bias = self.linear(moments)
        self.restore({"weight": weight.float(), "bias": bias.float()})

    def linear(self, moments: Moments) -> tuple[Tensor, Tensor]:
        """Return weight W (k, D) and bias b (k,)."""
        raise NotImplementedError

    def check(self, vectors: Tensor) -> None:
        """Raise `RunFailedError` if embeddings contain NaN or infinity."""
        if not vectors.isfinite().all():
            raise RunFailedError(
                f"{self.method}: the embeddings of the encoder contain NaN or infinity",
                "use another checkpoint, or train again with a lower learning rate",
                code="encoders.not_finite",
            )

    def adjust(self, vectors: Tensor) -> Tensor:
        """Return the (B, k) adjusted embeddings."""
        return F.linear(vectors, *(self._dense[name].to(vectors.device) for name in ("weight", "bias")))

    def tensors(self) -> Mapping[str, Tensor]:
        """Return weight (k, D) and bias (k,) of the linear map."""
        return self._dense

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Set weight and bias."""
        self._dense = dict(tensors)
        self.dim = len(self._dense["bias"])

    def write(self, draft: Path) -> None:
        """Add the layer to the other encoder's sentence-transformers modules, if it has any and can have a layer."""
        settings = json.loads((draft / BASE / SETTINGS).read_text(encoding="utf-8"))
        if not self.fitted or "format" in settings:
            super().write(draft)
            return
        self.prompts.write(draft / BASE)
        append_dense(draft / BASE, self._dense["weight"], self._dense["bias"], self.note)
        for child in (draft / BASE).iterdir():
            child.rename(draft / child.name)
        (draft / BASE).rmdir()


@ENCODERS.register("whitening")
class Whitening(LinearAdjustment):
    """Transform another encoder's embeddings to mean 0 and covariance I, and keep the k directions of most variance.

    x' = (x − β·μ)·W[:, :k], W = U·diag(s)^(−γ/2), where μ and C = U·diag(s)·Uᵀ are mean and covariance (divisor n − 1)
    of the embeddings of unlabeled sentences, accumulated in double precision for a corpus of any size. β is `center`
    and γ is `strength`: 1 and 1 whiten, 0 and 0 change no cosine. Embeddings are not normalized, because cosines do
    this. An export is the other encoder with one more dense layer.

    Shapes: (B, D) → (B, k).

    Source: Su et al. 2021 (arXiv 2103.15316), Algorithm 1; the repositories bojone/BERT-whitening and
    autoliuweijie/BERT-whitening-pytorch. β and γ are from a blog post by its first author in 2022. Doubtful and settled
    in methods/whitening.md: sentences of the fit (W1, `fit_on`), width (W2, `k`), directions without variance (W3,
    `eps`), layers (W4, the other encoder's pooling).

    Args:
        k: Number of directions. Default: all.
        eps: Minimum variance of a direction, as a fraction of the largest variance. Smaller variances are raised to it,
            which avoids a division by zero. 0 is the published method.
        center: Share β of the mean that is subtracted. Default: 1.
        strength: Share γ of the whitening: a variance s becomes s^(1 − γ). Default: 1.

    Example:
        [encoders.white]
        name = "whitening"
        of = "online"
        fit_on = "target"
        k = 256
    """

    method: ClassVar[str] = "whitening"

    def __init__(
        self,
        k: Annotated[int, Field(ge=1), Tune(64, 768, step=64)] | None = None,
        eps: Annotated[float, Field(ge=0, lt=1), Tune(1e-8, 1e-2, log=True)] = 1e-6,
        center: Share | None = None,
        strength: Share | None = None,
        **fitted_to: Any,
    ) -> None:
        super().__init__(**fitted_to)
        self.k, self.eps = k, eps
        self.center = 1.0 if center is None else center
        self.strength = 1.0 if strength is None else strength

    def linear(self, moments: Moments) -> tuple[Tensor, Tensor]:
        """Return weight and bias of the whitening."""
        mean, k = self.center * moments.mean, self.k or len(moments.mean)
        return whitening(mean, moments.covariance(), k, self.eps, self.strength)

    def check(self, vectors: Tensor) -> None:
        """Raise `RunFailedError` if embeddings contain NaN or infinity."""
        width = vectors.shape[1]
        if self.k is not None and self.k > width:
            raise CseError(
                f"whitening: k = {self.k} is larger than the width {width} of the embeddings",
                f"use k ≤ {width}",
                code="encoders.too_many_directions",
            )
        super().check(vectors)


def whitening(mean: Tensor, covariance: Tensor, k: int, eps: float, strength: float = 1.0) -> tuple[Tensor, Tensor]:
    """Return weight (k, D) and bias (k,) of x' = weight·x + bias."""
    directions, variances, _ = torch.linalg.svd(covariance)
    variances = variances.clamp(min=eps * float(variances[0]))[:k]
    if float(variances[-1]) <= 0:
        raise CseError(
            "whitening: eps = 0 divides by zero, because the embeddings have no variance in some direction",
            f"fit on more than {len(mean)} sentences, or set eps = 1e-6",
            code="encoders.no_variance",
        )
    weight = (directions[:, :k] / variances ** (strength / 2)).T.contiguous()
    return weight, -weight @ mean


def without_top(second_moment: Tensor, count: int) -> Tensor:
    """Return the projection I − U·Uᵀ (D, D), where U (D, count) are the first eigenvectors of a matrix (D, D)."""
    top: Tensor = torch.linalg.eigh(second_moment)[1][:, -count:]
    return torch.eye(len(second_moment), dtype=second_moment.dtype) - top @ top.T


class Moments:
    """Mean and covariance in double precision, independent of the chunks (Chan et al. 1983)."""

    def __init__(self) -> None:
        self.count = 0
        self.mean = torch.zeros(0, dtype=torch.float64)
        self._scatter = torch.zeros(0, dtype=torch.float64)

    def add(self, vectors: Tensor) -> None:
        """Add a chunk of vectors (n, D)."""
        rows = vectors.double()
        mean = rows.mean(dim=0)
        centered = rows - mean
        scatter = centered.T @ centered
        if self.count == 0:
            self.count, self.mean, self._scatter = len(rows), mean, scatter
            return
        total = self.count + len(rows)
        gap = mean - self.mean
        self._scatter += scatter + torch.outer(gap, gap) * (self.count * len(rows) / total)
        self.mean = self.mean + gap * (len(rows) / total)
        self.count = total

    def covariance(self) -> Tensor:
        """Return the covariance (D, D) with divisor n − 1."""
        return self._scatter / (self.count - 1)
