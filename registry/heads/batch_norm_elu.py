"""ConIsI's head for its contrastive and its interactive objective."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from torch.nn.functional import elu

from registry import HEADS
from registry.heads.batch_norm import BatchNorm, Together
from registry.heads.layers import dense_layer
from registry.types import Encoder, Head


@HEADS.register("batch_norm_elu")
class BatchNormElu(Head):
    """Normalize each dimension over the batch and apply ELU: h = ELU(BN(Wx + b)).

    W from N(0, 0.02²), b zero. BN has scale and shift. Both objectives read the output of this one head.

    Shapes: (B, D) → (B, D).

    Source: ConIsI (eq. 2 and 6, whose W, b and BN are the same). Doubtful and settled in methods/conisi.md: the rows of
    the statistics (C2 → `together`), several devices (C4 → `sync`). Evaluation drops the head (C3). A batch of one row,
    which has no variance, is an error.

    Args:
        together: Views whose rows share means and variances: a list of views, a list of such lists, or "all". Every
            other view has separate statistics, as if the head were called once for each.
        sync: Whether statistics cover the rows of all devices, so that their number has no effect, or of each device.

    Example:
        [encoders.online.heads.batch_norm_elu]
        together = ["anchor", "positive"]
    """

    def __init__(self, together: Together = [], sync: bool = True) -> None:  # noqa: B006 - a declaration
        super().__init__()
        self.together = together
        self.sync = sync

    def fit(self, width: int, encoder: Encoder) -> int:  # noqa: ARG002 - the hook's form
        """Create the layer, which keeps the width."""
        self.linear = dense_layer(width, width)
        self.norm = BatchNorm(width, self.together, self.sync)
        return width

    def forward(self, pooled: Tensor, groups: Sequence[tuple[str, int]]) -> Tensor:
        """Return (B, D)."""
        return elu(self.norm(self.linear(pooled), groups))
