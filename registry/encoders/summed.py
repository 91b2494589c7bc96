"""Sum of the embeddings of two encoders, as TNCSE evaluates."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from registry import ENCODERS
from registry.encoders.export import OWN_FORMAT, SETTINGS, drafted, write_json
from registry.errors import CseError
from registry.tokens import Encoded, Tokens
from registry.types import Encoder

SUMMED = "summed"
"""Format of an export."""

PARTS = ("first", "second")
"""Subdirectories of an export."""


@ENCODERS.register("summed")
class SummedEncoder(Encoder):
    """Add the embeddings of two encoders with the same vocabulary.

    x = x₁ + x₂, in training and in evaluation. `embed` concatenates the token embeddings of both. Checkpoints contain
    the two encoders under their own names. It supports no heads.

    Shapes: ids (B, L) → token embeddings (B, L, W₁ + W₂) → sentence embeddings (B, D).

    Source: TNCSE (Zong et al. 2025) and its code (tianyuzong/TNCSE @8051805, `model_dual.py:41-42`, methods/tncse.md).

    Args:
        first: First encoder. The recipe declares it before this one.
        second: Second encoder, with embeddings of the same width.

    Raises:
        CseError: If the two encoders have different vocabularies or widths.

    Example:
        [encoders.both]
        name = "summed"
        first = "online"
        second = "other"
    """

    stateful: ClassVar[bool] = False

    def __init__(self, first: Encoder, second: Encoder) -> None:
        super().__init__()
        for what, mine, theirs in (
            ("vocabularies", first.vocabulary.fingerprint, second.vocabulary.fingerprint),
            ("widths", first.dim, second.dim),
        ):
            if mine != theirs:
                raise CseError(
                    f"summed: the two encoders have different {what}: {mine} and {theirs}",
                    "use encoders that start from models of the same kind",
                    code="encoders.cannot_be_summed",
                )
        self.first, self.second = first, second
        self.vocabulary, self.dim, self.width = first.vocabulary, first.dim, first.width + second.width
        self.augment_at = first.augment_at
        limits = [one.max_length for one in (first, second) if one.max_length is not None]
        self.max_length = min(limits, default=None)

    def embed(self, tokens: Tokens) -> Tensor:
        """Return the (B, L, W₁ + W₂) token embeddings of both."""
        return torch.cat([self.first.embed(tokens), self.second.embed(tokens)], dim=-1)

    def encode(self, tokens: Tokens, embeddings: Tensor) -> Encoded:
        """Return the sum, and the states of both side by side."""
        one, other = (
            part.encode(tokens, vectors)
            for part, vectors in zip((self.first, self.second), self._split(embeddings), strict=True)
        )
        vectors, hidden = (
            torch.cat(pair, dim=-1) for pair in ((one.embeddings, other.embeddings), (one.hidden, other.hidden))
        )
        return Encoded(one.sentence + other.sentence, vectors, hidden, tokens)

    def encode_for_eval(self, tokens: Tokens, embeddings: Tensor | None = None) -> Tensor:
        """Return the (B, D) sum of both embeddings for evaluation."""
        given = (None, None) if embeddings is None else self._split(embeddings)
        one, other = (
            part.encode_for_eval(tokens, vectors)
            for part, vectors in zip((self.first, self.second), given, strict=True)
        )
        return one + other

    def export(self, folder: Path, max_length: int) -> None:
        """Write both encoders to the subdirectories `first` and `second`. Only cse reads this format."""
        with drafted(folder) as draft:
            for name, part in zip(PARTS, (self.first, self.second), strict=True):
                part.export(draft / name, max_length)
            write_json(draft / SETTINGS, {"schema_version": OWN_FORMAT, "format": SUMMED})
            (draft / "README.md").write_text(_CARD, encoding="utf-8")

    def _split(self, embeddings: Tensor) -> tuple[Tensor, Tensor]:
        return embeddings[..., : self.first.width], embeddings[..., self.first.width :]


_CARD = """---
tags: [cse]
---
# Sentence encoder, the sum of two

Its embedding is the sum of those of the encoders in `first` and `second`. Only
[cse](https://pypi.org/project/cse-registry/) opens this directory: `cse evaluate DIRECTORY`.
"""
