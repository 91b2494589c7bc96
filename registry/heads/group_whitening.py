"""WhitenedCSE's head: the batch whitened inside random groups of dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from registry import HEADS, Tune
from registry.distributed import sum_devices, world_size
from registry.errors import CseError
from registry.tokens import at_least_single
from registry.types import Encoder, Head


@HEADS.register("group_whitening")
class GroupWhitening(Head):
    """Give each view's rows mean 0 and, inside each of G groups of dimensions, covariance I.

    xᵍ ← (xᵍ − μᵍ)·U·diag(1/√(s + ε))·Uᵀ with Cᵍ = U·diag(s)·Uᵀ the covariance (divisor N) of the N rows of a view, on
    all devices, in the D/G dimensions of group g. Groups are made of a random order of the dimensions, another one for
    each view and step, from torch's global stream; in eval mode they are as the dimensions stand. It has no weights.

    Shapes: (B, D) → (B, D), in at least single precision.

    Source: WhitenedCSE (Zhuo et al. 2023, section 3.2) and its code (`ShuffledGroupWhitening`), behind which stands a
    dense layer with tanh (`mlp`); evaluation drops both. Doubtful and settled in methods/whitenedcse.md: which rows are
    a view (WH2), no gradient through the covariance (WH3 → `detach_statistics`), directions without variance (WH6 →
    `epsilon`).

    Args:
        groups: G; it divides D.
        shuffle: Whether dimensions are ordered at random; a single group is not.
        detach_statistics: Whether the covariance is a constant for the gradient, as in the code; the mean never is.
        epsilon: ε; 0 divides by what is there, as published.

    Raises:
        CseError: G does not divide D, or a view has one row.
    """

    def __init__(
        self,
        groups: Annotated[int, Field(ge=1)] = 128,
        shuffle: bool = True,
        detach_statistics: bool = True,
        epsilon: Annotated[float, Field(ge=0), Tune(1e-8, 1e-2, log=True)] = 1e-5,
    ) -> None:
        super().__init__()
        self.groups, self.shuffle = groups, shuffle and groups > 1
        self.detach_statistics, self.epsilon = detach_statistics, epsilon

    def fit(self, width: int, encoder: Encoder) -> int:  # noqa: ARG002 - the hook's form
        """Check that the groups are equally large; the width stays."""
        if width % self.groups:
            near = max(count for count in range(1, min(self.groups, width) + 1) if width % count == 0)
            raise CseError(
                f"group_whitening: groups = {self.groups} does not divide the width {width}", f"set groups = {near}"
            )
        return width

    def forward(self, pooled: Tensor, groups: Sequence[tuple[str, int]]) -> Tensor:
        """Return (B, D)."""
        sizes = [size for _, size in groups] or [len(pooled)]
        return torch.cat([self._whitened(rows) for rows in torch.split(at_least_single(pooled), sizes)])

    def _whitened(self, rows: Tensor) -> Tensor:
        count, width = len(rows) * world_size(), rows.shape[1]
        if count < 2:
            raise CseError("group_whitening: a view of one row has no covariance", "set train.batch_size to 2 or more")
        with torch.autocast(rows.device.type, enabled=False):
            order = self._order(width, rows.device)
            centred = rows[:, order] - (sum_devices(rows.sum(dim=0)) / count)[order]
            parts = centred.view(len(rows), self.groups, -1).transpose(0, 1)
            covariance = sum_devices(parts.transpose(1, 2) @ parts) / count
            variances, directions = torch.linalg.eigh(covariance.detach() if self.detach_statistics else covariance)
            scale = (variances.clamp(min=0) + self.epsilon).rsqrt()
            white: Tensor = parts @ (directions * scale.unsqueeze(1)) @ directions.transpose(1, 2)
            return white.transpose(0, 1).flatten(1)[:, order.argsort()]

    def _order(self, width: int, device: torch.device) -> Tensor:
        """Return which dimension stands where, the same on every device: the order of numbers that all add up."""
        if not (self.shuffle and self.training):
            return torch.arange(width, device=device)
        return sum_devices(torch.rand(width, device=device)).argsort()
