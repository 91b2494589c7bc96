"""What evaluators of sentence pairs share: where the pairs come from, their vectors and cosines. Registers nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from registry import catalogue
from registry.catalogue import PAIR_COLUMNS, Pair, PairFile
from registry.types import Encode, Evaluator

Counted = Literal["occurrences", "distinct"]
"""Whether a sentence counts once for each pair side it is, or once."""

SHORTEST = 1e-8
"""Norm that shorter vectors are divided by, so that zeros stay zeros."""


class PairEvaluator(Evaluator):
    """Reads the scored pairs of a data set of the catalogue, or those of a file."""

    dataset: str
    """Name in the data catalogue; not read where `own` is given."""
    split: str
    own: PairFile | None = None

    def pairs(self) -> Sequence[Pair]:
        """Return the pairs that are scored."""
        return catalogue.read_pairs(self.dataset, self.split) if self.own is None else self.own.pairs

    def texts(self) -> Sequence[str]:
        """Return every distinct sentence of the file, or of the data set, of all its splits that hold pairs."""
        pairs = self.own.pairs if self.own is not None else self._pairs_of_all_splits()
        return list(dict.fromkeys(one_line(text) for pair in pairs for text in (pair.first, pair.second)))

    def fingerprints(self) -> dict[str, str]:
        """Return "dataset/split", or "file/split", → content digest."""
        if self.own is not None:
            return self.own.fingerprints(self.split)
        return {f"{self.dataset}/{self.split}": catalogue.fingerprint(self.dataset, self.split)}

    def _pairs_of_all_splits(self) -> list[Pair]:
        about = catalogue.entry(self.dataset)
        splits = ["all"] if about.joinable else [s for s in about.parts if about.columns_of(s) == PAIR_COLUMNS]
        return [pair for split in splits for pair in catalogue.read_pairs(self.dataset, split)]


def one_line(sentence: str) -> str:
    """Return a sentence with its white space reduced to single blanks."""
    return " ".join(sentence.split())


def similarities(pairs: Sequence[Pair], encode: Encode) -> list[float]:
    """Return the cosine of each pair; NaN in a vector or a similarity becomes 0."""
    vectors, first, second = _encoded(pairs, encode)
    return cosines(vectors[first], vectors[second])


def cosines(left: Tensor, right: Tensor) -> list[float]:
    """Return the cosine of each row of `left` (n, D) with that of `right`; NaN in either or the result becomes 0."""
    first, second = left.double().nan_to_num(), right.double().nan_to_num()
    between = (first * second).sum(dim=1) / (first.norm(dim=1) * second.norm(dim=1))
    found: list[float] = between.nan_to_num().tolist()
    return found


@dataclass(frozen=True)
class PairVectors:
    """Pairs and their sentences' vectors.

    Args:
        vectors: (m, D) double, one row a distinct sentence; what is not finite is 0.
        first: (n,) row of each pair's first sentence.
        second: (n,) row of its second.
    """

    vectors: Tensor
    first: Tensor
    second: Tensor

    def counts(self, how: Counted, pairs: Tensor | None = None) -> Tensor:
        """Return (m,) double: how often each sentence counts.

        Args:
            how: Every occurrence, or each sentence of the pairs once.
            pairs: (n,) which pairs' sentences; all if left out.
        """
        chosen = slice(None) if pairs is None else pairs
        rows = torch.cat([self.first[chosen], self.second[chosen]])
        found = torch.bincount(rows, minlength=len(self.vectors)).double()
        return found if how == "occurrences" else found.clamp(max=1)


def pair_vectors(pairs: Sequence[Pair], encode: Encode) -> PairVectors:
    """Return the vectors of the pairs' sentences."""
    vectors, first, second = _encoded(pairs, encode)
    return PairVectors(finite(vectors), first, second)


def finite(vectors: Tensor) -> Tensor:
    """Return vectors in double precision, with 0 for what is not finite."""
    return vectors.double().nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)


def unit(vectors: Tensor) -> Tensor:
    """Return (n, D) with rows of length 1, those shorter than `SHORTEST` excepted."""
    lengths: Tensor = torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
    return vectors / lengths.clamp(min=SHORTEST)


def _encoded(pairs: Sequence[Pair], encode: Encode) -> tuple[Tensor, Tensor, Tensor]:
    """Return (m, D) vectors of the distinct sentences, each encoded once, and (n,) rows of the pairs' two sides."""
    sides = [(one_line(pair.first), one_line(pair.second)) for pair in pairs]
    rows = {text: row for row, text in enumerate(dict.fromkeys(text for side in sides for text in side))}
    vectors = encode(list(rows))
    first, second = (torch.tensor([rows[side[place]] for side in sides]) for place in (0, 1))
    return vectors, first, second
