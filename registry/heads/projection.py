"""MoCoSE's projection: dense layers with normalisation and dropout, no non-linearity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field
from torch import Tensor, nn

from registry import HEADS
from registry.errors import CseError
from registry.heads.layers import dense_layer
from registry.types import Encoder, Head, Tune


@HEADS.register("projection")
class Projection(Head):
    """Project by n layers drop(LayerNorm(Wx + b)), the last of which may change the width.

    W from N(0, 0.02²), b zero. 0 layers leave the vector as it is.

    Shapes: (B, D) → (B, width).

    Source: MoCoSE (2022, section 3.2; Table 4 sweeps the layers, Table 6a the width) and its code, which has one layer
    and crashes on more; two and three are built here as its predictor builds them (methods/mocose.md §3).

    Args:
        layers: n.
        width: Width of what comes out; that of what comes in if left out. The queue and a predictor behind follow it
            (M18).
        dropout: After each layer.
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

    def fit(self, width: int, encoder: Encoder) -> int:  # noqa: ARG002 - the hook's form
        """Make the layers.

        Raises:
            CseError: No layer is there to change the width.
        """
        out = width if self.width is None else self.width
        if self.layers == 0 and out != width:
            raise CseError(
                f"{self.name}: layers = 0 keeps {width} dimensions, width = {out} asks for others",
                "leave width out, or use one layer or more",
            )
        self.network = nn.Sequential(*self.parts(width, out) if self.layers else ())
        return out

    def parts(self, width: int, out: int) -> list[nn.Module]:
        """Return the modules of one layer or more that make `out` dimensions of `width`."""
        outs = [width] * (self.layers - 1) + [out]
        return [part for each in outs for part in self.block(width, each)]

    def block(self, width: int, out: int) -> list[nn.Module]:
        """Return a dense layer, normalised and dropped; there is no non-linearity in it."""
        return [dense_layer(width, out), nn.LayerNorm(out), nn.Dropout(self.dropout)]

    def forward(self, pooled: Tensor, groups: Sequence[tuple[str, int]]) -> Tensor:  # noqa: ARG002 - the hook's form
        """Return (B, width)."""
        output: Tensor = self.network(pooled)
        return output
