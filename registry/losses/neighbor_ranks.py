"""RankEncoder's loss: fit cosines to the similarity of the sentences' neighborhoods in a corpus."""

from __future__ import annotations

from itertools import islice
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from registry import LOSSES, Tune
from registry.losses.contrast import cosine_matrix
from registry.ranks import unit_ranks
from registry.resources import catalog
from registry.types import DatasetName, Encoder, Loss, Sentences

LONGEST, AT_ONCE = 512, 64
"""Maximum number of tokens of a corpus sentence if the encoder has no limit, and number of sentences per batch."""


@LOSSES.register("neighbor_ranks")
class NeighborRanks(Loss):
    """Fit cosines of the batch to the rank correlation of the sentences' neighborhoods in a corpus.

    ℓ = mean over all pairs (i, j) with low ≤ r_ij ≤ high of (s(hᵢ,h⁺ⱼ) − r_ij)², or 0 without such pairs,
    with s the cosine and r_ij Spearman's ρ of s(eᵢ,c) and s(eⱼ,c) over the sentences c of the corpus. e and c are
    embeddings of a finished encoder, which encodes the corpus once, in evaluation mode, before the first step.

    Shapes: anchor, positive (N, D); reference (N, D'), without gradient, D' of the finished encoder; result a scalar.

    Source: RankEncoder (Seonwoo et al. 2023; `simcse_rank_encoder/models.py`, methods/rankencoder.md). Doubtful: equal
    cosines have ranks by position in the code, their mean rank in this implementation (RE1); the size of the corpus
    (RE2, `limit`).

    Args:
        base: Finished encoder, which also encodes the view `reference`.
        dataset: Data set of the corpus.
        split: Split of the data set.
        column: Column with the sentences.
        limit: Number of sentences, from the first one.
        low: Smallest rank correlation to fit.
        high: Largest rank correlation to fit. A value below 1 excludes a sentence's pair with itself.

    Example:
        [encoders.base]
        name = "transformer"
        model = "mini_en"
        pooling = "mean"
        freeze = ["embeddings", "encoder"]

        [views.reference]
        encoder = "base"

        [losses.neighbor_ranks]
        weight = 0.05
        base = "base"
        dataset = "tatoeba_open"
        limit = 2000

        >>> import torch
        >>> from registry import ENCODERS, LOSSES
        >>> base = ENCODERS["transformer"].build({"model": "mini_en", "pooling": "mean"}).eval()
        >>> values = {"base": "base", "dataset": "tatoeba_open", "limit": 20, "low": -1.0, "high": 1.0}
        >>> loss = LOSSES["neighbor_ranks"].build(values, {"base": base})
        >>> tokens = base.vocabulary.pad(base.vocabulary.ids(["a red house", "two dogs run"], 16))
        >>> vectors = base.encode_for_eval(tokens)
        >>> views = torch.eye(2)  # cosine 0 for two sentences whose neighborhoods have the rank correlation r: r²/2
        >>> round(loss(views, views, vectors).item(), 2)
        0.32
    """

    steering: frozenset[str] = frozenset({"reference"})

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
        catalog.locate(dataset, split).require((column,))
        self._corpus: Tensor | None = None

    def forward(self, anchor: Sentences, positive: Sentences, reference: Sentences) -> Tensor:
        """Return the loss of the batch."""
        if self._corpus is None:
            self._corpus = self._encoded(reference.device).to(reference.dtype)
        ranks = unit_ranks(cosine_matrix(reference.detach(), self._corpus))
        targets = (ranks @ ranks.T).clamp(-1, 1)  # rounding can exceed 1 for a sentence with itself
        fitted = ((targets >= self.low) & (targets <= self.high)).to(targets.dtype)
        errors = (cosine_matrix(anchor, positive) - targets).square() * fitted
        return errors.sum() / fitted.sum().clamp(min=1)

    def _encoded(self, device: torch.device) -> Tensor:
        """Return (C, D') embeddings of the corpus."""
        base = self._base[0]
        texts = [row[self.column] for row in islice(catalog.open_text(self.dataset, self.split), self.limit)]
        longest = base.max_length or LONGEST
        parts = [texts[start : start + AT_ONCE] for start in range(0, len(texts), AT_ONCE)]
        batches = (base.vocabulary.pad(base.vocabulary.ids(part, longest)) for part in parts)
        return torch.cat([base.encode_for_eval(tokens.to(device)) for tokens in batches])
