"""miCSE's regularizer: mutual information between the attention weights of two views."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from registry import LOSSES
from registry.distributed import sum_devices, world_size
from registry.errors import CseError
from registry.tokens import Encoded
from registry.types import Loss, Tune

Block = Annotated[int, Field(ge=0)]
CLOSEST = 1e-6
"""Lower bound of 1 − ρ². Without it, equal attention weights give an infinite logarithm."""


@LOSSES.register("attention_information")
class AttentionInformation(Loss):
    """Maximize the mutual information between the attention weights of two views of a sentence.

    ℓ = −mean over blocks k, heads h and sentences i of  (qₖₕᵢ² + 10⁻⁶) · Iₖₕᵢ,   I = −½ log(1 − ρ²),
    with I the mutual information of two jointly normal variables. ρ is the correlation of log a and log a′, the
    attention weights of the two views, over `samples` random places (query, key) with both weights above 0. q is
    the share of such places among all places. Weights that dropout or padding set to 0 do not count, and the factor of
    dropout does not change ρ. Gradient goes into both views. 1 − ρ² is at least 10⁻⁶.

    The encoder stores B·H·L² numbers per block and view, and runs its blocks padded and uncompiled.

    Shapes: attentions[k] (B, H, L, L) of both views → a scalar.

    Source: miCSE (Klein and Nabi 2023) and its code. Settled in methods/micse.md: undefined values (MI1), padding (MI2
    → `padding`), few places (MI3 → `fewer`), dropout (MI4).

    Args:
        layers: Blocks k to read, counted from 0.
        samples: Number of sampled places.
        padding: Whether padding tokens count as queries, which have attention weights too. Default: false.
        fewer: Treatment of a sentence with fewer than `samples` places: "all" reads every place, "drop" skips the
            sentence.

    Raises:
        CseError: If the views differ in length, so that the same place holds different tokens.

    Example:
        [losses.attention_information]
        weight = 0.0005
        layers = [2, 3]      # blocks of a small encoder, counted from 0
        samples = 150
    """

    reads_hidden = False

    def __init__(
        self,
        layers: Annotated[list[Block], Field(min_length=1)] = [7, 8, 9, 10, 11],  # noqa: B006 - a declaration
        samples: Annotated[int, Field(ge=2), Tune(50, 400, log=True)] = 150,
        padding: bool | None = None,
        fewer: Literal["all", "drop"] = "all",
    ) -> None:
        super().__init__()
        self.reads_attentions = sorted(set(layers))
        self.samples, self.padding, self.fewer = samples, bool(padding), fewer

    def forward(self, anchor: Encoded, positive: Encoded) -> Tensor:
        """Return the loss of this device. The mean over devices is the loss of the whole batch."""
        if anchor.tokens.length != positive.tokens.length:
            raise CseError(
                f"attention_information: the two views have {anchor.tokens.length} and {positive.tokens.length} tokens",
                "use two views with the same tokens, for example views that differ only in dropout",
                code="losses.view_length_mismatch",
            )
        first, second = (
            torch.stack([view.attentions[block] for block in self.reads_attentions]) for view in (anchor, positive)
        )
        places = self._counted(anchor) & self._counted(positive)  # (B, L, L)
        shared = ((first > 0) & (second > 0) & places.unsqueeze(1)).flatten(-2)  # (K, B, H, L²)
        found = shared.sum(-1)
        share = found.to(first.dtype) / places.flatten(-2).sum(-1).unsqueeze(1)
        value = (share.square() + 1e-6) * self._information(first.flatten(-2), second.flatten(-2), shared)
        if self.fewer == "all":
            return -value.mean()
        kept = (found >= self.samples).to(value.dtype)
        return -(value * kept).sum() / (sum_devices(kept.sum()) / world_size()).clamp(min=1)

    def _counted(self, view: Encoded) -> Tensor:
        """Return (B, L, L) booleans: whether a place (query, key) can be sampled."""
        real = view.tokens.mask.bool()
        both = real.unsqueeze(2) & real.unsqueeze(1)
        return torch.ones_like(both) if self.padding else both

    def _information(self, first: Tensor, second: Tensor, shared: Tensor) -> Tensor:
        """Return (K, B, H): I of weights (K, B, H, L²) at places sampled from `shared`."""
        keys = torch.rand(shared.shape, device=shared.device).masked_fill(~shared, -1)
        order, chosen = keys.topk(min(self.samples, keys.shape[-1]), dim=-1)
        drawn = order >= 0
        here, there = (_centered(weights.gather(-1, chosen), drawn) for weights in (first, second))
        spread = here.square().sum(-1) * there.square().sum(-1)
        squared = (here * there).sum(-1).square() / spread.clamp(min=torch.finfo(spread.dtype).tiny)
        return -0.5 * (1 - squared).clamp(min=CLOSEST).log()


def _centered(weights: Tensor, drawn: Tensor) -> Tensor:
    """Return (…, n) centered logarithms of the sampled weights, with 0 at all other places."""
    logs = weights.masked_fill(~drawn, 1).log()
    return (logs - logs.sum(-1, keepdim=True) / drawn.sum(-1, keepdim=True).clamp(min=1)).masked_fill(~drawn, 0)
