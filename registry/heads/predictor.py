"""MoCoSE's predictor, which only the online side has."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field
from torch import Tensor, nn

from registry import HEADS
from registry.heads.layers import dense_layer
from registry.heads.projection import Projection
from registry.types import Encoder, Tune


@HEADS.register("predictor")
class Predictor(Projection):
    """Predict the other side's projection by n layers: n − 1 times drop(LayerNorm(Wx + b)), then tanh(Wx + b).

    W from N(0, 0.02²), b zero, ε of LayerNorm as in the encoder's model. With 0 layers the head is the identity. The
    predicted embedding must have the output width.

    Shapes: (B, D) → (B, width).

    Source: MoCoSE (2022, section 3.2; Table 4 sweeps the layers) and its code (`mlp_layers`); BYOL (Grill et al. 2020)
    for a predictor on one side.

    Args:
        layers: Number n of layers.
        width: Output width. Default: the input width.
        dropout: Dropout rate after each layer except the last.

    Example:
        [encoders.online.heads.predictor]
        layers = 2
        dropout = 0.1
    """

    name = "predictor"

    def __init__(self, layers: Annotated[int, Field(ge=0, le=3), Tune(0, 3)] = 2, **projection: Any) -> None:
        super().__init__(layers, **projection)

    def parts(self, width: int, out: int, encoder: Encoder) -> list[nn.Module]:
        """Return the blocks, followed by a dense layer with tanh."""
        first = [part for _ in range(self.layers - 1) for part in self.block(width, width, encoder)]
        return [*first, dense_layer(width, out), nn.Tanh()]

    def dense(self) -> tuple[Tensor, Tensor, str] | None:
        """Return weight, bias and activation if the head is a single layer, else None."""
        if self.layers != 1:
            return None
        only = self.network[0]
        assert isinstance(only, nn.Linear)
        return only.weight, only.bias, "Tanh"
