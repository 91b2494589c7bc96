"""What keeps the host from waiting for a GPU. On a CPU each function does what it stands for, and nothing else."""

from __future__ import annotations

from torch import Tensor, device


def sent(values: Tensor, place: device) -> Tensor:
    """Return host values on a device; a copy from pinned memory lets the host go on at once."""
    if place.type == "cuda" and values.device.type == "cpu":
        values = values.pin_memory()
    return values.to(place, non_blocking=True)


def attention_mask(mask: Tensor) -> Tensor:
    """Return the mask (B, L) in a form that transformers takes without looking at its values.

    Given (B, L), transformers leaves it out where there is no padding, which is known only once the GPU is done with
    all before it; four dimensions are taken as they are.
    """
    if mask.device.type == "cpu" or mask.ndim > 2:
        return mask
    return mask.bool()[:, None, None, :].expand(-1, 1, mask.shape[1], -1)
