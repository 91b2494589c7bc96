"""GISTEmbed (Solatorio 2024): in-batch contrast without the negatives that a guide finds too similar."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from registry import LOSSES, Tune
from registry.losses.contrast import cosine_matrix
from registry.types import Loss, Sentences


@LOSSES.register("gist")
class GIST(Loss):
    """Select each anchor's positive among sentences that a guide finds less similar to the anchor than the positive.

    ℓᵢ = −log( e^{s(hᵢ,h⁺ᵢ)/τ} / Σ_c gᵢ_c e^{s_c/τ} ) with s_c the cosines of hᵢ with all h⁺ⱼ, of hᵢ with all hⱼ, of h⁺ᵢ
    with all h⁺ⱼ, and of hᵢ with all hard negatives. gᵢ_c is 0 if the guide's cosine for the same two sentences is above
    that of the pair (i, i⁺) less a margin, else 1. The pair itself has weight 1, and the cosine of a sentence with
    itself weight 0. The mean over i is the result.

    Shapes: anchor, positive, hard (N, D); references (N, D'), without gradient; result a scalar.

    Source: GISTEmbed (Solatorio 2024) in the form of sentence-transformers (`GISTEmbedLoss`), which has margins and
    switches. With a guide that returns the same vector for both sentences of a pair, that code also contrasts an anchor
    with itself (methods/cosent.md CE3). For a fixed threshold, use `false_negative` of `info_nce`.

    Args:
        temperature: Divisor τ of the cosines.
        margin: Margin m. Larger values exclude more sentences.
        margin_strategy: Threshold for the guide's cosine g of the pair: "absolute" is g − m, "relative" is g − |g|·m.
        contrast_anchors: Whether other anchors are negatives of an anchor.
        contrast_positives: Whether other positives are negatives of a positive.

    Examples:
        >>> import torch
        >>> from registry.losses.gist import GIST
        >>> views, guide = torch.eye(3), torch.eye(3)
        >>> round(GIST(temperature=1.0)(views, views, guide).item(), 4)  # six negatives with cosine 0
        1.1654
        >>> round(GIST(temperature=1.0, margin=2.0)(views, views, guide).item(), 4)  # no negatives are left
        0.0
    """

    steering: frozenset[str] = frozenset({"reference", "reference_positive", "reference_hard"})

    def __init__(
        self,
        temperature: Annotated[float, Field(gt=0), Tune(0.005, 0.5, log=True)] = 0.01,
        margin: Annotated[float, Tune(0.0, 0.3)] = 0.0,
        margin_strategy: Literal["absolute", "relative"] = "absolute",
        contrast_anchors: bool = True,
        contrast_positives: bool = True,
    ) -> None:
        super().__init__()
        self.temperature, self.margin, self.margin_strategy = temperature, margin, margin_strategy
        self.contrast_anchors, self.contrast_positives = contrast_anchors, contrast_positives

    def forward(
        self,
        anchor: Sentences,
        positive: Sentences,
        reference: Sentences,
        reference_positive: Sentences | None = None,
        hard: Sentences | None = None,
        reference_hard: Sentences | None = None,
    ) -> Tensor:
        """Return the loss of the batch. The guide's view of the positives is `reference` if it is not given."""
        reference = reference.detach()
        other = reference if reference_positive is None else reference_positive.detach()
        pairs = [(cosine_matrix(anchor, positive), cosine_matrix(reference, other))]
        own = pairs[0][1].diagonal()
        scale = own.abs() if self.margin_strategy == "relative" else 1.0
        limits = (own - scale * self.margin)[:, None]  # guide's cosines above which a sentence is excluded
        if self.contrast_anchors:
            pairs.append((cosine_matrix(anchor, anchor), cosine_matrix(reference, reference)))
        if self.contrast_positives:
            pairs.append((cosine_matrix(positive, positive), cosine_matrix(other, other)))
        own = torch.eye(len(anchor), dtype=torch.bool, device=anchor.device)
        columns = [cosines.masked_fill((guided > limits) | own, -torch.inf) for cosines, guided in pairs]
        columns[0] = torch.where(own, pairs[0][0], columns[0])
        if hard is not None:
            cosines = cosine_matrix(anchor, hard)
            if reference_hard is not None:
                guided = cosine_matrix(reference, reference_hard.detach())
                cosines = cosines.masked_fill(guided > limits, -torch.inf)
            columns.append(cosines)
        labels = torch.arange(len(anchor), device=anchor.device)
        return F.cross_entropy(torch.cat(columns, dim=1) / self.temperature, labels)
