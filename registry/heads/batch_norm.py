"""Batch normalization over the rows of selected views and all devices, with the exact gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from registry.distributed import sum_devices, world_size
from registry.errors import CseError, suggestion
from registry.tokens import at_least_single, copy_to_device

Together = Literal["all"] | list[str] | list[list[str]]
"""Views that share statistics: all, the listed views, or several groups. Other views have separate statistics."""
EPSILON = 1e-5
MOMENTUM = 0.1


class BatchNorm(nn.Module):
    """Batch normalization as torch's `BatchNorm1d`, with statistics over the rows of selected views.

    y = γ·(x − mean)/√(var + 10⁻⁵) + β, in single precision or higher. Training uses means and biased variances of the
    batch, and updates the running ones (momentum 0.1, unbiased) group by group. Evaluation uses the running ones.

    Args:
        width: Width D of the rows.
        together: Views whose rows share statistics.
        sync: Whether statistics cover the rows of all devices, or of each device.
        affine: Whether γ and β are learned.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, width: int, together: Together, sync: bool, affine: bool = True) -> None:
        super().__init__()
        self.together = named(together)
        self.sync = sync
        self.weight = nn.Parameter(torch.ones(width)) if affine else None
        self.bias = nn.Parameter(torch.zeros(width)) if affine else None
        self.register_buffer("running_mean", torch.zeros(width))
        self.register_buffer("running_var", torch.ones(width))

    def forward(self, rows: Tensor, groups: Sequence[tuple[str, int]]) -> Tensor:
        """Return (B, D) in single precision or higher.

        Args:
            rows: (B, D) stacked rows of several views.
            groups: View and number of rows, in order. Empty if all rows belong to one view.
        """
        exact = at_least_single(rows)
        if not self.training:
            return self._scaled((exact - self.running_mean) / (self.running_var + EPSILON).sqrt())
        sizes = [size for _, size in groups] or [len(rows)]
        scopes = self._scopes([view for view, _ in groups])
        counts = copy_to_device(self._counts(sizes, scopes, groups).to(exact.dtype), exact.device)
        mean = self._sums(torch.split(exact, sizes), scopes) / counts
        centered = [part - mean[scope] for part, scope in zip(torch.split(exact, sizes), scopes, strict=True)]
        var = self._sums([part.square() for part in centered], scopes) / counts
        for own_mean, own_var in zip(mean.detach(), (var * counts / (counts - 1)).detach(), strict=True):
            self.running_mean = self.running_mean.lerp(own_mean.to(self.running_mean.dtype), MOMENTUM)
            self.running_var = self.running_var.lerp(own_var.to(self.running_var.dtype), MOMENTUM)
        scale = (var + EPSILON).sqrt()
        return self._scaled(torch.cat([part / scale[scope] for part, scope in zip(centered, scopes, strict=True)]))

    def _scopes(self, views: Sequence[str]) -> list[int]:
        """Return for each view the index, from 0, of its statistics."""
        if self.together == "all" or not views:
            return [0] * max(1, len(views))
        unknown = [view for shared in self.together for view in shared if view not in views]
        if unknown:
            raise CseError(
                f"together: '{unknown[0]}' is not a view of this encoder.{suggestion(unknown[0], views)}",
                f"choose from {', '.join(views[:5])}",
                code="heads.unknown_view",
            )
        owner = {view: shared[0] for shared in self.together for view in shared}
        keys = [owner.get(view, view) for view in views]
        order = list(dict.fromkeys(keys))
        return [order.index(key) for key in keys]

    def _counts(self, sizes: Sequence[int], scopes: Sequence[int], groups: Sequence[tuple[str, int]]) -> Tensor:
        """Return (S, 1) number of rows of each scope. All devices have the same number."""
        devices = world_size() if self.sync else 1
        found = [0] * (max(scopes) + 1)
        for size, scope in zip(sizes, scopes, strict=True):
            found[scope] += size * devices
        if min(found) < 2:
            of = f" of view '{groups[scopes.index(found.index(min(found)))][0]}'" if groups else ""
            raise CseError(
                f"batch normalization requires at least two rows, but has one row{of}",
                "set train.batch_size to 2 or more (per device, with sync = false), or share statistics by `together`",
                code="heads.batch_too_small",
            )
        return torch.tensor(found).unsqueeze(1)

    def _sums(self, parts: Sequence[Tensor], scopes: Sequence[int]) -> Tensor:
        """Return (S, D) sums of the rows of each scope, over all devices if `sync` is true."""
        own = [
            torch.stack([p.sum(0) for p, s in zip(parts, scopes, strict=True) if s == scope]).sum(0)
            for scope in range(max(scopes) + 1)
        ]
        return sum_devices(torch.stack(own)) if self.sync else torch.stack(own)

    def _scaled(self, normal: Tensor) -> Tensor:
        return normal if self.weight is None or self.bias is None else normal * self.weight + self.bias


def named(together: Together) -> Literal["all"] | list[list[str]]:
    """Return the groups of views that share statistics."""
    if together == "all":
        return "all"
    names = [each for each in together if isinstance(each, str)]
    groups = [group for group in (names, *(each for each in together if isinstance(each, list))) if group]
    views = [view for group in groups for view in group]
    twice = next((view for view in views if views.count(view) > 1), None)
    if twice is not None:
        raise CseError(f"together: view '{twice}' appears twice", "list each view once", code="heads.duplicate_view")
    return groups
