"""WhitenedCSE's head: whitening of the batch within random groups of dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from registry import HEADS, Tune
from registry.distributed import rank, sum_devices, world_size
from registry.errors import CseError
from registry.tokens import at_least_single
from registry.types import Encoder, Head


@HEADS.register("group_whitening")
class GroupWhitening(Head):
    """Whiten parts of the batch: mean 0 and, within each of G groups of dimensions, covariance I.

    xᵍ ← (xᵍ − μᵍ)·U·diag(1/√(s + ε))·Uᵀ with Cᵍ = U·diag(s)·Uᵀ the covariance (divisor N) of the N rows of a part, on
    all devices, in the D/G dimensions of group g. In training, groups are consecutive parts of a random permutation of
    the dimensions, sampled for each part and step from torch's global generator. Evaluation uses the original order.
    The head has no weights.

    Shapes: (B, D) → (B, D), in single precision or higher.

    Source: WhitenedCSE (Zhuo et al. 2023, section 3.2) and its code (SupstarZh/WhitenedCSE @65fe70a,
    whitenedcse/shuffled_group_whitening.py:24-69), followed by a dense layer with tanh (`mlp`); evaluation drops both.
    Doubtful and settled in methods/whitenedcse.md: which rows are a part (WH2 → `rows`), no gradient through the
    covariance (WH3 → `detach_statistics`), directions without variance (WH6 → `epsilon`).

    Args:
        groups: Number G of groups, a divisor of D.
        rows: Rows of a part: "views", the rows of one view, or "sentences". The latter orders the batch by sentences,
            with all views of a sentence next to each other, and cuts it into as many parts as there are views, so that
            a part contains all views of some sentences.
        shuffle: Whether the order of dimensions is random. It has no effect with one group.
        detach_statistics: Whether the gradient treats the covariance as a constant, as in the code. The mean always has
            gradient.
        epsilon: Constant ε added to the variances. 0 is the published version.

    Raises:
        CseError: If G does not divide D, or a part has one row, or rows = "sentences" and the views differ in size.

    Example:
        [encoders.online.heads.group_whitening]
        groups = 64
    """

    def __init__(
        self,
        groups: Annotated[int, Field(ge=1)] = 128,
        rows: Literal["views", "sentences"] = "views",
        shuffle: bool = True,
        detach_statistics: bool = True,
        epsilon: Annotated[float, Field(ge=0), Tune(1e-8, 1e-2, log=True)] = 1e-5,
    ) -> None:
        super().__init__()
        self.groups, self.rows, self.shuffle = groups, rows, shuffle and groups > 1
        self.detach_statistics, self.epsilon = detach_statistics, epsilon

    def fit(self, width: int, encoder: Encoder) -> int:  # noqa: ARG002 - the hook's form
        """Check that G divides the width, and return the same width."""
        if width % self.groups:
            near = max(count for count in range(1, min(self.groups, width) + 1) if width % count == 0)
            raise CseError(
                f"group_whitening: groups = {self.groups} does not divide the width {width}",
                f"set groups = {near}",
                code="heads.indivisible_width",
            )
        return width

    def forward(self, pooled: Tensor, groups: Sequence[tuple[str, int]]) -> Tensor:
        """Return (B, D)."""
        sizes = [size for _, size in groups] or [len(pooled)]
        order, lengths = self._by_sentence(sizes, pooled.device)
        parts = torch.split(at_least_single(pooled)[order], lengths)
        white = [self._whitened(part, size * world_size()) for part, size in zip(parts, sizes, strict=True)]
        return torch.cat(white)[order.argsort()]

    def _by_sentence(self, sizes: Sequence[int], device: torch.device) -> tuple[Tensor, list[int]]:
        """Return the order of this device's rows, and how many of them belong to each part of the whole batch."""
        order = torch.arange(sum(sizes), device=device)
        if self.rows == "views":
            return order, list(sizes)
        if len(set(sizes)) > 1:
            raise CseError(
                f'group_whitening: rows = "sentences" requires views of the same size, not {list(sizes)}',
                'set rows = "views"',
                code="heads.uneven_views",
            )
        part, first = sizes[0] * world_size(), len(order) * rank()
        ends = [min(max(part * (place + 1) - first, 0), len(order)) for place in range(len(sizes))]
        lengths = [end - start for start, end in zip([0, *ends], ends, strict=False)]
        return order.view(len(sizes), -1).T.flatten(), lengths

    def _whitened(self, rows: Tensor, count: int) -> Tensor:
        """Return this device's rows of a part, which has `count` rows on all devices, whitened."""
        width = rows.shape[1]
        if count < 2:
            raise CseError(
                "group_whitening requires at least two rows per part, but has one row",
                "set train.batch_size to 2 or more",
                code="heads.batch_too_small",
            )
        with torch.autocast(rows.device.type, enabled=False):
            order = self._order(width, rows.device)
            centered = rows[:, order] - (sum_devices(rows.sum(dim=0)) / count)[order]
            parts = centered.view(len(rows), self.groups, width // self.groups).transpose(0, 1)
            covariance = sum_devices(parts.transpose(1, 2) @ parts) / count
            variances, directions = torch.linalg.eigh(covariance.detach() if self.detach_statistics else covariance)
            scale = (variances.clamp(min=0) + self.epsilon).rsqrt()
            white: Tensor = parts @ (directions * scale.unsqueeze(1)) @ directions.transpose(1, 2)
            return white.transpose(0, 1).flatten(1)[:, order.argsort()]

    def _order(self, width: int, device: torch.device) -> Tensor:
        """Return a permutation of the dimensions, equal on every device because random numbers are summed."""
        if not (self.shuffle and self.training):
            return torch.arange(width, device=device)
        return sum_devices(torch.rand(width, device=device)).argsort()
