"""DiffCSE's projector."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from registry import HEADS
from registry.heads.batch_norm import BatchNorm, Together
from registry.types import Encoder, Head


@HEADS.register("batch_norm_relu")
class BatchNormRelu(Head):
    """Project through twice the width, normalised over the batch: h = BN₂(V·ReLU(BN₁(Ux))).

    U is 2D × D and V D × 2D, without bias, from N(0, 0.02²); BN₁ has scale and shift, BN₂ has not.

    Args:
        together: Views whose rows share means and variances: "all" that go through the encoder in one pass, a list of
            views, or a list of such lists; a view not named has its own.
        sync: Over the rows of all devices, so that their number changes nothing; else over each device's own, as the
            authors' code on several devices.

    Shapes: (B, D) → (B, D).

    Source: DiffCSE's code (`ProjectionMLP`, used with `--batchnorm`), which normalises both views' 2N rows together.
    Evaluation drops the head. A batch of one row, which has no variance, is refused.
    """

    def __init__(self, together: Together = "all", sync: bool = True) -> None:
        super().__init__()
        self.together = together
        self.sync = sync

    def fit(self, width: int, encoder: Encoder) -> int:  # noqa: ARG002 - the hook's form
        """Make the layers; they keep the width."""
        self.up = nn.Linear(width, 2 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)
        for layer in (self.up, self.down):
            nn.init.normal_(layer.weight, std=0.02)
        self.inner = BatchNorm(2 * width, self.together, self.sync)
        self.outer = BatchNorm(width, self.together, self.sync, affine=False)
        return width

    def forward(self, pooled: Tensor, groups: Sequence[tuple[str, int]]) -> Tensor:
        """Return (B, D)."""
        bent = self.inner(self.up(pooled), groups).relu()
        projected: Tensor = self.outer(self.down(bent.to(pooled.dtype)), groups)
        return projected
