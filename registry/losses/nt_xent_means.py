"""NT-Xent with several positives per anchor, represented by their mean."""

from __future__ import annotations

import torch
from torch import Tensor

from registry import LOSSES
from registry.errors import CseError
from registry.losses.nt_xent import SymmetricContrast
from registry.types import Negatives, Sentences


@LOSSES.register("nt_xent_means")
class NTXentMeans(SymmetricContrast):
    """Select the mean of each anchor's positives among all anchors and means of the batch, and vice versa.

    This is NT-Xent (`nt_xent`) over the pairs (aᵢₖ, pᵢₖ), pᵢₖ = 1/P Σₘ pᵢₖₘ: aᵢₖ is row i of the k-th anchor view, pᵢₖₘ
    row i of the m-th of its P positive views. The other anchors of a row and their means are negatives, just as those
    of other rows. Means are taken of the unnormalized embeddings.

    Shapes: K anchor views (N, D), K·P positive views (N, D), those of the first anchor first; negatives (Q, D) and
    (Q,), Q may be 0; result a scalar.

    Source: DeCLUTR (Giorgi et al. 2021, section 3.1, eq. 1 to 3) and its code, whose NT-Xent is the mean over all rows
    (`reduction = "mean"`).

    Examples:
        >>> import torch
        >>> from registry.losses.nt_xent_means import NTXentMeans
        >>> from registry.types import Negatives
        >>> views = torch.eye(3)
        >>> loss = NTXentMeans(temperature=1.0, reduction="mean")
        >>> round(loss((views,), (views, views), Negatives.none(views)).item(), 4)
        0.9048
    """

    def forward(self, anchors: tuple[Sentences, ...], positives: tuple[Sentences, ...], negatives: Negatives) -> Tensor:
        """Return the loss of the batch."""
        share, left = divmod(len(positives), len(anchors))
        if left or not share:
            raise CseError(
                f"nt_xent_means: {len(positives)} positive views cannot be divided among {len(anchors)} anchor views",
                "list the same number of positive views for each anchor view, those of the first anchor first",
                code="losses.uneven_views",
            )
        groups = [positives[start : start + share] for start in range(0, len(positives), share)]
        means = [torch.stack(group).mean(dim=0) for group in groups]
        return self.contrast(torch.cat(anchors), torch.cat(means), negatives)
