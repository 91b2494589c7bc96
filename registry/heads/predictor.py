"""MoCoSE's predictor: what the online side has and the target side lacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field
from torch import Tensor, nn

from registry import HEADS
from registry.heads.layers import block, dense_layer, width_out
from registry.types import Encoder, Head, Tune


@HEADS.register("predictor")
class Predictor(Head):
    """Predict the other side's projection by n layers: n − 1 times drop(LayerNorm(Wx + b)), then tanh(Wx + b).

    W from N(0, 0.02²), b zero. 0 layers leave the vector as it is. What is predicted has to be as wide as the output.

    Shapes: (B, D) → (B, width).

    Source: MoCoSE (2022, section 3.2; Table 4 sweeps the layers) and its code (`mlp_layers`); BYOL (Grill et al. 2020)
    for a predictor on one side.

    Args:
        layers: n.
        width: Width of what comes out; that of what comes in if left out.
        dropout: After each layer but the last.
    """

    def __init__(
        self,
        layers: Annotated[int, Field(ge=0, le=3), Tune(0, 3)] = 2,
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
        out = width_out("predictor", self.layers, width, self.width)
        if self.layers == 0:
            self.network = nn.Sequential()
            return out
        first = [part for _ in range(self.layers - 1) for part in block(width, width, self.dropout)]
        self.network = nn.Sequential(*first, dense_layer(width, out), nn.Tanh())
        return out

    def forward(self, pooled: Tensor, groups: Sequence[tuple[str, int]]) -> Tensor:  # noqa: ARG002 - the hook's form
        """Return (B, width)."""
        output: Tensor = self.network(pooled)
        return output

    def dense(self) -> tuple[Tensor, Tensor, str] | None:
        """Return the layer where there is but one."""
        if self.layers != 1:
            return None
        only = self.network[0]
        assert isinstance(only, nn.Linear)
        return only.weight, only.bias, "Tanh"
