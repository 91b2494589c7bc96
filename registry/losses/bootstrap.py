"""BYOL's loss, which has no negatives: predict a momentum encoder's embedding of the other view."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import cosine_similarity

from registry import LOSSES
from registry.types import Loss, Sentences


@LOSSES.register("bootstrap")
class Bootstrap(Loss):
    """Predict the target encoder's embedding of each view from the online encoder's embedding of the other view.

    ℓᵢ = (2 − 2·cos(q(f(aᵢ)), g(bᵢ))) + (2 − 2·cos(q(f(bᵢ)), g(aᵢ))), averaged over the batch,
    with f the online encoder, q its predictor (a head), and g the target encoder, which receives no gradient. Only the
    difference between f and g prevents a collapse to one embedding. Use a momentum encoder (`ema`) without the
    predictor as g.

    Shapes: four times (N, D); result a scalar between 0 and 8.

    Source: BYOL (Grill et al. 2020, eq. 2), for sentences BSL (Zhang et al. 2021, `BYOLoss.py`, methods/bsl.md).

    Examples:
        >>> import torch
        >>> from registry.losses.bootstrap import Bootstrap
        >>> views = torch.eye(3)
        >>> Bootstrap()(views, views, views, views.roll(1, dims=0)).item()
        2.0
    """

    steering = targets = frozenset({"anchor_target", "positive_target"})

    def forward(
        self, anchor: Sentences, positive: Sentences, anchor_target: Sentences, positive_target: Sentences
    ) -> Tensor:
        """Return the loss of the batch."""
        there = cosine_similarity(anchor, positive_target.detach(), dim=-1)
        back = cosine_similarity(positive, anchor_target.detach(), dim=-1)
        return (4 - 2 * there - 2 * back).mean()
