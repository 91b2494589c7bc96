"""IS-CSE's InfoNCE with positives smoothed by their nearest neighbors."""

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
    """Select each anchor's positive among the batch's positives, each averaged with its nearest neighbors by attention.

    ℓᵢ = −log( e^{s(hᵢ,h*ᵢ)/τ} / Σⱼ e^{s(hᵢ,h*ⱼ)/τ} ), averaged over i,
    with s the cosine and h*ᵢ = Σₘ aᵢₘ vᵢₘ, where vᵢ₀ = ẑᵢ is the positive at unit length, vᵢ₁ … vᵢₖ are its K nearest
    neighbors in the buffer and a = softmax(ẑᵢ·vᵢₘ/t). The buffer contains the newest `buffer` queue entries and the
    positives of this batch, all detached: gradient flows only through ẑᵢ. A sentence is never its own neighbor, an
    entry of weight 0 is excluded, and other weights multiply e^{ẑ·v/t}. The loss and its gradient are 0 until there are
    `buffer` entries.

    Shapes: anchor, positive (N, D); negatives (Q, D) and (Q,), the oldest first as in queues; result a scalar.

    Source: IS-CSE (He et al. 2023, `simcse/models.py`, find_neighbors_and_aggregation, methods/is_cse.md). Doubtful:
    the code drops the nearest entry, which is the sentence itself in this batch (IC1); groups by PDDP, the code's
    alternative to nearest neighbors, are not implemented (IC5).

    Args:
        temperature: Divisor τ of the cosines.
        neighbors: Number K of neighbors, or fewer if the buffer has fewer entries.
        attention_temperature: Divisor t of the inner products in the attention.
        buffer: Number of entries in which to search for neighbors. Use a queue of this length.

    Examples:
        >>> import torch
        >>> from registry.losses.smoothed_info_nce import SmoothedInfoNCE
        >>> from registry.types import Negatives
        >>> views = torch.eye(3)
        >>> loss = SmoothedInfoNCE(temperature=1.0, neighbors=2, buffer=3)
        >>> round(loss(views, views, Negatives.none(views)).item(), 4)
        0.9097
    """

    def __init__(
        self,
        temperature: Annotated[float, Field(gt=0), Tune(0.01, 0.5, log=True)] = 0.05,
        neighbors: Annotated[int, Field(gt=0), Tune(1, 64, log=True)] = 16,
        attention_temperature: Annotated[float, Field(gt=0), Tune(0.05, 4.0, log=True)] = 2.0,
        buffer: Annotated[int, Field(gt=0), Tune(128, 4096, log=True)] = 1024,
    ) -> None:
        super().__init__()
        self.temperature, self.neighbors = temperature, neighbors
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
        """Return a warning if the buffer stays below its length."""
        if self.unchanged < IDLE:
            return []
        self.unchanged = -(2**62)  # warned once
        return [
            f"smoothed_info_nce is always 0: the queue ({self.held} entries) and the batch have fewer than "
            f"buffer = {self.buffer} entries → use a longer queue, or a smaller buffer"
        ]

    def _smoothed(self, own: Tensor, vectors: Tensor, log_weights: Tensor) -> Tensor:
        """Return (N, D) unit vectors averaged with their nearest neighbors in the batch and the queue."""
        entries = torch.cat([vectors.to(own.dtype), own.detach()])
        weights = F.pad(log_weights.to(own.dtype), (0, len(own)))
        near = own.detach() @ entries.T
        itself = torch.arange(len(vectors), len(entries), device=own.device).unsqueeze(1)
        near = near.masked_fill(weights == -torch.inf, -torch.inf).scatter(1, itself, -torch.inf)
        chosen = near.topk(min(self.neighbors, len(entries) - 1), dim=1)
        values = torch.cat([own.unsqueeze(1), entries[chosen.indices]], dim=1)
        scores = (values @ own.unsqueeze(2)).squeeze(2) / self.attention_temperature
        # topk returns excluded entries if there are too few others. Their share is 0.
        share = torch.where(chosen.values == -torch.inf, -torch.inf, weights[chosen.indices])
        attention = (scores + F.pad(share, (1, 0))).softmax(dim=1)
        return (attention.unsqueeze(1) @ values).squeeze(1)
