"""Base class of encoders that join the embeddings of two encoders with the same tokenizer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from registry.encoders.export import drafted, write_own
from registry.errors import CseError
from registry.tokens import Encoded, Tokens
from registry.types import Encoder
from registry.vocabulary import BareVocabulary, HubVocabulary

PARTS = ("first", "second")
"""Subdirectories of an export."""


class TwoEncoders(Encoder):
    """Encoder that joins the embeddings of two encoders, in training and in evaluation.

    Both read the same sub-words. If only one of them uses the special tokens around a sentence, the other one ignores
    these tokens. Checkpoints contain the two encoders under their own names. Heads are not supported.
    """

    stateful: ClassVar[bool] = False

    method: ClassVar[str]
    """Registered name, also the `format` of an export."""

    def __init__(self, first: Encoder, second: Encoder) -> None:
        super().__init__()
        bare = [isinstance(one.vocabulary, BareVocabulary) for one in (first, second)]
        self._leaves_out = [mine and not all(bare) for mine in bare]
        mine, theirs = first.vocabulary, second.vocabulary
        if any(bare):
            mine, theirs = (
                BareVocabulary(each.model) if type(each) is HubVocabulary and each.template is None else each
                for each in (mine, theirs)
            )
        if mine.fingerprint != theirs.fingerprint:
            raise CseError(
                f"{self.method}: the two encoders have different vocabularies: {mine.fingerprint} and "
                f"{theirs.fingerprint}",
                "use encoders that start from models of the same kind",
                code="encoders.cannot_be_joined",
            )
        self.first, self.second, self.width = first, second, first.width + second.width
        self.vocabulary = (second if self._leaves_out[0] else first).vocabulary
        self.augment_at = first.augment_at
        limits = [one.max_length for one in (first, second) if one.max_length is not None]
        self.max_length = min(limits, default=None)

    def join(self, first: Tensor, second: Tensor) -> Tensor:
        """Return the joined embeddings (B, D) of embeddings (B, D₁) and (B, D₂)."""
        raise NotImplementedError

    def embed(self, tokens: Tokens) -> Tensor:
        """Return the (B, L, W₁ + W₂) token embeddings of both."""
        return torch.cat([part.embed(own) for part, own, _ in self._each(tokens)], dim=-1)

    def encode(self, tokens: Tokens, embeddings: Tensor) -> Encoded:
        """Return the joined embeddings, and the states of both side by side."""
        one, other = (part.encode(own, vectors) for part, own, vectors in self._each(tokens, embeddings))
        vectors, hidden = (
            torch.cat(pair, dim=-1) for pair in ((one.embeddings, other.embeddings), (one.hidden, other.hidden))
        )
        return Encoded(self.join(one.sentence, other.sentence), vectors, hidden, tokens)

    def encode_for_eval(self, tokens: Tokens, embeddings: Tensor | None = None) -> Tensor:
        """Return the (B, D) joined embeddings for evaluation."""
        return self.join(*(part.encode_for_eval(own, given) for part, own, given in self._each(tokens, embeddings)))

    def export(self, folder: Path, max_length: int) -> None:
        """Write both encoders to the subdirectories `first` and `second`. Only cse reads this format."""
        with drafted(folder) as draft:
            for name, part in zip(PARTS, (self.first, self.second), strict=True):
                part.export(draft / name, max_length)
            about = f"Embeddings of the encoders in `first` and `second`, joined by {self.method}."
            write_own(draft, {"format": self.method, "settings": self.settings()}, about, self.prompts)

    def settings(self) -> dict[str, Any]:
        """Return the parameters except the two encoders."""
        return {}

    def _each(self, tokens: Tokens, embeddings: Tensor | None = None) -> Iterator[tuple[Encoder, Tokens, Any]]:
        """Yield each encoder with its tokens and its share of the token embeddings."""
        width = self.first.width
        given = (None, None) if embeddings is None else (embeddings[..., :width], embeddings[..., width:])
        for part, leaves_out, vectors in zip((self.first, self.second), self._leaves_out, given, strict=True):
            own = tokens
            if leaves_out:
                assert isinstance(self.vocabulary, HubVocabulary)
                own = self.vocabulary.inside(tokens)
            yield part, own, vectors
