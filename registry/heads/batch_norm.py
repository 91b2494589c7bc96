"""Batch normalisation over the rows of chosen views and of all devices, with the exact gradient. Registers nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from registry.distributed import sum_devices, world_size
from registry.errors import CseError, suggestion
from registry.tokens import at_least_single, copy_to_device

Together = Literal["all"] | list[str] | list[list[str]]
"""Which views share statistics: all, the views named, or several such groups; a view not named has its own."""
EPSILON = 1e-5
MOMENTUM = 0.1


class BatchNorm(nn.Module):
    """y = γ·(x − mean)/√(var + 10⁻⁵) + β, the statistics those of the rows that share them; torch's `BatchNorm1d`.

    Means and biased variances of the batch in training, running ones (momentum 0.1, unbiased) in eval mode, which each
    forward pass in training updates, group by group. At least single precision.

    Args:
        width: D.
        together: Views whose rows share statistics.
        sync: Over the rows of all devices instead of each device's own.
        affine: Whether there are γ and β.
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
        """Return (B, D), whatever the precision of `rows` in single at least.

        Args:
            rows: (B, D), the rows of several views below each other.
            groups: View and its rows, in order; empty where all rows are of one view.

        Raises:
            CseError: One row has statistics of its own, or a view that shares its statistics is not here.
        """
        exact = at_least_single(rows)
        if not self.training:
            return self._scaled((exact - self.running_mean) / (self.running_var + EPSILON).sqrt())
        sizes = [size for _, size in groups] or [len(rows)]
        scopes = self._scopes([view for view, _ in groups])
        counts = copy_to_device(self._counts(sizes, scopes, groups).to(exact.dtype), exact.device)
        mean = self._sums(torch.split(exact, sizes), scopes) / counts
        centred = [part - mean[scope] for part, scope in zip(torch.split(exact, sizes), scopes, strict=True)]
        var = self._sums([part.square() for part in centred], scopes) / counts
        self._remember(mean.detach(), (var * counts / (counts - 1)).detach())
        scale = (var + EPSILON).sqrt()
        return self._scaled(torch.cat([part / scale[scope] for part, scope in zip(centred, scopes, strict=True)]))

    def _scopes(self, views: Sequence[str]) -> list[int]:
        """Return the number, counted from 0, of the statistics that each view's rows have a part in."""
        if self.together == "all" or not views:
            return [0] * max(1, len(views))
        unknown = [view for shared in self.together for view in shared if view not in views]
        if unknown:
            raise CseError(
                f"together: '{unknown[0]}' is not a view of this encoder.{suggestion(unknown[0], views)}",
                f"name some of {', '.join(views)}",
            )
        owner = {view: shared[0] for shared in self.together for view in shared}
        keys = [owner.get(view, view) for view in views]
        order = list(dict.fromkeys(keys))
        return [order.index(key) for key in keys]

    def _counts(self, sizes: Sequence[int], scopes: Sequence[int], groups: Sequence[tuple[str, int]]) -> Tensor:
        """Return (S, 1) rows behind each mean: every device has as many as this one."""
        devices = world_size() if self.sync else 1
        found = [0] * (max(scopes) + 1)
        for size, scope in zip(sizes, scopes, strict=True):
            found[scope] += size * devices
        if min(found) < 2:
            of = f" of view '{groups[scopes.index(found.index(min(found)))][0]}'" if groups else ""
            raise CseError(
                f"batch normalisation over one row{of}: it has no variance, and its output would be constant",
                "set train.batch_size to 2 or more (for each device, with sync = false), or share rows by `together`",
            )
        return torch.tensor(found).unsqueeze(1)

    def _sums(self, parts: Sequence[Tensor], scopes: Sequence[int]) -> Tensor:
        """Return (S, D): the sum of the rows of each scope, over all devices where statistics are synchronised."""
        own = [
            torch.stack([p.sum(0) for p, s in zip(parts, scopes, strict=True) if s == scope]).sum(0)
            for scope in range(max(scopes) + 1)
        ]
        return sum_devices(torch.stack(own)) if self.sync else torch.stack(own)

    def _remember(self, means: Tensor, variances: Tensor) -> None:
        for mean, var in zip(means, variances, strict=True):
            self.running_mean = self.running_mean.lerp(mean.to(self.running_mean.dtype), MOMENTUM)
            self.running_var = self.running_var.lerp(var.to(self.running_var.dtype), MOMENTUM)

    def _scaled(self, normal: Tensor) -> Tensor:
        return normal if self.weight is None or self.bias is None else normal * self.weight + self.bias


def named(together: Together) -> Literal["all"] | list[list[str]]:
    """Return the groups of views that share statistics.

    Raises:
        CseError: A view is named twice.
    """
    if together == "all":
        return "all"
    names = [each for each in together if isinstance(each, str)]
    groups = [group for group in (names, *(each for each in together if isinstance(each, list))) if group]
    views = [view for group in groups for view in group]
    twice = next((view for view in views if views.count(view) > 1), None)
    if twice is not None:
        raise CseError(f"together names view '{twice}' twice", "a view has one place: name it once")
    return groups
