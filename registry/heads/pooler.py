"""The layer that BERT has behind [CLS], as a training head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from registry.errors import CseError
from registry.heads.layers import checkpoint_pooler, linear
from registry.registries import HEADS
from registry.types import Encoder, Head


@HEADS.register("pooler")
class Pooler(Head):
    """Map the pooled vector by one dense layer that starts as the checkpoint's own pooler.

    Wx + b, or tanh(Wx + b) as BERT computes it.

    Shapes: (B, D) → (B, D).

    Source: MoCoSE's code (`MoCoSEModel`: `Linear(d, d)` on [CLS] without tanh, copied from BERT's pooler); BERT
    (Devlin et al. 2019). Doubtful: neither tanh nor start is in MoCoSE's paper (methods/mocose.md M10, `activation`
    and `initial`).

    Args:
        activation: "none" as MoCoSE, "tanh" as BERT.
        initial: "checkpoint" takes the weights that next-sentence prediction trained; "random" draws W from
            N(0, 0.02²), for checkpoints that were saved without them.
    """

    def __init__(
        self, activation: Literal["none", "tanh"] = "none", initial: Literal["checkpoint", "random"] = "checkpoint"
    ) -> None:
        super().__init__()
        self.activation = activation
        self.initial = initial

    def fit(self, width: int, encoder: Encoder) -> int:
        """Make the layer; it keeps the width.

        Raises:
            CseError: The checkpoint's pooler takes another width.
            MissingError: The checkpoint has no pooler.
        """
        self.linear = linear(width, width)
        if self.initial == "random":
            return width
        weight, bias = checkpoint_pooler(encoder)
        if tuple(weight.shape) != (width, width):
            raise CseError(
                f"pooler: the checkpoint's layer is {weight.shape[1]} wide, the vectors before it {width}",
                'put pooler first among the heads, or set initial = "random"',
            )
        with torch.no_grad():
            self.linear.weight.copy_(weight)
            self.linear.bias.copy_(bias)
        return width

    def forward(self, pooled: Tensor, groups: Sequence[tuple[str, int]]) -> Tensor:  # noqa: ARG002 - the hook's form
        """Return (B, D)."""
        output: Tensor = self.linear(pooled)
        return output.tanh() if self.activation == "tanh" else output

    def dense(self) -> tuple[Tensor, Tensor, str]:
        """Return the layer."""
        return self.linear.weight, self.linear.bias, "Tanh" if self.activation == "tanh" else "Identity"
