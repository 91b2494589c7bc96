"""PCL's loss between two networks: both should see the batch alike."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from registry import LOSSES
from registry.losses.peer_positives import Temperature, peer_logits
from registry.types import Loss, Sentences


@LOSSES.register("peer_agreement")
class PeerAgreement(Loss):
    """Bring two networks' distributions over a sentence's positives and the batch's other sentences together.

    p = softmax( s(aᵢ, bᵢ₁)/τ, …, s(aᵢ, bᵢ_K)/τ, s(aᵢ, cⱼ)/τ for all j ≠ i );  ℓ = mean over cells of q (log q − log p).
    "within": p has all of a, b, c = a from the one network, q all from its peer. "across": p has the anchors of the one
    and the rest of the peer, q the anchors of the peer and the rest of the one. Gradient goes into both.

    Shapes: two anchors (N, D), two times K positives (N, D) → a scalar.

    Source: PCL (Wu et al. 2022, section 3.3) and its code: both forms, added. Doubtful: the mean is over all
    N·(K + N − 1) cells, a divergence divided by K + N − 1 (`reduction`, methods/pcl.md PL2).

    Args:
        compare: Which distributions.
        temperature: τ.
        reduction: Mean over all "cells", or over "rows", each the sum of its cells.
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
        wanted = self._distribution(peer_anchor, *(one if self.across else other))
        cells = wanted.exp() * (wanted - found)
        return cells.mean() if self.reduction == "cells" else cells.sum(dim=1).mean()

    def _distribution(self, anchor: Tensor, others: Tensor, positives: tuple[Tensor, ...]) -> Tensor:
        """Return (N, K + N − 1) log p."""
        return peer_logits(anchor, positives, others, self.temperature).log_softmax(dim=1)
