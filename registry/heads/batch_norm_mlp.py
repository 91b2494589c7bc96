"""BSL's predictor: a sequence of MLPs with batch normalization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field
from torch import Tensor, nn

from registry import HEADS
from registry.heads.batch_norm import BatchNorm, Together
from registry.types import Encoder, Head, Tune


@HEADS.register("batch_norm_mlp")
class BatchNormMlp(Head):
    """Predict by n consecutive MLPs, each U·ReLU(V·ReLU(BN(Wx + b)) + c) + d.

    W is mD × D, V mD × mD and U D × mD, all initialized as torch's dense layers. BN has scale and shift. With D = 768,
    n = 3 and m = 10 these are 212 million weights, twice BERT's.

    Shapes: (B, D) → (B, D).

    Source: BSL (Zhang et al. 2021) and its code (`MLP` in `BYOLoss.py`), after BYOL's predictor. Doubtful and settled
    in methods/bsl.md: which rows share statistics (BS3, `together`).

    Args:
        blocks: Number n of MLPs.
        expansion: Ratio m of the inner width to D.
        together: Views whose rows share means and variances: a list of views, a list of such lists, or "all". Every
            other view has separate statistics, as if the head were called once for each.
        sync: Whether statistics cover the rows of all devices, so that their number has no effect, or of each device.

    Example:
        [encoders.online.heads.batch_norm_mlp]
        blocks = 1
        expansion = 2
    """

    def __init__(
        self,
        blocks: Annotated[int, Field(gt=0), Tune(1, 3)] = 3,
        expansion: Annotated[int, Field(gt=0), Tune(1, 10)] = 10,
        together: Together = [],  # noqa: B006 - a declaration, never changed
        sync: bool = True,
    ) -> None:
        super().__init__()
        self.blocks, self.expansion, self.together, self.sync = blocks, expansion, together, sync

    def fit(self, width: int, encoder: Encoder) -> int:  # noqa: ARG002 - the hook's form
        """Create the layers, which keep the width."""
        inner = self.expansion * width
        self.first, self.norm, self.second, self.third = (nn.ModuleList() for _ in range(4))
        for _ in range(self.blocks):
            self.first.append(nn.Linear(width, inner))
            self.norm.append(BatchNorm(inner, self.together, self.sync))
            self.second.append(nn.Linear(inner, inner))
            self.third.append(nn.Linear(inner, width))
        return width

    def forward(self, pooled: Tensor, groups: Sequence[tuple[str, int]]) -> Tensor:
        """Return (B, D)."""
        for first, norm, second, third in zip(self.first, self.norm, self.second, self.third, strict=True):
            normal = norm(first(pooled), groups).relu().to(pooled.dtype)
            pooled = third(second(normal).relu())
        return pooled
