"""PCL's loss within one network: all other views of a sentence are positives of its first view."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from registry import LOSSES
from registry.losses.contrast import cosine_matrix, cosine_rows, without_diagonal
from registry.types import Loss, Sentences, Tune

Temperature = Annotated[float, Field(gt=0), Tune(0.01, 0.5, log=True)]


@LOSSES.register("peer_positives")
class PeerPositives(Loss):
    """Distinguish a sentence's other views from the other sentences of the batch, with one probability per column.

    pᵢ = softmax( s(aᵢ, bᵢ₁)/τ, …, s(aᵢ, bᵢ_K)/τ, s(aᵢ, aⱼ)/τ for all j ≠ i ),
    with a the anchors, b their K positives and s the cosine. ℓ is the mean binary cross-entropy over all N·(K + N − 1)
    cells, with label 1 for a positive and 0 for another sentence, of σ(p) as released, or of p itself.

    Shapes: anchor (N, D), K positives (N, D) → a scalar.

    Source: PCL (Wu et al. 2022, section 3.2) and its code. Doubtful: the code takes the sigmoid of a value that is
    already a probability, so that no cell can reach its label (`form`, methods/pcl.md PL1).

    Args:
        temperature: Divisor τ of the cosines.
        form: "released" for σ(p), "bce" for p.

    Examples:
        >>> import torch
        >>> from registry.losses.peer_positives import PeerPositives
        >>> views = torch.eye(3)
        >>> round(PeerPositives(temperature=1.0, form="bce")(views, (views,)).item(), 4)
        0.3426
    """

    def __init__(self, temperature: Temperature = 0.05, form: Literal["released", "bce"] = "released") -> None:
        super().__init__()
        self.temperature, self.form = temperature, form

    def forward(self, anchor: Sentences, positives: tuple[Sentences, ...]) -> Tensor:
        """Return the loss of the batch."""
        found = peer_logits(anchor, positives, anchor, self.temperature).softmax(dim=1)
        labels = torch.zeros_like(found)
        labels[:, : len(positives)] = 1
        if self.form == "bce":
            return F.binary_cross_entropy(found, labels)
        return F.binary_cross_entropy_with_logits(found, labels)


def peer_logits(anchor: Tensor, positives: tuple[Tensor, ...], others: Tensor, temperature: float) -> Tensor:
    """Return (N, K + N − 1) cosines / temperature: each anchor with its K positives, then with the rows of `others`.

    Args:
        anchor: (N, D).
        positives: K times (N, D). Row i belongs to anchor i.
        others: (N, D). Row i is excluded for anchor i.
        temperature: Divisor of the cosines.
    """
    own = torch.stack([cosine_rows(anchor, positive) for positive in positives], dim=1)
    return torch.cat([own, without_diagonal(cosine_matrix(anchor, others))], dim=1) / temperature
