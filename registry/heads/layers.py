"""Layers that several heads are made of. Registers nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from torch import Tensor, nn

from registry.types import Encoder, Head


def dense_layer(width: int, out: int) -> nn.Linear:
    """Return a layer with weights from N(0, 0.02²) and no bias at the start, as BERT initialises."""
    layer = nn.Linear(width, out)
    nn.init.normal_(layer.weight, std=0.02)
    nn.init.zeros_(layer.bias)
    return layer


class Dense(Head):
    """One dense layer, `linear`, and σ: (B, D) → (B, D), unless the layer has another width.

    Args:
        activation: σ, tanh or the identity.
    """

    linear: nn.Linear

    def __init__(self, activation: Literal["Tanh", "Identity"]) -> None:
        super().__init__()
        self.sigma = activation

    def fit(self, width: int, encoder: Encoder) -> int:  # noqa: ARG002 - the hook's form
        """Make the layer; it keeps the width."""
        self.linear = dense_layer(width, width)
        return width

    def forward(self, pooled: Tensor, groups: Sequence[tuple[str, int]]) -> Tensor:  # noqa: ARG002 - the hook's form
        """Return (B, out)."""
        output: Tensor = self.linear(pooled)
        return output.tanh() if self.sigma == "Tanh" else output

    def dense(self) -> tuple[Tensor, Tensor, str]:
        """Return the layer."""
        return self.linear.weight, self.linear.bias, self.sigma


class FixedDense(Dense):
    """A dense layer that was saved with a model.

    Args:
        weight: W, (out, width).
        bias: b, (out,).
        activation: "Tanh" or "Identity".
    """

    def __init__(self, weight: Tensor, bias: Tensor, activation: Literal["Tanh", "Identity"]) -> None:
        super().__init__(activation)
        self.linear = nn.Linear(weight.shape[1], weight.shape[0])
        self.linear.weight, self.linear.bias = nn.Parameter(weight), nn.Parameter(bias)

    def fit(self, width: int, encoder: Encoder) -> int:  # noqa: ARG002 - the hook's form
        """Return the layer's own width; that it takes `width` was checked when it was saved."""
        return self.linear.out_features
