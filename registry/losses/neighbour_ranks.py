"""RankEncoder's loss: cosines follow how alike a finished encoder's neighbourhoods of two sentences are."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from registry import LOSSES, Tune, catalogue
from registry.losses.contrast import cosine_matrix
from registry.ranks import unit_ranks
from registry.types import DatasetName, Encoder, Loss, Sentences

LONGEST, AT_ONCE = 128, 64
"""Tokens that a sentence of the corpus is cut to; sentences encoded at a time."""


@LOSSES.register("neighbour_ranks")
class NeighbourRanks(Loss):
    """Fit cosines of the batch to the rank correlation of the sentences' neighbourhoods in a corpus.

    The mean over all pairs (i, j) with low ≤ r_ij ≤ high of (s(hᵢ,h⁺ⱼ) − r_ij)², 0 where there are none; s is the
    cosine, and r_ij Spearman's ρ of s(eᵢ,c) and s(eⱼ,c) over the sentences c of the corpus, e and c being vectors of a
    finished encoder. The corpus is encoded once, before the first step, as evaluation encodes.

    Shapes: anchor, positive (N, D); reference (N, D'), without gradient, D' of the finished encoder; result a scalar.

    Source: RankEncoder (Seonwoo et al. 2023; `simcse_rank_encoder/models.py`, methods/rankencoder.md). Doubtful: equal
    cosines have ranks by place in the code, their mean rank here (RE1); how large the corpus is (RE2, `limit`).

    Args:
        base: The finished encoder, that of the view `reference`.
        dataset: The corpus.
        split: Split of it.
        column: Column of it that holds the sentences.
        limit: Sentences of it, the first ones.
        low: Smallest correlation that is fitted.
        high: Largest one; below 1 it leaves out a sentence's pair with itself.
    """

    steering: ClassVar[frozenset[str]] = frozenset({"reference"})

    def __init__(
        self,
        base: Encoder,
        dataset: DatasetName,
        split: str = "train",
        column: str = "text",
        limit: Annotated[int, Field(ge=2), Tune(1000, 100_000, log=True)] = 10_000,
        low: Annotated[float, Field(ge=-1, le=1), Tune(0.0, 0.9)] = 0.5,
        high: Annotated[float, Field(ge=-1, le=1)] = 0.9999,
    ) -> None:
        super().__init__()
        self._base = (base,)  # in a tuple: not a sub-module
        self.dataset, self.split, self.column, self.limit = dataset, split, column, limit
        self.low, self.high = low, high
        catalogue.locate(dataset, split).require((column,))
        self._corpus: Tensor | None = None

    def forward(self, anchor: Sentences, positive: Sentences, reference: Sentences) -> Tensor:
        """Return the loss of the batch."""
        if self._corpus is None:
            self._corpus = self._encoded(reference.device).to(reference.dtype)
        ranks = unit_ranks(cosine_matrix(reference.detach(), self._corpus))
        wanted = (ranks @ ranks.T).clamp(-1, 1)  # a sentence with itself is 1, and not a rounding above
        fitted = ((wanted >= self.low) & (wanted <= self.high)).to(wanted.dtype)
        errors = (cosine_matrix(anchor, positive) - wanted).square() * fitted
        return errors.sum() / fitted.sum().clamp(min=1)

    def _encoded(self, device: torch.device) -> Tensor:
        """Return (C, D') vectors of the corpus."""
        base = self._base[0]
        texts = [row[self.column] for row in islice(catalogue.open_text(self.dataset, self.split), self.limit)]
        longest = min(LONGEST, base.max_length or LONGEST)
        parts = [texts[start : start + AT_ONCE] for start in range(0, len(texts), AT_ONCE)]
        batches = (base.vocabulary.pad(base.vocabulary.ids(part, longest)) for part in parts)
        return torch.cat([base.represent(tokens.to(device)) for tokens in batches])
