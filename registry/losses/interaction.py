"""ConIsI's second objective: distinguish a sentence paired with itself from a sentence paired with another one."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, softplus

from registry import LOSSES
from registry.types import Encoder, Loss, Sentences


@LOSSES.register("interaction")
class Interaction(Loss):
    """Rank a sentence paired with itself above the same sentence paired with a different one.

    r = W₃h + b₃,  ℓᵢ = −log( e^{rᵢʸ} / (e^{rᵢʸ} + e^{rᵢᶻ}) ) = log(1 + e^{rᵢᶻ − rᵢʸ}),
    averaged over i, with y the pair of equal sentences and z the pair of different ones. Embeddings are not normalized,
    the loss has no temperature, and gradient reaches both pairs.

    Shapes: same, different (N, D); result a scalar.

    Source: ConIsI (eq. 6 to 9; W₂ and BN₂, shared with the contrastive objective, are the encoder's head
    `batch_norm_elu`). Doubtful and settled in methods/conisi.md: eq. 7 makes r D wide, eq. 8 needs a scalar, and the
    text describes binary classification (C1 → `head`).

    Args:
        encoder: Encoder of the views. Its embedding width is the input width of W₃.
        head: Output of W₃: "scalar" is one score per pair, and b₃ cancels. "elementwise" is D scores, with the mean of
            ℓ over them. "two_class" is two logits, with the cross-entropy of "same" and "different" averaged over the
            2N pairs.

    Example:
        [views.repeated]
        augment = [{ name = "pair", partner = "self" }]

        [views.composed]
        augment = [{ name = "pair", partner = "other" }]

        [losses.interaction]
        weight = 0.1
        views = { same = "repeated", different = "composed" }

        >>> import torch
        >>> from registry.losses.interaction import Interaction
        >>> from registry.types import Encoder
        >>> encoder = Encoder()
        >>> encoder.dim = 4
        >>> loss = Interaction(encoder)
        >>> _ = torch.nn.init.constant_(loss.linear.weight, 0.25)
        >>> round(loss(torch.ones(2, 4), -torch.ones(2, 4)).item(), 4)
        0.1269
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
