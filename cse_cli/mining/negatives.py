"""Hard negatives of anchors: the nearest texts of a corpus that pass the filters.

The filters and their order are those of `mine_hard_negatives` of sentence-transformers, with the same names. Source of
the margins: NV-Retriever (Moreira et al. 2024). A relative margin of 0.05 is its method TopK-PercPos with 95 %.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from registry.errors import CseError, MissingError

CELLS = 2**25
"""Number of cosines in memory at a time, 128 MB."""

Search = Literal["torch", "faiss"]


@dataclass(frozen=True)
class Filters:
    """Rules that select the negatives of an anchor among its nearest texts. All scores are cosines.

    Args:
        num_negatives: Number of negatives for each anchor.
        range_min: Number of the nearest texts that pass all filters and are skipped.
        range_max: Number of the nearest texts that are candidates, apart from positives and the anchor's own text.
            Default: `range_min` plus the number of positives plus `num_negatives`, or ten times `num_negatives` with a
            margin or a maximum score.
        max_score: Maximum score of a negative.
        min_score: Minimum score of a negative.
        absolute_margin: Minimum distance of the score to that of the positive, the lowest one of several.
        relative_margin: The same, as a share of the absolute value of the positive's score.
        sampling: Choice of the negatives among the candidates: "top" takes the nearest, "random" any.
        seed: Seed of "random".

    Raises:
        CseError: If the range has fewer texts than negatives.
    """

    num_negatives: int = 3
    range_min: int = 0
    range_max: int | None = None
    max_score: float | None = None
    min_score: float | None = None
    absolute_margin: float | None = None
    relative_margin: float | None = None
    sampling: Literal["top", "random"] = "top"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.range_max is not None and self.range_max - self.range_min < self.num_negatives:
            raise CseError(
                f"--range-min {self.range_min} and --range-max {self.range_max} leave fewer than {self.num_negatives} "
                "candidates",
                f"use --range-max {self.range_min + 10 * self.num_negatives}",
                code="mining.range_too_small",
            )

    def candidates(self, positives: int) -> int:
        """Return the number of candidates of an anchor, if the largest number of positives is `positives`."""
        if self.range_max is not None:
            return self.range_max
        filtered = (self.absolute_margin, self.relative_margin, self.max_score) != (None, None, None)
        return self.range_min + self.num_negatives * (10 if filtered else 1) + positives


@dataclass(frozen=True)
class Negatives:
    """Negatives of each anchor.

    Args:
        rows: (anchors, negatives) rows of the corpus, the nearest first. −1 if fewer pass the filters.
        scores: (anchors, negatives) cosines with the anchor, −∞ for those.
        positive_scores: Cosines of each anchor with its positives.
        skipped: Filter → number of candidates that it removed.
    """

    rows: Tensor
    scores: Tensor
    positive_scores: list[Tensor]
    skipped: dict[str, int]


def find_negatives(
    anchors: Tensor,
    corpus: Tensor,
    positives: Sequence[Sequence[int]],
    filters: Filters,
    same: Sequence[Sequence[int]] = (),
    search: Search = "torch",
    progress: Callable[[int, int], None] | None = None,
) -> Negatives:
    """Return the negatives of each anchor.

    Args:
        anchors: (Q, D) embeddings on the device that computes the cosines.
        corpus: (C, D) embeddings, those of the positives included.
        positives: Rows of the corpus that are positives of each anchor.
        filters: Rules.
        same: Further rows of the corpus to exclude for each anchor, such as its own text. Default: none.
        search: "torch" computes all cosines in blocks. "faiss" uses the exact index of this package.
        progress: Called with the number of anchors done and in total.
    """
    anchors, corpus = F.normalize(anchors.float(), dim=-1), F.normalize(corpus.float(), dim=-1)
    index, candidates = _INDICES[search](corpus), filters.candidates(max(map(len, positives)))
    excluded = [[*known, *more] for known, more in zip(positives, same or [[]] * len(positives), strict=True)]
    count = min(candidates + max(map(len, excluded)), len(corpus))
    generator = torch.Generator().manual_seed(filters.seed)
    skipped = dict.fromkeys(("absolute_margin", "relative_margin", "max_score", "min_score"), 0)
    found: list[tuple[Tensor, Tensor]] = []
    positive_scores: list[Tensor] = []
    for block in _blocks(len(anchors), max(1, CELLS // len(corpus))):
        scores, rows = index.nearest(anchors[block.start : block.stop], count)
        exact = [(corpus[[*positives[place]]] @ anchors[place]).cpu() for place in block]
        for place, own in enumerate(excluded[block.start : block.stop]):
            scores[place, torch.isin(rows[place], torch.tensor(own))] = -torch.inf
        lowest = torch.stack([one.min() for one in exact])[:, None]
        for name, removed in _removed(scores, lowest, filters):
            skipped[name] += int((removed & scores.isfinite()).sum())
            scores[removed] = -torch.inf
        found.append(_chosen(scores, rows, filters, candidates, generator))
        positive_scores += exact
        if progress is not None:
            progress(block.stop, len(anchors))
    kept = {name: number for name, number in skipped.items() if number}
    return Negatives(torch.cat([rows for rows, _ in found]), torch.cat([s for _, s in found]), positive_scores, kept)


def check_search(search: Search) -> None:
    """Raise `MissingError` if a search needs a package that is not installed."""
    if search == "faiss" and importlib.util.find_spec("faiss") is None:
        raise MissingError(
            "--search faiss: faiss is not installed",
            "pip install 'cse-registry[faiss]', or use --search torch, which finds the same negatives",
            code="mining.no_faiss",
        )


def _removed(scores: Tensor, positive: Tensor, filters: Filters) -> Iterator[tuple[str, Tensor]]:
    """Yield each filter with the mask of the candidates that it removes, given the scores that the last one left."""
    if filters.absolute_margin is not None:
        yield "absolute_margin", scores + filters.absolute_margin > positive
    if filters.relative_margin is not None:
        yield "relative_margin", scores > positive - positive.abs() * filters.relative_margin
    if filters.max_score is not None:
        yield "max_score", scores > filters.max_score
    if filters.min_score is not None:
        yield "min_score", scores < filters.min_score


def _chosen(
    scores: Tensor, rows: Tensor, filters: Filters, candidates: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Return rows and scores of the negatives among candidates: (n, negatives)."""
    scores, order = scores.sort(dim=1, descending=True, stable=True)
    window = slice(filters.range_min, candidates)
    scores, rows = scores[:, window], rows.gather(1, order)[:, window]
    if filters.sampling == "random":
        chance = torch.rand(scores.shape, generator=generator).masked_fill(scores.isinf(), -1)
        places = chance.topk(min(filters.num_negatives, scores.shape[1])).indices.sort(dim=1).values
        scores, rows = scores.gather(1, places), rows.gather(1, places)
    scores, rows = scores[:, : filters.num_negatives], rows[:, : filters.num_negatives]
    lacking = filters.num_negatives - scores.shape[1]
    scores = F.pad(scores, (0, lacking), value=-torch.inf)
    return F.pad(rows, (0, lacking), value=-1).masked_fill(scores.isinf(), -1), scores


def _blocks(rows: int, size: int) -> Iterator[range]:
    for start in range(0, rows, size):
        yield range(start, min(start + size, rows))


class _Index(Protocol):
    """Nearest rows of a corpus."""

    def nearest(self, anchors: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Return scores and rows of the nearest `count` rows, the nearest first: (n, count) on the CPU."""


class _TorchIndex:
    def __init__(self, corpus: Tensor) -> None:
        self._corpus = corpus

    def nearest(self, anchors: Tensor, count: int) -> tuple[Tensor, Tensor]:
        scores, rows = (anchors @ self._corpus.T).topk(count)
        return scores.cpu(), rows.cpu()


class _FaissIndex:
    def __init__(self, corpus: Tensor) -> None:
        import faiss

        self._index: Any = faiss.IndexFlatIP(corpus.shape[1])
        self._index.add(corpus.cpu().numpy())

    def nearest(self, anchors: Tensor, count: int) -> tuple[Tensor, Tensor]:
        scores, rows = self._index.search(anchors.cpu().numpy(), count)
        return torch.from_numpy(scores), torch.from_numpy(rows)


_INDICES: dict[Search, Callable[[Tensor], _Index]] = {"torch": _TorchIndex, "faiss": _FaissIndex}
