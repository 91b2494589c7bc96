"""PCL's loss between two networks: both assign the same distribution to the batch."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from registry import LOSSES
from registry.losses.peer_positives import Temperature, peer_logits
from registry.types import Loss, Sentences


@LOSSES.register("peer_agreement")
class PeerAgreement(Loss):
    """Align two networks' distributions over a sentence's positives and the batch's other sentences.

    p = softmax( s(aᵢ, bᵢ₁)/τ, …, s(aᵢ, bᵢ_K)/τ, s(aᵢ, cⱼ)/τ for all j ≠ i );  ℓ = mean over cells of q (log q − log p).
    "within": p has a, b and c = a from one network, q from its peer. "across": p has the anchors of one network and b,
    c from the peer, q the anchors of the peer and b, c from the first network. Gradient goes into both.

    Shapes: two anchors (N, D), two times K positives (N, D) → a scalar.

    Source: PCL (Wu et al. 2022, section 3.3) and its code, which adds both forms. Doubtful: the mean is over all
    N·(K + N − 1) cells, a divergence divided by K + N − 1 (`reduction`, methods/pcl.md PL2).

    Args:
        compare: Distributions to compare: "within" each network, or "across" the networks.
        temperature: Divisor τ of the cosines.
        reduction: Mean over all "cells", or over "rows", each the sum of its cells.

    Examples:
        >>> import torch
        >>> from registry.losses.peer_agreement import PeerAgreement
        >>> views, peer = torch.eye(3), torch.eye(3).roll(1, dims=0)
        >>> PeerAgreement(temperature=1.0)(views, (views,), peer, (peer,)).item()
        0.0
    """

    def __init__(
        self,
        compare: Literal["within", "across"] = "within",
        temperature: Temperature = 0.05,
        reduction: Literal["cells", "rows"] = "cells",
    ) -> None:
        super().__init__()
        self.across, self.temperature, self.reduction = compare == "across", temperature, reduction

    def forward(
        self,
        anchor: Sentences,
        positives: tuple[Sentences, ...],
        peer_anchor: Sentences,
        peer_positives: tuple[Sentences, ...],
    ) -> Tensor:
        """Return the loss of the batch."""
        one, other = (anchor, positives), (peer_anchor, peer_positives)
        found = self._distribution(anchor, *(other if self.across else one))
        target = self._distribution(peer_anchor, *(one if self.across else other))
        cells = target.exp() * (target - found)
        return cells.mean() if self.reduction == "cells" else cells.sum(dim=1).mean()

    def _distribution(self, anchor: Tensor, others: Tensor, positives: tuple[Tensor, ...]) -> Tensor:
        """Return (N, K + N − 1) log p."""
        return peer_logits(anchor, positives, others, self.temperature).log_softmax(dim=1)
