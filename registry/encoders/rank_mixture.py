"""Inference of RankEncoder: ranks of the neighbors in a corpus in addition to the embedding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from registry import ENCODERS, Tune
from registry.encoders.adjusted import Adjusted, Vectors
from registry.ranks import unit_ranks, unit_rows


@ENCODERS.register("rank_mixture")
class RankMixture(Adjusted):
    """Append the ranks of a sentence's similarities to a corpus to its embedding.

    x' = [√λ·x/‖x‖ | √(1 − λ)·r], where r are the ranks of the similarities of x with the corpus embeddings, minus their
    mean and scaled to length 1. Equal similarities get their mean rank. The cosine of two such vectors is λ·s +
    (1 − λ)·ρ, where s is the cosine of the embeddings and ρ Spearman's correlation of the ranks. The corpus is encoded
    again before each evaluation.

    Shapes: (B, D) → (B, D + C), where C is the number of corpus sentences.

    Source: RankEncoder (Seonwoo et al. 2023, eq. 7) and its code (yeonsw/RankEncoder @fbf762b,
    simcse_rank_encoder_inference.py:73-109). The paper's score of two sentences is a vector here
    (methods/rankencoder.md). Doubtful: size of the corpus (RE2, `limit`), length of its vectors (RE7, `similarity`).

    Args:
        share: Weight λ of the cosine of the embeddings.
        similarity: Similarity of x and the corpus embeddings: "inner_product", so that long corpus embeddings have
            higher ranks, or "cosine".

    Example:
        [encoders.ranked]
        name = "rank_mixture"
        of = "online"
        fit_on = "wiki1m"
        limit = 10000
    """

    method: ClassVar[str] = "rank_mixture"
    continuous = False  # rounding can swap the ranks of two nearly equal cosines

    def __init__(
        self,
        share: Annotated[float, Field(ge=0, le=1), Tune(0.5, 1.0)] = 0.9,
        similarity: Literal["inner_product", "cosine"] = "inner_product",
        **fitted_to: Any,
    ) -> None:
        super().__init__(**fitted_to)
        self.share, self.similarity = share, similarity
        self._corpus: dict[str, Tensor] = {}

    def fit_vectors(self, vectors: Vectors) -> None:
        """Store the embeddings of the corpus."""
        chunks = [unit_rows(chunk) if self.similarity == "cosine" else chunk for chunk in vectors()]
        if sum(map(len, chunks)) >= 2:
            self.restore({"corpus": torch.cat(chunks)})

    def adjust(self, vectors: Tensor) -> Tensor:
        """Return the (B, D + C) embeddings with ranks."""
        own = unit_rows(vectors)
        ranks = unit_ranks(own @ self._corpus["corpus"].to(own.device).T)
        return torch.cat([self.share**0.5 * own, (1 - self.share) ** 0.5 * ranks], dim=1)

    def tensors(self) -> Mapping[str, Tensor]:
        """Return the corpus embeddings (C, D), normalized to length 1 if `similarity` is "cosine"."""
        return self._corpus

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Set the corpus embeddings."""
        self._corpus = dict(tensors)
        self.dim = self.of.dim + len(self._corpus["corpus"])

    def settings(self) -> dict[str, Any]:
        """Return the weight λ."""
        return {"share": self.share}
