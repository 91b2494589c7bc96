"""Base class of encoders that average a table's vectors of a sentence's tokens, and weights by frequency."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from registry.encoders.whitening import whitening, without_top
from registry.errors import CseError
from registry.poolings import masked_mean
from registry.resources.rows import lines
from registry.tokens import Encoded, Tokens, Vocabulary
from registry.types import Encoder


class TokenAverage(Encoder):
    """Encoder that averages the vectors of a sentence's tokens."""

    def __init__(self, vocabulary: Vocabulary, table: Tensor, frozen: bool) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.table = nn.Parameter(table, requires_grad=not frozen)
        self.dim = self.width = table.shape[1]

    def embed(self, tokens: Tokens) -> Tensor:
        """Return the (B, L, D) vectors of the tokens."""
        return F.embedding(tokens.ids, self.table)

    def encode(self, tokens: Tokens, embeddings: Tensor) -> Encoded:
        """Average the vectors."""
        return Encoded(masked_mean(embeddings, tokens.mask), embeddings, embeddings, tokens)

    @torch.no_grad()
    def encode_for_eval(self, tokens: Tokens, embeddings: Tensor | None = None) -> Tensor:
        """Return the (B, D) averages."""
        return masked_mean(self.embed(tokens) if embeddings is None else embeddings, tokens.mask)


def read_counts(path: Path) -> dict[str, int]:
    """Return word → count of a text file with one word and its number of occurrences per line."""
    counts = {}
    for number, line in lines(path):
        word, _, count = line.strip().rpartition(" ")
        if not word or not count.isdecimal():
            raise CseError(
                f"{path}:{number}: '{line[:60]}' is not a word and a count, separated by a space",
                "use a text file with one word and its number of occurrences per line",
                code="encoders.bad_count_line",
            )
        counts[word] = int(count)
    return counts


def zipf(count: int, first: int = 1) -> Tensor:
    """Return the probabilities (count,) of tokens in order of frequency by Zipf's law, pᵣ ∝ 1/r for r = first, ….

    Examples:
        >>> (zipf(3) * 11).tolist()
        [6.0, 3.0, 2.0]
    """
    shares = 1 / torch.arange(first, first + count, dtype=torch.float64)
    return shares / shares.sum()


def inverse_frequency(probabilities: Tensor, smoothing: float) -> Tensor:
    """Return the weights a/(a + p) of tokens with probabilities p (SIF, Arora et al. 2017)."""
    return smoothing / (smoothing + probabilities)


Adjustment = Literal["center", "whiten", "all_but_the_top"]


def adjusted(table: Tensor, shares: Tensor, adjust: Adjustment, components: int | None = None) -> Tensor:
    """Return the vectors (n, D) of words after centering, whitening or all-but-the-top.

    Args:
        table: Vectors (n, D).
        shares: Weights (n,) of the words in mean and covariance, with the sum 1.
        adjust: "center" subtracts the mean, "whiten" also makes the covariance I, "all_but_the_top" subtracts the mean
            and removes the first principal components.
        components: Number of removed components. Default: D/100.
    """
    mean, covariance = _moments(table, shares)
    if adjust == "center":
        return table - mean.float()
    if adjust == "whiten":
        weight, bias = whitening(mean, covariance, len(mean), eps=0)
    else:
        weight = without_top(covariance, components or max(1, len(mean) // 100))
        bias = -weight @ mean
    return F.linear(table, weight.float(), bias.float())


def _moments(table: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weighted mean (D,) and covariance (D, D) in double precision, of a table of any size."""
    width = table.shape[1]
    mean, covariance = torch.zeros(width, dtype=torch.float64), torch.zeros(width, width, dtype=torch.float64)
    starts = range(0, len(table), _CHUNK)
    for start in starts:
        mean += shares[start : start + _CHUNK] @ table[start : start + _CHUNK].double()
    for start in starts:
        centered = table[start : start + _CHUNK].double() - mean
        covariance += centered.T @ (centered * shares[start : start + _CHUNK, None])
    return mean, covariance


_CHUNK = 1 << 16
