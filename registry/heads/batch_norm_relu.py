"""Projectors of dense layers with batch normalisation and ReLU: DiffCSE's and SCD's."""

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
    """Project by dense layers, normalised over the batch and bent between them: h = BN₂(V·ReLU(BN₁(Ux))).

    U is 2D × D and V D × 2D, without bias, from N(0, 0.02²); BN₁ has scale and shift, BN₂ has not. With `widths`
    [a, b, c] there are three layers, h = BN₃(W·ReLU(BN₂(V·ReLU(BN₁(Ux))))) with U a × D, V b × a and W c × b. A bias
    before batch normalisation would change nothing in training.

    Args:
        together: Views whose rows share means and variances: "all" that go through the encoder in one pass, a list of
            views, or a list of such lists; a view not named has its own.
        sync: Over the rows of all devices, so that their number changes nothing; else over each device's own, as the
            authors' code on several devices.
        widths: Width of what each layer makes; left out is [2D, D].
        normalise_last: Whether the last layer is normalised too; left out is yes.

    Shapes: (B, D) → (B, the last width).

    Source: DiffCSE's code (`ProjectionMLP`, used with `--batchnorm`), which normalises both views' 2N rows together;
    SCD's code (`cl_init` in `scd/models.py`), each view by itself, whose loss normalises what comes out.
    Evaluation drops the head. A batch of one row, which has no variance, is refused.
    """

    def __init__(
        self,
        together: Together = "all",
        sync: bool = True,
        widths: Annotated[list[Width], Field(min_length=1)] | None = None,
        normalise_last: bool | None = None,
    ) -> None:
        super().__init__()
        self.together = together
        self.sync = sync
        self.widths = widths
        self.normalise_last = normalise_last is not False

    def fit(self, width: int, encoder: Encoder) -> int:  # noqa: ARG002 - the hook's form
        """Make the layers; without `widths` they keep the width."""
        outs = self.widths or [2 * width, width]
        layers = [nn.Linear(into, out, bias=False) for into, out in zip([width, *outs[:-1]], outs, strict=True)]
        for layer in layers:
            nn.init.normal_(layer.weight, std=0.02)
        self.layers = nn.ModuleList(layers)
        normalised = outs if self.normalise_last else outs[:-1]
        self.norms = nn.ModuleList(
            BatchNorm(out, self.together, self.sync, affine=place < len(outs) - 1)
            for place, out in enumerate(normalised)
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
