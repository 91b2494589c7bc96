"""InfoNCE against positives that are smoothed by their nearest neighbours, as in IS-CSE."""

from __future__ import annotations

from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from registry import LOSSES, Tune
from registry.losses.contrast import IDLE, cosine_matrix, unit
from registry.types import Loss, Negatives, Sentences


@LOSSES.register("smoothed_info_nce")
class SmoothedInfoNCE(Loss):
    """Pick each anchor's positive among the batch's, each averaged with its nearest neighbours by attention.

    ℓᵢ = −log( e^{s(hᵢ,h*ᵢ)/τ} / Σⱼ e^{s(hᵢ,h*ⱼ)/τ} ), the mean over i, with s the cosine and h*ᵢ = Σₘ aᵢₘ vᵢₘ, where
    vᵢ₀ = ẑᵢ is the positive at unit length, vᵢ₁ … vᵢₖ are its K nearest of the buffer and a = softmax(ẑᵢ·vᵢₘ/t).
    The buffer is the newest `buffer` of the queue's entries and the positives of this batch, all detached: gradient
    goes through ẑᵢ alone. A sentence is no neighbour of itself, and an entry of weight 0 is nobody's; other weights
    multiply e^{ẑ·v/t}. As long as there are fewer than `buffer` entries, the loss and its gradient are 0.

    Shapes: anchor, positive (N, D); negatives (Q, D) and (Q,), the oldest first as queues serve them; result a scalar.

    Source: IS-CSE (He et al. 2023, `simcse/models.py`, find_neighbors_and_aggregation, methods/is_cse.md). Doubtful:
    the code drops the nearest entry, which is the sentence itself in this batch (IC1); groups by PDDP instead of
    nearest neighbours, which the code offers too, are not here (IC5).

    Args:
        temperature: τ, divides the cosines.
        neighbours: K; fewer where the buffer has fewer.
        attention_temperature: t, divides the inner products of unit vectors that become attention.
        buffer: Entries that neighbours are sought among; a queue of this length fills it.
    """

    def __init__(
        self,
        temperature: Annotated[float, Field(gt=0), Tune(0.01, 0.5, log=True)] = 0.05,
        neighbours: Annotated[int, Field(gt=0), Tune(1, 64, log=True)] = 16,
        attention_temperature: Annotated[float, Field(gt=0), Tune(0.05, 4.0, log=True)] = 2.0,
        buffer: Annotated[int, Field(gt=0), Tune(128, 4096, log=True)] = 1024,
    ) -> None:
        super().__init__()
        self.temperature, self.neighbours = temperature, neighbours
        self.attention_temperature, self.buffer = attention_temperature, buffer
        self.held, self.unchanged = -1, 0

    def forward(self, anchor: Sentences, positive: Sentences, negatives: Negatives) -> Tensor:
        """Return the loss of the batch."""
        held = len(negatives.vectors)
        if held + len(positive) < self.buffer:
            self.unchanged = self.unchanged + 1 if held == self.held else min(self.unchanged, 0)
            self.held = held
            return 0 * (anchor.sum() + positive.sum())
        oldest = held - max(0, self.buffer - len(positive))
        with torch.autocast(positive.device.type, enabled=False):
            smoothed = self._smoothed(unit(positive), negatives.vectors[oldest:], negatives.log_weights[oldest:])
        logits = cosine_matrix(anchor, smoothed) / self.temperature
        return F.cross_entropy(logits, torch.arange(len(logits), device=logits.device))

    def notices(self) -> list[str]:
        """Return a warning if the buffer stays short of its length."""
        if self.unchanged < IDLE:
            return []
        self.unchanged = -(2**62)  # warned once
        return [
            f"smoothed_info_nce waits for {self.buffer} entries, and a queue of {self.held} and the batch are fewer: "
            "it is 0 and teaches nothing; give the recipe a longer queue, or the loss a smaller buffer"
        ]

    def _smoothed(self, own: Tensor, vectors: Tensor, log_weights: Tensor) -> Tensor:
        """Return (N, D): unit vectors (N, D) averaged with their nearest of those and of a queue's."""
        entries = torch.cat([vectors.to(own.dtype), own.detach()])
        weights = F.pad(log_weights.to(own.dtype), (0, len(own)))
        near = own.detach() @ entries.T
        itself = torch.arange(len(vectors), len(entries), device=own.device).unsqueeze(1)
        near = near.masked_fill(weights == -torch.inf, -torch.inf).scatter(1, itself, -torch.inf)
        chosen = near.topk(min(self.neighbours, len(entries) - 1), dim=1)
        values = torch.cat([own.unsqueeze(1), entries[chosen.indices]], dim=1)
        scores = (values @ own.unsqueeze(2)).squeeze(2) / self.attention_temperature
        # An entry that may not be chosen is, where there are no others: it has no share then.
        share = torch.where(chosen.values == -torch.inf, -torch.inf, weights[chosen.indices])
        attention = (scores + F.pad(share, (1, 0))).softmax(dim=1)
        return (attention.unsqueeze(1) @ values).squeeze(1)
