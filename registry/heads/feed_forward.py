"""The projection head of SimCLR's family: two dense layers with a non-linearity between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from registry import HEADS
from registry.types import Encoder, Head, Tune


@HEADS.register("feed_forward")
class FeedForward(Head):
    """Project by two dense layers: V·σ(Ux + b) + c, with `last_activation` σ(V·σ(Ux + b) + c).

    Weights and biases start as torch's dense layers do: uniform in ±1/√(width before).

    Shapes: (B, D) → (B, width).

    Source: SimCLR (Chen et al. 2020, section 2); SG-OPT (Kim, Yoo and Lee 2021) with GELU, also at the end, and 4096
    dimensions; VaSCL (Zhang et al. 2022) with ReLU, without biases, to 128 dimensions.

    Args:
        hidden: Width between the layers; that of what comes in if left out.
        width: Width of what comes out; that of what comes in if left out.
        activation: σ.
        last_activation: Whether σ follows the second layer too.
        bias: Whether there are b and c.
    """

    def __init__(
        self,
        hidden: Annotated[int, Field(gt=0), Tune(64, 4096, log=True)] | None = None,
        width: Annotated[int, Field(gt=0), Tune(64, 4096, log=True)] | None = None,
        activation: Literal["relu", "gelu"] = "relu",
        last_activation: bool = False,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.hidden, self.width, self.bias = hidden, width, bias
        self.sigma = F.relu if activation == "relu" else F.gelu
        self.last_activation = last_activation

    def fit(self, width: int, encoder: Encoder) -> int:  # noqa: ARG002 - the hook's form
        """Make the layers."""
        hidden, out = self.hidden or width, self.width or width
        self.first = nn.Linear(width, hidden, bias=self.bias)
        self.second = nn.Linear(hidden, out, bias=self.bias)
        return out

    def forward(self, pooled: Tensor, groups: Sequence[tuple[str, int]]) -> Tensor:  # noqa: ARG002 - the hook's form
        """Return (B, width)."""
        output: Tensor = self.second(self.sigma(self.first(pooled)))
        return self.sigma(output) if self.last_activation else output
