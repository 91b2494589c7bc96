"""BYOL's loss: predict what a slow copy of the encoder makes of the other view; there are no negatives."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import cosine_similarity

from registry import LOSSES
from registry.types import Loss, Sentences


@LOSSES.register("bootstrap")
class Bootstrap(Loss):
    """Predict the target encoder's vector of each view from the online encoder's vector of the other.

    ℓᵢ = (2 − 2·cos(q(f(aᵢ)), g(bᵢ))) + (2 − 2·cos(q(f(bᵢ)), g(aᵢ))), averaged over the batch: f the online encoder
    with its predictor q as a head, g the target encoder, through which no gradient goes. Nothing but the difference
    between f and g keeps all sentences from one vector: g is a momentum encoder (`ema`) without the predictor.

    Shapes: four times (N, D); result a scalar between 0 and 8.

    Source: BYOL (Grill et al. 2020, eq. 2), for sentences BSL (Zhang et al. 2021, `BYOLoss.py`, methods/bsl.md).
    """

    steering = frozenset({"anchor_target", "positive_target"})

    def forward(
        self, anchor: Sentences, positive: Sentences, anchor_target: Sentences, positive_target: Sentences
    ) -> Tensor:
        """Return the loss of the batch."""
        there = cosine_similarity(anchor, positive_target.detach(), dim=-1)
        back = cosine_similarity(positive, anchor_target.detach(), dim=-1)
        return (4 - 2 * there - 2 * back).mean()
