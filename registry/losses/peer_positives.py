"""PCL's loss of one network: all views of a sentence are positives of its first one."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from registry import LOSSES
from registry.losses.contrast import cosine_matrix, cosine_rows
from registry.types import Loss, Sentences, Tune

Temperature = Annotated[float, Field(gt=0), Tune(0.01, 0.5, log=True)]


@LOSSES.register("peer_positives")
class PeerPositives(Loss):
    """Tell a sentence's other views from the other sentences of the batch, by one probability a column.

    pᵢ = softmax( s(aᵢ, bᵢ₁)/τ, …, s(aᵢ, bᵢ_K)/τ, s(aᵢ, aⱼ)/τ for all j ≠ i ), with a the anchors, b their K positives
    and s the cosine; ℓ is the binary cross-entropy of every cell, 1 for a positive and 0 for another sentence, the mean
    over all N·(K + N − 1) of them: of σ(p) as released, or of p itself.

    Shapes: anchor (N, D), K positives (N, D) → a scalar.

    Source: PCL (Wu et al. 2022, section 3.2) and its code. Doubtful: the code takes the sigmoid of what is a
    probability already, so that no cell can be right (`form`, methods/pcl.md PL1).

    Args:
        temperature: τ.
        form: "released": of σ(p); "bce": of p.
    """

    def __init__(self, temperature: Temperature = 0.05, form: Literal["released", "bce"] = "released") -> None:
        super().__init__()
        self.temperature, self.form = temperature, form

    def forward(self, anchor: Sentences, positives: tuple[Sentences, ...]) -> Tensor:
        """Return the loss of the batch."""
        found = peer_logits(anchor, positives, anchor, self.temperature).softmax(dim=1)
        wanted = torch.zeros_like(found)
        wanted[:, : len(positives)] = 1
        if self.form == "bce":
            return F.binary_cross_entropy(found, wanted)
        return F.binary_cross_entropy_with_logits(found, wanted)


def peer_logits(anchor: Tensor, positives: tuple[Tensor, ...], others: Tensor, temperature: float) -> Tensor:
    """Return (N, K + N − 1) cosines by temperature: of each anchor with its K positives, then with the others' rows.

    Args:
        anchor: (N, D).
        positives: K times (N, D); row i belongs to anchor i.
        others: (N, D); row i is left out for anchor i.
        temperature: Divides the cosines.
    """
    own = torch.stack([cosine_rows(anchor, positive) for positive in positives], dim=1)
    among = cosine_matrix(anchor, others)
    count = len(among)
    # Row by row without the diagonal; picking by a mask would wait for a GPU.
    apart = among.flatten()[1:].view(count - 1, count + 1)[:, :-1].reshape(count, count - 1)
    return torch.cat([own, apart], dim=1) / temperature
