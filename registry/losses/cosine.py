"""Cosine similarity as the field computes it, safe under mixed precision. Registers nothing."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from registry.tokens import at_least_single

EPSILON = 1e-8
"""Smallest norm divided by, as in SimCSE's code."""


def unit(vectors: Tensor) -> Tensor:
    """Return vectors of length 1 along the last axis, in at least single precision; zero vectors stay zero."""
    return F.normalize(at_least_single(vectors), dim=-1, eps=EPSILON)


def cosine_matrix(left: Tensor, right: Tensor) -> Tensor:
    """Return (n, m) cosines of every row of `left` (n, D) with every row of `right` (m, D)."""
    with torch.autocast(left.device.type, enabled=False):
        return unit(left) @ unit(right).T


def cosine_rows(left: Tensor, right: Tensor) -> Tensor:
    """Return (…) cosines of `left` (…, D) with `right` (…, D), row by row."""
    with torch.autocast(left.device.type, enabled=False):
        return (unit(left) * unit(right)).sum(dim=-1)
