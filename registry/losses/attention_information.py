"""miCSE's regularizer: mutual information between the attention weights of two views."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from registry import LOSSES
from registry.distributed import sum_devices, world_size
from registry.errors import CseError
from registry.tokens import Encoded
from registry.types import Loss, Tune

Block = Annotated[int, Field(ge=0)]
Blocks = Annotated[list[Block], Field(min_length=1)]
CLOSEST = 1e-6
"""Lower bound of 1 − ρ². Without it, equal attention weights give an infinite logarithm."""


@LOSSES.register("attention_information")
class AttentionInformation(Loss):
    """Maximize the mutual information between the attention weights of two views of a sentence.

    ℓ = −(q² + 10⁻⁶) · mean over groups g, heads h and sentences i of I_ghi,   I = −½ log(1 − ρ²),
    with I the mutual information of two jointly normal variables. ρ is the correlation of log a and log a′, the
    attention weights of the two views, over `samples` random places (block of the group, query, key) with both weights
    above 0. Padding tokens count as queries, and a key has weight 0 if it is padding or dropped. A head with fewer than
    `samples` such places is skipped. If all heads have fewer, each uses all its places. q is the share of such places
    among all places of the heads that are not skipped. Gradient goes into both views. 1 − ρ² is at least 10⁻⁶.

    The encoder stores B·H·L² numbers per block and view, and runs its blocks padded and uncompiled.

    Shapes: attentions[k] (B, H, L, L) of both views → a scalar.

    Source: miCSE (Klein and Nabi 2023) and its code (SAP-samples/acl2023-micse @8d06f27, model/models.py:163-307).
    Settled in methods/micse.md: undefined values (MI1), padding (MI2), few places (MI3), dropout (MI4), blocks (MI6).

    Args:
        layers: Groups of blocks, counted from 0. The places of all blocks of a group have one correlation.
        samples: Number of sampled places.

    Raises:
        CseError: If the groups differ in size, or the views differ in length, so that the same place holds different
            tokens.

    Example:
        [losses.attention_information]
        weight = 0.0005
        layers = [[1], [2]]  # blocks of a small encoder, counted from 0
        samples = 150

        >>> import torch
        >>> from registry.losses.attention_information import AttentionInformation
        >>> from registry.tokens import Encoded, Tokens
        >>> ones, states = torch.ones(2, 2, dtype=torch.int64), torch.zeros(2, 2, 4)
        >>> def view(first, second):  # one block with one head: the weights of each token for the first token
        ...     weights = torch.tensor([[first, 1 - first], [second, 1 - second]]).expand(2, 1, 2, 2)
        ...     return Encoded(states[:, 0], states, states, Tokens(ones, ones, ones, ones), attentions={0: weights})
        >>> loss = AttentionInformation(layers=[[0]])
        >>> round(loss(view(0.9, 0.2), view(0.8, 0.4)).item(), 4)
        -1.2967
    """

    reads_hidden = False

    def __init__(
        self,
        layers: Annotated[list[Blocks], Field(min_length=1)] = [[7, 9], [8, 10]],  # noqa: B006 - a declaration
        samples: Annotated[int, Field(ge=2), Tune(50, 400, log=True)] = 150,
    ) -> None:
        super().__init__()
        if len({len(group) for group in layers}) > 1:
            raise CseError(
                f"attention_information: the groups of layers = {layers} differ in size",
                "use the same number of blocks in each group",
                code="losses.uneven_groups",
            )
        self.layers, self.samples = layers, samples
        self.reads_attentions = sorted({block for group in layers for block in group})

    def forward(self, anchor: Encoded, positive: Encoded) -> Tensor:
        """Return the loss of this device. The mean over devices is the loss of the whole batch."""
        if anchor.tokens.length != positive.tokens.length:
            raise CseError(
                f"attention_information: the two views have {anchor.tokens.length} and {positive.tokens.length} tokens",
                "use two views with the same tokens, for example views that differ only in dropout",
                code="losses.view_length_mismatch",
            )
        first, second = self._grouped(anchor), self._grouped(positive)
        shared = (first > 0) & (second > 0)  # (G, B, H, P)
        found = shared.sum(-1)
        enough = found >= self.samples
        kept = (enough | (sum_devices(enough.sum()) == 0)).to(first.dtype)
        share = sum_devices((found * kept).sum()) / sum_devices(kept.sum() * shared.shape[-1])
        information = (self._information(first, second, shared) * kept).sum()
        information = information * world_size() / sum_devices(kept.sum())
        return -(share.square() + 1e-6) * information

    def _grouped(self, view: Encoded) -> Tensor:
        """Return (G, B, H, P): weights at the P places of each group, P = blocks · L²."""
        return torch.stack(
            [torch.cat([view.attentions[block].flatten(-2) for block in group], dim=-1) for group in self.layers]
        )

    def _information(self, first: Tensor, second: Tensor, shared: Tensor) -> Tensor:
        """Return (G, B, H): I of weights (G, B, H, P) at places sampled from `shared`."""
        keys = torch.rand(shared.shape, device=shared.device).masked_fill(~shared, -1)
        order, chosen = keys.topk(min(self.samples, keys.shape[-1]), dim=-1)
        drawn = order >= 0
        logs = [weights.gather(-1, chosen).masked_fill(~drawn, 1).log() for weights in (first, second)]
        count = drawn.sum(-1, keepdim=True).clamp(min=1)
        here, there = ((each - each.sum(-1, keepdim=True) / count).masked_fill(~drawn, 0) for each in logs)
        spread = here.square().sum(-1) * there.square().sum(-1)
        squared = (here * there).sum(-1).square() / spread.clamp(min=torch.finfo(spread.dtype).tiny)
        return -0.5 * (1 - squared).clamp(min=CLOSEST).log()
