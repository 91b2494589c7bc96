"""Projectors of dense layers with batch normalization and ReLU, as in DiffCSE and SCD."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field
from torch import Tensor, nn

from registry import HEADS
from registry.heads.batch_norm import BatchNorm, Together
from registry.types import Encoder, Head

Width = Annotated[int, Field(gt=0)]


@HEADS.register("batch_norm_relu")
class BatchNormRelu(Head):
    """Project by dense layers with batch normalization and ReLU between them: h = BN₂(V·ReLU(BN₁(Ux))).

    U is 2D × D and V D × 2D, without bias, from N(0, 0.02²). BN₁ has scale and shift, BN₂ has neither. With `widths`
    [a, b, c] there are three layers, h = BN₃(W·ReLU(BN₂(V·ReLU(BN₁(Ux))))) with U a × D, V b × a and W c × b. A bias
    before batch normalization would have no effect in training.

    Shapes: (B, D) → (B, the last width).

    Source: DiffCSE's code (`ProjectionMLP`, used with `--batchnorm`), which normalizes the 2N rows of both views
    together; SCD's code (`cl_init` in `scd/models.py`), which normalizes each view separately, and whose loss
    normalizes the output. Evaluation drops the head. A batch of one row, which has no variance, is an error.

    Args:
        together: Views whose rows share means and variances: "all" views of one pass through the encoder, a list of
            views, or a list of such lists. Every other view has separate statistics.
        sync: Whether statistics cover the rows of all devices, so that their number has no effect, or of each device,
            as in the authors' code.
        widths: Output width of each layer. Default: [2D, D].
        normalize_last: Whether the output of the last layer is normalized. Default: true.

    Example:
        [encoders.online.heads.batch_norm_relu]
        together = "all"
        widths = [256, 128]
    """

    def __init__(
        self,
        together: Together = "all",
        sync: bool = True,
        widths: Annotated[list[Width], Field(min_length=1)] | None = None,
        normalize_last: bool | None = None,
    ) -> None:
        super().__init__()
        self.together = together
        self.sync = sync
        self.widths = widths
        self.normalize_last = normalize_last is not False

    def fit(self, width: int, encoder: Encoder) -> int:  # noqa: ARG002 - the hook's form
        """Create the layers. Without `widths` they keep the width."""
        outs = self.widths or [2 * width, width]
        layers = [nn.Linear(into, out, bias=False) for into, out in zip([width, *outs[:-1]], outs, strict=True)]
        for layer in layers:
            nn.init.normal_(layer.weight, std=0.02)
        self.layers = nn.ModuleList(layers)
        normalized = outs if self.normalize_last else outs[:-1]
        self.norms = nn.ModuleList(
            BatchNorm(out, self.together, self.sync, affine=place < len(outs) - 1)
            for place, out in enumerate(normalized)
        )
        return outs[-1]

    def forward(self, pooled: Tensor, groups: Sequence[tuple[str, int]]) -> Tensor:
        """Return (B, the last width)."""
        rows, last = pooled, len(self.layers) - 1
        for place, layer in enumerate(self.layers):
            rows = layer(rows.to(pooled.dtype))
            if place < len(self.norms):
                rows = self.norms[place](rows, groups)
            if place < last:
                rows = rows.relu()
        return rows
