"""Shared layers of heads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from torch import Tensor, nn

from registry.types import Encoder, Head


def dense_layer(width: int, out: int, bias: bool = True) -> nn.Linear:
    """Return a dense layer with BERT's initialization: weights from N(0, 0.02²), bias zero."""
    layer = nn.Linear(width, out, bias=bias)
    nn.init.normal_(layer.weight, std=0.02)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


def layer_norm(width: int, encoder: Encoder) -> nn.LayerNorm:
    """Return a layer norm with the ε of the encoder's model, or BERT's 1e-12 for encoders without one."""
    config = getattr(getattr(encoder, "backbone", None), "config", None)
    return nn.LayerNorm(width, eps=float(getattr(config, "layer_norm_eps", None) or 1e-12))


class Dense(Head):
    """One dense layer, `linear`, and σ: (B, D) → (B, D), or another width in subclasses.

    Args:
        activation: Activation σ, tanh or the identity.
    """

    linear: nn.Linear

    def __init__(self, activation: Literal["Tanh", "Identity"]) -> None:
        super().__init__()
        self.sigma = activation

    def fit(self, width: int, encoder: Encoder) -> int:  # noqa: ARG002 - the hook's form
        """Create the layer, which keeps the width."""
        self.linear = dense_layer(width, width)
        return width

    def forward(self, pooled: Tensor, groups: Sequence[tuple[str, int]]) -> Tensor:  # noqa: ARG002 - the hook's form
        """Return (B, out)."""
        output: Tensor = self.linear(pooled)
        return output.tanh() if self.sigma == "Tanh" else output

    def dense(self) -> tuple[Tensor, Tensor, str]:
        """Return weight, bias and activation."""
        return self.linear.weight, self.linear.bias, self.sigma


class FixedDense(Dense):
    """Dense layer saved with a model."""

    def __init__(self, weight: Tensor, bias: Tensor, activation: Literal["Tanh", "Identity"]) -> None:
        super().__init__(activation)
        self.linear = nn.Linear(weight.shape[1], weight.shape[0])
        self.linear.weight, self.linear.bias = nn.Parameter(weight), nn.Parameter(bias)

    def fit(self, width: int, encoder: Encoder) -> int:  # noqa: ARG002 - the hook's form
        """Return the output width. The input width was checked when the model was saved."""
        return self.linear.out_features
