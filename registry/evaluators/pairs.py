"""Shared code of evaluators of sentence pairs: data, embeddings and cosine similarities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import torch
from torch import Tensor

from registry.resources import catalog
from registry.resources.catalog import PAIR_COLUMNS, Pair, PairFile
from registry.types import Encode, Evaluator

T = TypeVar("T")
Counted = Literal["occurrences", "distinct"]
"""Counting of repeated sentences: each occurrence, or each distinct sentence once."""

SHORTEST = 1e-8
"""Minimum divisor of `unit`, so that zero vectors do not change."""


class PairEvaluator(Evaluator):
    """Base class of evaluators of scored pairs of a data set in the catalog or of a file."""

    dataset: str
    """Data set in the catalog, unless `own` is set."""
    split: str
    own: PairFile | None = None

    def pairs(self) -> Sequence[Pair]:
        """Return the scored pairs, at most `limit` of them."""
        return evenly_spaced(self.all_pairs(), self.limit)

    def all_pairs(self) -> Sequence[Pair]:
        """Return all scored pairs."""
        return catalog.read_pairs(self.dataset, self.split) if self.own is None else self.own.pairs

    def texts(self) -> Sequence[str]:
        """Return both sentences of each pair of the file, or of all splits of the data set, with repetitions."""
        if self.own is not None:
            found = self.own.pairs
        else:
            about = catalog.entry(self.dataset)
            splits = ["all"] if about.joinable else [s for s in about.parts if about.columns_of(s) == PAIR_COLUMNS]
            found = [pair for split in splits for pair in catalog.read_pairs(self.dataset, split)]
        pairs = evenly_spaced(found, self.limit)
        return [one_line(text) for pair in pairs for text in (pair.first, pair.second)]

    def fingerprints(self) -> dict[str, str]:
        """Return "dataset/split", or "file/split", → content digest."""
        if self.own is not None:
            return self.own.fingerprints(self.split)
        return {f"{self.dataset}/{self.split}": catalog.fingerprint(self.dataset, self.split)}


def evenly_spaced(rows: Sequence[T], most: int | None) -> Sequence[T]:
    """Return at most `most` rows at equal distances, so that they represent all subsets. None returns all rows."""
    if most is None or len(rows) <= most:
        return rows
    return [rows[place * len(rows) // most] for place in range(most)]


def one_line(sentence: str) -> str:
    """Return a sentence with white space reduced to single spaces."""
    return " ".join(sentence.split())


def similarities(pairs: Sequence[Pair], encode: Encode) -> list[float]:
    """Return the cosine similarity of each pair, with 0 for NaN."""
    vectors, first, second = _encoded(pairs, encode)
    return cosines(vectors[first], vectors[second])


def cosines(left: Tensor, right: Tensor) -> list[float]:
    """Return the cosine similarity of corresponding rows of two (n, D) tensors, with 0 for NaN.

    It is exactly 1 for equal rows, so that pairs of equal sentences have equal ranks.
    """
    first, second = left.double().nan_to_num(), right.double().nan_to_num()
    between = (first * second).sum(dim=1) / (first.norm(dim=1) * second.norm(dim=1))
    between = torch.where((first == second).all(dim=1) & between.isfinite(), 1.0, between)
    found: list[float] = between.nan_to_num().tolist()
    return found


@dataclass(frozen=True)
class PairVectors:
    """Pairs and the embeddings of their sentences.

    Args:
        vectors: (m, D) double, one row for each distinct sentence. Values that are not finite are 0.
        first: (n,) row of each pair's first sentence.
        second: (n,) row of each pair's second sentence.
    """

    vectors: Tensor
    first: Tensor
    second: Tensor

    def counts(self, how: Counted, pairs: Tensor | None = None) -> Tensor:
        """Return (m,) double: the number of times that each sentence counts."""
        chosen = slice(None) if pairs is None else pairs
        rows = torch.cat([self.first[chosen], self.second[chosen]])
        found = torch.bincount(rows, minlength=len(self.vectors)).double()
        return found if how == "occurrences" else found.clamp(max=1)


def pair_vectors(pairs: Sequence[Pair], encode: Encode) -> PairVectors:
    """Return the embeddings of the pairs' sentences."""
    vectors, first, second = _encoded(pairs, encode)
    return PairVectors(finite(vectors), first, second)


def finite(vectors: Tensor) -> Tensor:
    """Return vectors in double precision, with 0 for values that are not finite."""
    return vectors.double().nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)


def unit(vectors: Tensor) -> Tensor:
    """Return (n, D) with rows of length 1, except rows shorter than `SHORTEST`."""
    lengths: Tensor = torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
    return vectors / lengths.clamp(min=SHORTEST)


def _encoded(pairs: Sequence[Pair], encode: Encode) -> tuple[Tensor, Tensor, Tensor]:
    """Return (m, D) embeddings of the distinct sentences, and (n,) rows of the two sides of the pairs."""
    sides = [(one_line(pair.first), one_line(pair.second)) for pair in pairs]
    rows = {text: row for row, text in enumerate(dict.fromkeys(text for side in sides for text in side))}
    vectors = encode(list(rows))
    first, second = (torch.tensor([rows[side[place]] for side in sides]) for place in (0, 1))
    return vectors, first, second
