"""Base class of encoders that average a table's vectors of a sentence's tokens, and weights by frequency."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from registry.encoders.pooling import masked_mean
from registry.tokens import Encoded, Tokens, Vocabulary
from registry.types import Encoder


class TokenAverage(Encoder):
    """Encoder that averages the vectors of a sentence's tokens.

    Args:
        vocabulary: Tokenizer without special tokens.
        table: Vectors (V, D) of the token IDs.
        frozen: Whether the vectors are not trained.
    """

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


def zipf(count: int, first: int = 1) -> Tensor:
    """Return the probabilities (count,) of tokens in order of frequency by Zipf's law, pᵣ ∝ 1/r for r = first, ….

    Example:
        >>> (zipf(3) * 11).tolist()
        [6.0, 3.0, 2.0]
    """
    shares = 1 / torch.arange(first, first + count, dtype=torch.float64)
    return shares / shares.sum()


def inverse_frequency(probabilities: Tensor, smoothing: float) -> Tensor:
    """Return the weights a/(a + p) of tokens with probabilities p (SIF, Arora et al. 2017).

    Args:
        probabilities: Probabilities p of the tokens.
        smoothing: Constant a.
    """
    return smoothing / (smoothing + probabilities)
