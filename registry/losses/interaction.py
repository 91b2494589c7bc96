"""ConIsI's second objective: tell a sentence read with itself from a sentence read with another."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, softplus

from registry import LOSSES
from registry.types import Encoder, Loss, Sentences


@LOSSES.register("interaction")
class Interaction(Loss):
    """Score a sentence paired with itself above the same sentence paired with a different one.

    r = W₃h + b₃,  ℓᵢ = −log( e^{rᵢʸ} / (e^{rᵢʸ} + e^{rᵢᶻ}) ) = log(1 + e^{rᵢᶻ − rᵢʸ}), the mean over i. Vectors are not
    normalised, there is no temperature, and gradient reaches both pairs.

    Args:
        encoder: Whose sentence vectors are read: their width is W₃'s.
        head: What W₃ gives: "scalar" one score a pair, whose b₃ cancels; "elementwise" D scores, ℓ in each and their
            mean; "two_class" two logits, and the cross-entropy of "same" and "different", averaged over the 2N pairs.

    Shapes: same, different (N, D); result a scalar.

    Source: ConIsI (eq. 6 to 9; W₂ and BN₂, shared with the contrastive objective, are the encoder's head
    `batch_norm_elu`). Doubtful and settled in methods/conisi.md: eq. 7 makes r D wide, eq. 8 needs a scalar, and the
    text speaks of binary classification (C1 → `head`).
    """

    def __init__(self, encoder: Encoder, head: Literal["scalar", "elementwise", "two_class"] = "scalar") -> None:
        super().__init__()
        self.head = head
        self.linear = nn.Linear(encoder.dim, {"scalar": 1, "elementwise": encoder.dim, "two_class": 2}[head])
        nn.init.normal_(self.linear.weight, std=0.02)
        nn.init.zeros_(self.linear.bias)

    def forward(self, same: Sentences, different: Sentences) -> Tensor:
        """Return the loss of the batch."""
        same, different = self.linear(same), self.linear(different)
        if self.head != "two_class":
            return softplus(different - same).mean()
        labels = torch.arange(2, device=same.device).repeat_interleave(len(same))
        return cross_entropy(torch.cat([different, same]), labels)
