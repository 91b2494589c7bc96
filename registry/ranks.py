"""Ranks as vectors, for losses and encoders that compare orders. Registers nothing."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def unit_rows(vectors: Tensor) -> Tensor:
    """Return the rows of `vectors` (n, D) at length 1."""
    return F.normalize(vectors, dim=1, eps=1e-8)


def unit_ranks(scores: Tensor) -> Tensor:
    """Return (n, C): the ranks of each row of `scores` (n, C), less their mean and brought to length 1.

    Equal scores share their mean rank. The inner product of two rows is Spearman's ρ of the scores; a row of one score
    throughout has no order and becomes zero.
    """
    ordered, rows = scores.sort(dim=1).values, scores.contiguous()
    below = torch.searchsorted(ordered, rows)
    up_to = torch.searchsorted(ordered, rows, right=True)
    ranks = (below + up_to).to(scores.dtype)  # twice the mean rank, and one more
    return F.normalize(ranks - ranks.mean(dim=1, keepdim=True), dim=1)
