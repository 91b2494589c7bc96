"""Two embeddings side by side, so that the cosine is the mean of both cosines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor

from registry import ENCODERS, Tune
from registry.encoders.two import TwoEncoders
from registry.prompts import Side
from registry.ranks import unit_rows
from registry.tokens import Tokens
from registry.types import Encode, Encoder


@ENCODERS.register("concatenated")
class ConcatenatedEncoder(TwoEncoders):
    """Concatenate the embeddings of two encoders, each scaled to length 1.

    x = [√λ·x₁/‖x₁‖ | √(1 − λ)·x₂/‖x₂‖]. The cosine of two such vectors is λ·s₁ + (1 − λ)·s₂, where s₁ and s₂ are the
    cosines of the two encoders. Each encoder can be adjusted, for example whitened. Both read the same sub-words. If
    only one uses the special tokens around a sentence, the other one ignores them. It supports no heads.

    Shapes: ids (B, L) → (B, D₁ + D₂).

    Source: Yin and Schütze 2016 (Learning Word Meta-Embeddings, "CONC"), for word vectors. Poerner, Waltinger and
    Schütze 2020 (Sentence Meta-Embeddings for Unsupervised Semantic Textual Similarity) concatenate embeddings of
    sentences.

    Args:
        first: First encoder. The recipe declares it before this one.
        second: Second encoder, with the same vocabulary.
        share: Weight λ of the first encoder's cosine.

    Raises:
        CseError: If the two encoders have different vocabularies.

    Example:
        [encoders.both]
        name = "concatenated"
        first = "online"
        second = "words"
    """

    method = "concatenated"

    def __init__(
        self, first: Encoder, second: Encoder, share: Annotated[float, Field(gt=0, lt=1), Tune(0.1, 0.9)] = 0.5
    ) -> None:
        super().__init__(first, second)
        self.share = share
        needs = {first.fits, second.fits}
        self.fits = "each" if "each" in needs else "once" if "once" in needs else "never"
        self.dim = first.dim + second.dim
        self._fitting = False

    def join(self, first: Tensor, second: Tensor) -> Tensor:
        """Return the (B, D₁ + D₂) concatenation of both, each scaled to length 1 and weighted."""
        return torch.cat([self.share**0.5 * unit_rows(first), (1 - self.share) ** 0.5 * unit_rows(second)], dim=1)

    def encode_for_eval(self, tokens: Tokens, embeddings: Tensor | None = None) -> Tensor:
        """Return the (B, D₁ + D₂) embeddings for evaluation. During a fit, those of `foundation`."""
        if self._fitting:
            return self.foundation.encode_for_eval(tokens, embeddings)
        return super().encode_for_eval(tokens, embeddings)

    def fit(self, encode: Encode, target: Sequence[str]) -> None:
        """Fit the encoders that are fitted to sentences, each to its columns of the embeddings of `foundation`."""
        width = self.first.foundation.dim
        self._fitting = True
        try:
            for part, columns in ((self.first, slice(0, width)), (self.second, slice(width, None))):
                if part.fits != "never":
                    part.fit(_Columns(encode, columns), target)
        finally:
            self._fitting = False
        self.dim = self.first.dim + self.second.dim

    def fingerprints(self) -> dict[str, str]:
        """Return "dataset/split" → digest of the data of both."""
        return self.first.fingerprints() | self.second.fingerprints()

    @property
    def foundation(self) -> Encoder:
        """Both encoders before their adjustments."""
        return self if self.fits == "never" else _SideBySide(self.first.foundation, self.second.foundation)

    def settings(self) -> dict[str, Any]:
        """Return the weight λ."""
        return {"share": self.share}


class _SideBySide(TwoEncoders):
    """Embeddings of two encoders side by side, not scaled."""

    method = "concatenated"

    def __init__(self, first: Encoder, second: Encoder) -> None:
        super().__init__(first, second)
        self.dim = first.dim + second.dim

    def join(self, first: Tensor, second: Tensor) -> Tensor:
        """Return the (B, D₁ + D₂) concatenation."""
        return torch.cat([first, second], dim=1)


@dataclass(frozen=True)
class _Columns:
    """An `Encode` that returns some columns of another one's embeddings."""

    encode: Encode
    columns: slice

    def __call__(self, sentences: Sequence[str], side: Side | None = None, prompts: Sequence[str] = ()) -> Tensor:
        """Return the columns (n, D′) of the embeddings."""
        return self.encode(sentences, side, prompts)[:, self.columns]

    def encode_view(self, view: str, columns: Mapping[str, Sequence[str]], training: bool = False) -> Tensor:
        """Return the columns (n, D′) of the embeddings of a view."""
        return self.encode.encode_view(view, columns, training)[:, self.columns]
