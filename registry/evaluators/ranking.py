"""Ranks of right answers among candidates by exact cosine, in bounded memory. Registers nothing."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

TIE = 1e-6
"""Cosines this near are equal: float32 vectors of one sentence differ by about a tenth of it from batch to batch."""
ANSWERS, CANDIDATES = 1024, 4096
"""Cosines computed at a time."""


def ranks(
    queries: Tensor, candidates: Tensor, right: Sequence[Sequence[int]], hidden: Sequence[Sequence[int]]
) -> list[list[int]]:
    """Return the ranks of each query's right answers, from 1, best first.

    A wrong candidate as near as a right answer stands before it, so that an encoder for which all is alike finds
    nothing. A right answer stands before those of the same query that are farther off.

    Args:
        queries: (q, D)
        candidates: (c, D)
        right: For each query the candidates that answer it, at least one.
        hidden: For each query other candidates that are left out.
    """
    owner = torch.tensor([query for query, answers in enumerate(right) for _ in answers])
    answer = torch.tensor([candidate for answers in right for candidate in answers])
    found: list[list[tuple[float, int]]] = [[] for _ in right]
    for start in range(0, len(owner), ANSWERS):
        rows = slice(start, start + ANSWERS)
        nearness, before = _wrong_before(queries, candidates, (owner[rows], answer[rows]), (right, hidden))
        for query, near, wrong in zip(owner[rows].tolist(), nearness, before, strict=True):
            found[query].append((-near, wrong))
    return [[wrong + place for place, (_, wrong) in enumerate(sorted(each), start=1)] for each in found]


def _wrong_before(
    queries: Tensor,
    candidates: Tensor,
    pairs: tuple[Tensor, Tensor],
    left_out: tuple[Sequence[Sequence[int]], ...],
) -> tuple[list[float], list[int]]:
    """Return the cosine of each query with its answer, and how many wrong candidates are as near."""
    owner, answer = pairs
    distinct, row = torch.unique_consecutive(owner, return_inverse=True)
    asked = unit(queries[distinct])
    nearness = (asked[row] * unit(candidates[answer])).sum(dim=1)
    skip = [(place, c) for place, query in enumerate(distinct.tolist()) for each in left_out for c in each[query]]
    lines, columns = torch.tensor(skip).T
    before = torch.zeros(len(owner), dtype=torch.long)
    for start in range(0, len(candidates), CANDIDATES):
        block = unit(candidates[start : start + CANDIDATES])
        cosines = asked @ block.T
        here = (columns >= start) & (columns < start + len(block))
        cosines[lines[here], columns[here] - start] = -torch.inf
        before += (cosines[row] >= nearness[:, None] - TIE).sum(dim=1)
    return nearness.tolist(), before.tolist()


def unit(vectors: Tensor) -> Tensor:
    """Return vectors (n, D) at length 1, in double precision; NaN counts as 0, and a vector of zeros stays."""
    clean = vectors.double().nan_to_num()
    length: Tensor = clean.norm(dim=1, keepdim=True)
    return clean / length.where(length > 0, 1.0)
