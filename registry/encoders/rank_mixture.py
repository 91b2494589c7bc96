"""RankEncoder's inference: a sentence's neighbourhood in a corpus beside its vector."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from registry import ENCODERS, Tune
from registry.encoders.adjusted import Adjusted, Vectors
from registry.ranks import unit_ranks, unit_rows


@ENCODERS.register("rank_mixture")
class RankMixture(Adjusted):
    """Append to another encoder's vector the order in which the sentences of a corpus lie around it.

    x' = [√λ·x/‖x‖ | √(1 − λ)·r], where r are the ranks of the cosines of x with the corpus's vectors, less their mean
    and of length 1 (equal cosines share their mean rank). The cosine of two such vectors is λ·s + (1 − λ)·ρ, with s the
    cosine and ρ Spearman's correlation of the two orders. The corpus is encoded anew for each state that is scored.

    Shapes: (B, D) → (B, D + C), C sentences of the corpus.

    Source: RankEncoder (Seonwoo et al. 2023, eq. 7), which is a score of two sentences there and a vector here
    (methods/rankencoder.md). Doubtful: how large the corpus is (RE2, `limit`).

    Args:
        share: λ, of the encoder's own cosine.
    """

    method: ClassVar[str] = "rank_mixture"
    continuous = False  # rounding lets two sentences that are about as near change places

    def __init__(self, share: Annotated[float, Field(ge=0, le=1), Tune(0.5, 1.0)] = 0.9, **fitted_to: Any) -> None:
        super().__init__(**fitted_to)
        self.share = share
        self._corpus: dict[str, Tensor] = {}

    def fit_vectors(self, vectors: Vectors) -> None:
        """Keep the corpus's vectors."""
        chunks = [unit_rows(chunk) for chunk in vectors()]
        if sum(map(len, chunks)) >= 2:
            self.restore({"corpus": torch.cat(chunks)})

    def adjust(self, vectors: Tensor) -> Tensor:
        """Return (B, D + C)."""
        own = unit_rows(vectors)
        ranks = unit_ranks(own @ self._corpus["corpus"].to(own.device).T)
        return torch.cat([self.share**0.5 * own, (1 - self.share) ** 0.5 * ranks], dim=1)

    def tensors(self) -> Mapping[str, Tensor]:
        """Return the corpus's vectors (C, D), of length 1."""
        return self._corpus

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Put them back."""
        self._corpus = dict(tensors)
        self.dim = self.of.dim + len(self._corpus["corpus"])

    def settings(self) -> dict[str, Any]:
        """Return λ."""
        return {"share": self.share}
