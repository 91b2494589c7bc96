"""A dense layer with given weights: a head that was saved with a model. Registers nothing."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from registry.types import Encoder, Head


class FixedDense(Head):
    """σ(Wx + b) with σ tanh or the identity.

    Args:
        weight: W, (out, width).
        bias: b, (out,).
        activation: "Tanh" or "Identity".
    """

    def __init__(self, weight: Tensor, bias: Tensor, activation: str) -> None:
        super().__init__()
        self.linear = nn.Linear(weight.shape[1], weight.shape[0])
        self.linear.weight, self.linear.bias = nn.Parameter(weight), nn.Parameter(bias)
        self.activation = activation

    def fit(self, width: int, encoder: Encoder) -> int:  # noqa: ARG002 - the hook's form
        """Return the layer's own width; that it takes `width` was checked when it was saved."""
        return self.linear.out_features

    def forward(self, pooled: Tensor, groups: Sequence[tuple[str, int]]) -> Tensor:  # noqa: ARG002 - the hook's form
        """Return (B, out)."""
        output: Tensor = self.linear(pooled)
        return output.tanh() if self.activation == "Tanh" else output

    def dense(self) -> tuple[Tensor, Tensor, str]:
        """Return the layer."""
        return self.linear.weight, self.linear.bias, self.activation
