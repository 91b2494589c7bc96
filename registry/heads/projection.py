"""MoCoSE's projection: dense layers with normalization and dropout, without non-linearity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field
from torch import Tensor, nn

from registry import HEADS
from registry.errors import CseError
from registry.heads.layers import dense_layer, layer_norm
from registry.types import Encoder, Head, Tune


@HEADS.register("projection")
class Projection(Head):
    """Project by n layers drop(LayerNorm(Wx + b)), of which the last can change the width.

    W from N(0, 0.02²), b zero, ε of LayerNorm as in the encoder's model. With 0 layers the head is the identity.

    Shapes: (B, D) → (B, width).

    Source: MoCoSE (2022, section 3.2; Table 4 sweeps the layers, Table 6a the width) and its code, which has one layer
    and fails with more; two and three layers are built as those of its predictor (methods/mocose.md §3).

    Args:
        layers: Number n of layers.
        width: Output width, which also applies to the queue and to a predictor after this head (M18). Default: the
            input width.
        dropout: Dropout rate after each layer.

    Example:
        [encoders.online.heads.projection]
        layers = 1
        width = 256
    """

    name = "projection"

    def __init__(
        self,
        layers: Annotated[int, Field(ge=0, le=3), Tune(0, 3)] = 1,
        width: Annotated[int, Field(gt=0), Tune(64, 2048, log=True)] | None = None,
        dropout: Annotated[float, Field(ge=0, lt=1), Tune(0.0, 0.3)] = 0.1,
    ) -> None:
        super().__init__()
        self.layers, self.width, self.dropout = layers, width, dropout

    def fit(self, width: int, encoder: Encoder) -> int:
        """Create the layers."""
        out = width if self.width is None else self.width
        if self.layers == 0 and out != width:
            raise CseError(
                f"{self.name}: width = {out} differs from the input width {width}, but layers = 0",
                "omit width, or set layers to 1 or more",
                code="heads.width_without_layers",
            )
        self.network = nn.Sequential(*self.parts(width, out, encoder) if self.layers else ())
        return out

    def parts(self, width: int, out: int, encoder: Encoder) -> list[nn.Module]:
        """Return the modules that map `width` to `out` dimensions, for at least one layer."""
        outs = [width] * (self.layers - 1) + [out]
        return [part for each in outs for part in self.block(width, each, encoder)]

    def block(self, width: int, out: int, encoder: Encoder) -> list[nn.Module]:
        """Return a dense layer, normalization and dropout."""
        return [dense_layer(width, out), layer_norm(out, encoder), nn.Dropout(self.dropout)]

    def forward(self, pooled: Tensor, groups: Sequence[tuple[str, int]]) -> Tensor:  # noqa: ARG002 - the hook's form
        """Return (B, width)."""
        output: Tensor = self.network(pooled)
        return output
