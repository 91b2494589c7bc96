"""What is left of a small change once it is added to numbers of limited precision. Registers nothing."""

from __future__ import annotations

import torch
from torch import Tensor

NAMES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}


def share_changed(values: Tensor, changes: Tensor, precision: torch.dtype) -> float:
    """Return the share of `values` that adding `changes` moves, both and their sum rounded to `precision`."""
    rounded = values.to(precision)
    return float(((rounded + changes.to(precision)) != rounded).float().mean())


def share_coarse(values: Tensor, epsilon: float) -> float:
    """Return the share of single-precision `values` whose next larger number is further away than `epsilon`."""
    sizes = values.abs()
    gaps = torch.nextafter(sizes, torch.full_like(sizes, torch.inf)) - sizes
    return float((gaps > epsilon).float().mean())


def precision_in_use(device: torch.device) -> torch.dtype:
    """Return what matrix products are computed in here and now."""
    kind = device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else torch.float32


def describe_loss(epsilon: float, vectors: Tensor, direction: Tensor, running: torch.dtype) -> str | None:
    """Return a sentence if `epsilon` is too small for the numbers it is added to, or for those computed with.

    Args:
        epsilon: Size of the change.
        vectors: (B, L, W) what is changed.
        direction: (B, L, W) −1, 0 or 1; zeros are left out of account.
        running: What is computed with.
    """
    changed = direction != 0
    values = vectors.float()[changed]
    changes = epsilon * direction.float()[changed]
    coarse, shares = share_coarse(values, epsilon), {p: share_changed(values, changes, p) for p in NAMES}
    if coarse == 0 and shares[running] == 1:
        return None
    mean = float(((values + changes) - values).abs().mean())
    told = (
        f"epsilon = {epsilon:g} changes {shares[torch.float32]:.2%} of the token vectors' elements in fp32, "
        f"by {mean:.2g} on average (the spacing of the numbers is larger for {coarse:.2%}); "
        f"bf16 would change {shares[torch.bfloat16]:.2%}, fp16 {shares[torch.float16]:.2%}"
    )
    if running != torch.float32:
        told += f". This run computes in {NAMES[running]}: set train.precision = 'fp32', or a larger epsilon"
    return told
