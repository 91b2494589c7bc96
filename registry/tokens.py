"""Sentences and their tokens, before and after an encoder. Shapes as in `registry.types`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Sample:
    """One sentence, before the tokeniser.

    Args:
        text: The sentence.
        pair: Second segment, for methods that encode two sentences jointly.
        label: Made by an augmenter that composes pairs.
    """

    text: str
    pair: str | None = None
    label: int | None = None


@dataclass(frozen=True)
class Tokens:
    """Padded token ids of B sentences.

    Args:
        ids: (B, L) int64.
        mask: (B, L) int64; 1 for real tokens.
        types: (B, L) int64 segment ids.
        positions: (B, L) int64, counted from 0; the encoder adds its own offset.
        labels: (B,) or None.
        side: Column name → that column's tokens, for augmenters that read a second text.
    """

    ids: Tensor
    mask: Tensor
    types: Tensor
    positions: Tensor
    labels: Tensor | None = None
    side: Mapping[str, Tokens] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """B."""
        return self.ids.shape[0]

    @property
    def length(self) -> int:
        """L."""
        return self.ids.shape[1]

    def to(self, device: torch.device | str) -> Tokens:
        """Return the same tokens on `device`."""
        return replace(
            self,
            ids=self.ids.to(device, non_blocking=True),
            mask=self.mask.to(device, non_blocking=True),
            types=self.types.to(device, non_blocking=True),
            positions=self.positions.to(device, non_blocking=True),
            labels=None if self.labels is None else self.labels.to(device, non_blocking=True),
            side={column: tokens.to(device) for column, tokens in self.side.items()},
        )

    def padded_to(self, length: int) -> Tokens:
        """Return the same sentences with masked places appended up to `length`; `side` is left alone."""
        extra = length - self.length
        if extra <= 0:
            return self
        positions = torch.arange(self.length, length, device=self.ids.device).expand(self.rows, extra)
        return replace(
            self,
            ids=F.pad(self.ids, (0, extra)),
            mask=F.pad(self.mask, (0, extra)),
            types=F.pad(self.types, (0, extra)),
            positions=torch.cat([self.positions, positions], dim=1),
        )

    @staticmethod
    def stack(parts: Sequence[Tokens]) -> Tokens:
        """Return the rows of all parts below each other, padded to the longest; labels and side are dropped."""
        length = max(part.length for part in parts)
        padded = [part.padded_to(length) for part in parts]
        return Tokens(
            ids=torch.cat([p.ids for p in padded]),
            mask=torch.cat([p.mask for p in padded]),
            types=torch.cat([p.types for p in padded]),
            positions=torch.cat([p.positions for p in padded]),
        )


@dataclass(frozen=True)
class Embedded:
    """Token vectors on their way into an encoder.

    Args:
        tokens: Their tokens; an augmenter may change length and mask.
        vectors: (B, L, W).
    """

    tokens: Tokens
    vectors: Tensor


@dataclass(frozen=True)
class Encoded:
    """What an encoder makes of one view, on this device.

    Args:
        sentence: (B, D) after the training heads: what losses compare.
        embeddings: (B, L, W) what entered the transformer blocks: augmented, then dropped.
        hidden: (B, L, W) last layer.
        tokens: The tokens encoded.
    """

    sentence: Tensor
    embeddings: Tensor
    hidden: Tensor
    tokens: Tokens

    def float(self) -> Encoded:
        """Return the same vectors in fp32, as losses take them whatever the precision of the forward pass."""
        return replace(
            self, sentence=self.sentence.float(), embeddings=self.embeddings.float(), hidden=self.hidden.float()
        )

    def rows(self, start: int, stop: int, tokens: Tokens) -> Encoded:
        """Return rows start…stop, cut to the length of `tokens`, which replace the stacked ones."""
        cut = tokens.length
        return Encoded(
            sentence=self.sentence[start:stop],
            embeddings=self.embeddings[start:stop, :cut],
            hidden=self.hidden[start:stop, :cut],
            tokens=tokens,
        )


class Vocabulary(Protocol):
    """Text → token ids, and token ids → padded tensors."""

    @property
    def fingerprint(self) -> str:
        """Digest of the tokenizer's content: a key of the token cache."""

    def ids(self, texts: Sequence[str], max_length: int) -> list[list[int]]:
        """Return token ids of single sentences, specials included, truncated to `max_length`."""

    def pad(self, rows: Sequence[Sequence[int]]) -> Tokens:
        """Return single sentences padded to the longest."""

    def tokens(self, samples: Sequence[Sample], max_length: int) -> Tokens:
        """Tokenise samples, pairs too: each side is truncated to `max_length` first, then the pair is built."""
