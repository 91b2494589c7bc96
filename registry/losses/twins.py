"""IFCL's twins loss: the identical twin is closer than the fraternal twin by the distance of their inputs."""

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
    """Match the gap between identical and fraternal twin to the gap of their token embeddings.

    ℓᵢ = | e^{s(hᵢ,h⁺ᵢ)} − e^{s(hᵢ,h⁻ᵢ)} − Mᵢ |,  Mᵢ = e^{s(yᵢ,y⁺ᵢ)} − e^{s(yᵢ,y⁻ᵢ)},
    with s the cosine, h⁺ the identical twin, h⁻ the fraternal twin (a positive, despite the sign), y the token
    embeddings after augmentation and dropout. There is no temperature, M carries no gradient, and the subgradient at
    the kink is 0.

    Shapes: sentence (B, D) and embeddings (B, L, W) of three views, L may differ between them; result a scalar.

    Source: IFCL (Xiao et al. 2023, eq. 8).
    Doubtful: the paper does not define the similarity of two sentences' token embeddings. `margin_similarity` "flat"
    compares them as one vector over the anchor's real tokens; for two dropout masks its expectation is 1 − rate, the ω
    the paper lists (A2). ω = 0.85 / 0.80 is in no equation; `margin` "fixed" is the reading that uses it: M = e^ω_a −
    e^ω_b (A4). Eq. 9 sums over the batch; `reduction` switches to the sum (A9).

    Args:
        margin: Margin M: computed from the "data", or "fixed" to `fixed_margin` for every sentence.
        margin_similarity: Similarity s of token embeddings: "flat" and "mean_pool" compare one vector per sentence,
            concatenated or averaged over the anchor's real tokens. "token_mean" averages the cosines of single tokens.
            "cls" is the cosine of the first tokens.
        fixed_margin: Value of M if `margin` is "fixed". Default: e^0.85 − e^0.80.
        reduction: Reduction over the sentences of the batch, on each device separately.
        omega_a: Similarity of the identical twins' inputs. With `omega_b` and `margin` "fixed", it replaces
            `fixed_margin`.
        omega_b: Similarity of the fraternal twins' inputs.

    Raises:
        CseError: If only one of `omega_a` and `omega_b` is set, or M is computed from the data.

    Example:
        [views.fraternal]
        [[views.fraternal.augment]]
        name = "repeat_words"

        [losses.twins]
        margin_similarity = "flat"
        views = { identical = "positive" }

        >>> import torch
        >>> from registry.losses.twins import Twins
        >>> from registry.tokens import Encoded, Tokens
        >>> ones, (x, y) = torch.ones(1, 1, dtype=torch.int64), torch.eye(2)
        >>> def view(sentence, token):
        ...     return Encoded(sentence[None], token[None, None], token[None, None], Tokens(ones, ones, ones, ones))
        >>> round(Twins()(view(x, x), view(x, y), view(y, x)).item(), 4)  # |e − 1 − (1 − e)|
        3.4366
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
                f'twins: omega_a = {omega_a} and omega_b = {omega_b} require each other and margin = "fixed"',
                'set both, and margin = "fixed"',
                code="losses.incomplete_omega",
            )
        self.margin, self.margin_similarity, self.fixed_margin = margin, margin_similarity, fixed_margin
        self.reduction = reduction

    def forward(self, anchor: Encoded, identical: Encoded, fraternal: Encoded) -> Tensor:
        """Return the loss of the batch."""
        near = cosine_rows(anchor.sentence, identical.sentence).exp()
        far = cosine_rows(anchor.sentence, fraternal.sentence).exp()
        margin: Tensor | float = self.fixed_margin
        if self.margin != "fixed":
            with torch.no_grad():
                margin = self._similarity(anchor, identical).exp() - self._similarity(anchor, fraternal).exp()
        losses = (near - far - margin).abs()
        return losses.mean() if self.reduction == "mean" else losses.sum()

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
    """Return (B, L, W) embeddings of the view at the anchor's real tokens, and 0 at all other places."""
    vectors = at_least_single(view.embeddings) * view.tokens.mask.unsqueeze(-1)
    length = anchor.tokens.length
    fitted = F.pad(vectors, (0, 0, 0, max(0, length - vectors.shape[1])))[:, :length]
    return fitted * anchor.tokens.mask.unsqueeze(-1)
