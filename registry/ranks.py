"""Ranks as vectors, for losses and encoders that compare orders."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def unit_rows(vectors: Tensor) -> Tensor:
    """Return the rows of `vectors` (n, D), normalized to length 1."""
    return F.normalize(vectors, dim=1, eps=1e-8)


def unit_ranks(scores: Tensor) -> Tensor:
    """Return (n, C): ranks in each row of `scores` (n, C) minus their mean, normalized to length 1.

    Equal scores have their mean rank. The inner product of two rows is Spearman's ρ of the scores. A constant row
    becomes zero.
    """
    ordered, rows = scores.sort(dim=1).values, scores.contiguous()
    below = torch.searchsorted(ordered, rows)
    up_to = torch.searchsorted(ordered, rows, right=True)
    ranks = (below + up_to).to(scores.dtype)  # twice the mean rank, plus one
    return F.normalize(ranks - ranks.mean(dim=1, keepdim=True), dim=1)
