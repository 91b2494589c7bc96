"""Equal sentences of a text, and how often two of them are in one batch."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from registry.evaluators.pairs import one_line

EXAMPLES = 3
"""Number of examples of each finding."""

Digests = NDArray[np.uint64]


@dataclass(frozen=True)
class Duplicates:
    """Equal sentences of a text, after white space is reduced to single spaces.

    Args:
        rows: Number of rows.
        distinct: Number of distinct sentences.
        copies: Number of rows of a sentence → number of sentences with this number of rows.
    """

    rows: int
    distinct: int
    copies: dict[int, int]

    @property
    def repeats(self) -> int:
        """Number of rows that are equal to an earlier row."""
        return self.rows - self.distinct

    def batches_with_duplicates(self, batch_size: int) -> float:
        """Return the expected share of batches that contain a sentence at least twice.

        A batch has B of the N rows, drawn without replacement. With c_g rows of sentence g it has no duplicate with
        the probability [x^B] Π_g (1 + c_g x) / C(N, B): the number of ways to choose B sentences and one row of each,
        divided by the number of batches. The coefficients are computed as logarithms, with an error below 1e-6.
        """
        size = min(batch_size, self.rows)
        if size > self.distinct:
            return 1.0
        ways = np.full(size + 1, -np.inf)
        ways[0] = 0.0
        for rows, sentences in self.copies.items():
            ways = _product(ways, rows, sentences)
        return max(0.0, 1.0 - math.exp(ways[size] - _log_choose(self.rows, size)))

    def anchors_with_copy(self, batch_size: int) -> float:
        """Return the expected share of the rows of a batch whose sentence is also in another row of the batch.

        Σ_g c_g / N · (1 − C(N − c_g, B − 1) / C(N − 1, B − 1)).
        """
        others = min(batch_size, self.rows) - 1
        return sum(
            sentences * rows / self.rows * (1 - self._none_of(rows, others)) for rows, sentences in self.copies.items()
        )

    def _none_of(self, rows: int, others: int) -> float:
        """Return the probability that no other row of a batch has a sentence that has this number of rows."""
        if others > self.rows - rows:
            return 0.0
        return math.exp(_log_choose(self.rows - rows, others) - _log_choose(self.rows - 1, others))


class Found(NamedTuple):
    """Duplicates of a text, and their rows.

    Args:
        duplicates: Counts.
        first: (n,) first row of each distinct sentence, in order.
        frequent: First row and number of rows of the most frequent sentences that have several rows.
    """

    duplicates: Duplicates
    first: NDArray[np.int64]
    frequent: list[tuple[int, int]]


def find_duplicates(cells: Iterable[str]) -> Found:
    """Return the duplicates of a text.

    Sentences are compared by 64 bits of their BLAKE2b digest. For 20 million rows the probability that two different
    ones are counted as equal is 1e-5.
    """
    digests = _digests(cells)
    _, first, rows = np.unique(digests, return_index=True, return_counts=True)
    most = np.lexsort((first, -rows))[:EXAMPLES]
    frequent = [(int(first[place]), int(rows[place])) for place in most if rows[place] > 1]
    counted = dict(sorted(Counter(rows.tolist()).items()))
    return Found(Duplicates(len(digests), len(first), counted), np.sort(first), frequent)


def _digests(cells: Iterable[str]) -> Digests:
    def chunks() -> Iterator[bytes]:
        for cell in cells:
            content = one_line(cell).encode("utf-8", "surrogatepass")
            yield hashlib.blake2b(content, digest_size=8).digest()

    source, parts = chunks(), []
    while part := b"".join(islice(source, 1 << 16)):
        parts.append(part)
    return np.frombuffer(b"".join(parts), dtype=np.uint64)


def _product(ways: NDArray[np.float64], rows: int, sentences: int) -> NDArray[np.float64]:
    """Return the logarithms of the coefficients of a polynomial times (1 + rows · x)^sentences, up to its degree."""
    size = len(ways) - 1
    factor = np.full(size + 1, -np.inf)
    for chosen in range(min(size, sentences) + 1):
        factor[chosen] = _log_choose(sentences, chosen) + chosen * math.log(rows)
    product = np.empty_like(ways)
    for degree in range(size + 1):
        product[degree] = np.logaddexp.reduce(ways[: degree + 1] + factor[degree::-1])
    return product


def _log_choose(total: int, chosen: int) -> float:
    return math.lgamma(total + 1) - math.lgamma(chosen + 1) - math.lgamma(total - chosen + 1)
