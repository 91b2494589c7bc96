"""IFCL's twins loss: keep the identical twin closer than the fraternal one, by the distance their inputs have."""

from __future__ import annotations

from math import exp
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from registry import LOSSES, Tune
from registry.errors import CseError
from registry.losses.contrast import cosine_rows
from registry.tokens import Encoded, at_least_single
from registry.types import Loss

Similarity = Annotated[float, Field(ge=-1, le=1), Tune(0.0, 1.0)]


@LOSSES.register("twins")
class Twins(Loss):
    """Hold the gap between identical and fraternal twin at the gap of their token embeddings.

    ℓᵢ = | e^{s(hᵢ,h⁺ᵢ)} − e^{s(hᵢ,h⁻ᵢ)} − Mᵢ |,  Mᵢ = e^{s(yᵢ,y⁺ᵢ)} − e^{s(yᵢ,y⁻ᵢ)},
    with s the cosine, h⁺ the identical twin, h⁻ the fraternal twin (a positive, despite the sign), y the token
    embeddings after augmentation and dropout. No temperature; M carries no gradient; at the kink the subgradient is 0.

    Shapes: sentence (B, D) and embeddings (B, L, W) of three views, L may differ between them; result a scalar.

    Source: IFCL (Xiao et al. 2023, eq. 8).
    Doubtful: how a sentence's token embeddings become one similarity is not said. `margin_similarity` "flat" compares
    them as one vector over the anchor's real tokens; for two dropout masks its expectation is 1 − rate, the ω the paper
    lists (A2). ω = 0.85 / 0.80 enters no equation; `margin` "fixed" is the reading in which it does: M = e^ω_a − e^ω_b
    (A4). Eq. 9 sums over the batch; `reduction` switches to that (A9).

    Args:
        margin: Whether M is computed from the data, or is `fixed_margin` for every sentence.
        margin_similarity: "flat" and "mean_pool" compare one vector a sentence, concatenated or averaged over the
            anchor's real tokens; "token_mean" averages the cosines of single tokens; "cls" takes the first token's.
        fixed_margin: M where `margin` is "fixed"; e^0.85 − e^0.80 unless given.
        reduction: Over the sentences of the batch, on each device by itself.
        omega_a: Similarity of the identical twins' inputs of which M is made where `margin` is "fixed", with `omega_b`
            and instead of `fixed_margin`.
        omega_b: The same of the fraternal twins.

    Raises:
        CseError: One ω is given without the other, or where M is computed from the data.
    """

    reads_hidden = False

    def __init__(
        self,
        margin: Literal["data", "fixed"] = "data",
        margin_similarity: Literal["flat", "token_mean", "mean_pool", "cls"] = "flat",
        fixed_margin: Annotated[float, Tune(0.0, 1.0)] = exp(0.85) - exp(0.80),
        reduction: Literal["mean", "sum"] = "mean",
        omega_a: Similarity | None = None,
        omega_b: Similarity | None = None,
    ) -> None:
        super().__init__()
        if omega_a is not None and omega_b is not None and margin == "fixed":
            fixed_margin = exp(omega_a) - exp(omega_b)
        elif omega_a is not None or omega_b is not None:
            raise CseError(
                'twins: omega_a and omega_b make M together, and where margin = "fixed"',
                'give both, with margin = "fixed"',
            )
        self.margin, self.margin_similarity, self.fixed_margin = margin, margin_similarity, fixed_margin
        self.reduction = reduction

    def forward(self, anchor: Encoded, identical: Encoded, fraternal: Encoded) -> Tensor:
        """Return the loss of the batch."""
        near = cosine_rows(anchor.sentence, identical.sentence).exp()
        far = cosine_rows(anchor.sentence, fraternal.sentence).exp()
        losses = (near - far - self._margins(anchor, identical, fraternal)).abs()
        return losses.mean() if self.reduction == "mean" else losses.sum()

    @torch.no_grad()
    def _margins(self, anchor: Encoded, identical: Encoded, fraternal: Encoded) -> Tensor | float:
        if self.margin == "fixed":
            return self.fixed_margin
        return self._similarity(anchor, identical).exp() - self._similarity(anchor, fraternal).exp()

    def _similarity(self, anchor: Encoded, other: Encoded) -> Tensor:
        left, right = _real(anchor, anchor), _real(other, anchor)
        if self.margin_similarity == "flat":
            return cosine_rows(left.flatten(1), right.flatten(1))
        if self.margin_similarity == "mean_pool":
            return cosine_rows(left.sum(dim=1), right.sum(dim=1))
        if self.margin_similarity == "cls":
            return cosine_rows(left[:, 0], right[:, 0])
        mask = anchor.tokens.mask
        return (cosine_rows(left, right) * mask).sum(dim=1) / mask.sum(dim=1)


def _real(view: Encoded, anchor: Encoded) -> Tensor:
    """Return (B, L, W) the view's embeddings at the anchor's real tokens, zero elsewhere and where it has none."""
    vectors = at_least_single(view.embeddings) * view.tokens.mask.unsqueeze(-1)
    length = anchor.tokens.length
    fitted = F.pad(vectors, (0, 0, 0, max(0, length - vectors.shape[1])))[:, :length]
    return fitted * anchor.tokens.mask.unsqueeze(-1)
