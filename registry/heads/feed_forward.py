"""SimCLR's projection head: two dense layers with a non-linearity between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from registry import HEADS
from registry.heads.layers import dense_layer
from registry.types import Encoder, Head, Tune


@HEADS.register("feed_forward")
class FeedForward(Head):
    """Project by two dense layers: V·σ(Ux + b) + c, with `last_activation` σ(V·σ(Ux + b) + c).

    Shapes: (B, D) → (B, width).

    Source: SimCLR (Chen et al. 2020, section 2); SG-OPT (Kim, Yoo and Lee 2021) with GELU, also at the end, and 4096
    dimensions; VaSCL (Zhang et al. 2022) with ReLU, without biases, to 128 dimensions. Doubtful and settled in
    methods/sg_opt.md: the initial weights (SG10, `initial`).

    Args:
        hidden: Width between the layers. Default: the input width.
        width: Output width. Default: the input width.
        activation: Activation σ.
        last_activation: Whether σ also follows the second layer.
        bias: Whether the layers have biases b and c.
        initial: Initial weights and biases: "uniform" in ±1/√(input width), as torch's dense layers, or "normal" with
            weights from N(0, 0.02²) and biases 0, as BERT's.

    Example:
        [encoders.online.heads.feed_forward]
        width = 128
        activation = "gelu"
    """

    def __init__(
        self,
        hidden: Annotated[int, Field(gt=0), Tune(64, 4096, log=True)] | None = None,
        width: Annotated[int, Field(gt=0), Tune(64, 4096, log=True)] | None = None,
        activation: Literal["relu", "gelu"] = "relu",
        last_activation: bool = False,
        bias: bool = True,
        initial: Literal["uniform", "normal"] = "uniform",
    ) -> None:
        super().__init__()
        self.hidden, self.width, self.bias = hidden, width, bias
        self.layer = dense_layer if initial == "normal" else nn.Linear
        self.sigma = F.relu if activation == "relu" else F.gelu
        self.last_activation = last_activation

    def fit(self, width: int, encoder: Encoder) -> int:  # noqa: ARG002 - the hook's form
        """Create the layers."""
        hidden, out = self.hidden or width, self.width or width
        self.first = self.layer(width, hidden, bias=self.bias)
        self.second = self.layer(hidden, out, bias=self.bias)
        return out

    def forward(self, pooled: Tensor, groups: Sequence[tuple[str, int]]) -> Tensor:  # noqa: ARG002 - the hook's form
        """Return (B, width)."""
        output: Tensor = self.second(self.sigma(self.first(pooled)))
        return self.sigma(output) if self.last_activation else output
