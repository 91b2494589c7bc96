"""Sentence pairs as input of encoders such as BERT."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Literal

from registry import AUGMENTERS
from registry.augmenters.partners import another_row
from registry.errors import CseError
from registry.tokens import Sample, Tokens
from registry.types import Augmenter, Encoder, Step


@AUGMENTERS.register("pair")
class Pair(Augmenter):
    """Add a second segment: the sentence itself, or another sentence of the batch.

    [CLS] x [SEP] c [SEP], with the special tokens and segment IDs of the model, for example <s> x </s></s> c </s> for
    RoBERTa.

    Args:
        partner: Second segment c: "self" is x itself, "other" a random other row of the batch. That row can contain the
            same sentence if the data repeats it.
        truncation: "presplit" truncates each segment to the length of a single sentence, so the pair of a sentence with
            itself contains the same tokens twice. "tokenizer" truncates the pair to twice `data.max_length`, the longer
            segment first.

    Shapes: (B,) sentences → (B,) pairs.

    Source: ConIsI §3.1.1 and §3.1.2 ("self"), §3.2.2 ("other"). Doubtful and settled in methods/conisi.md: truncation
    of pairs (C5 → `truncation`), duplicates (C9: only the sentence's own row is excluded).

    Example:
        [views.pair]
        encoder = "online"
        augment = [{ name = "pair", partner = "self" }]
    """

    def __init__(
        self, partner: Literal["self", "other"] = "self", truncation: Literal["presplit", "tokenizer"] = "presplit"
    ) -> None:
        self.partner = partner
        self.truncation = truncation
        self.limit: int | None = None

    def bind(self, encoder: Encoder) -> None:
        """Read the maximum input length of the encoder."""
        self.limit = encoder.max_length

    def on_text(self, samples: list[Sample], rng: Random) -> list[Sample]:
        """Return each sample with a second segment."""
        if any(sample.pair is not None for sample in samples):
            raise CseError(
                "pair: the sentences of the view are already pairs",
                "keep only one `pair` in the `augment` list of the view",
                code="augmenters.already_pairs",
            )
        joint, rows = self.truncation == "tokenizer", len(samples)
        partners = [place if self.partner == "self" else another_row(place, rows, rng) for place in range(rows)]
        return [replace(s, pair=samples[k].text, joint=joint) for s, k in zip(samples, partners, strict=True)]

    def on_tokens(self, tokens: Tokens, step: Step) -> Tokens:  # noqa: ARG002 - the hook's form
        """Return the tokens unchanged after checking their number."""
        if self.limit is not None and tokens.length > self.limit:
            raise CseError(
                f"pair: a pair has {tokens.length} tokens, but the maximum input length of the encoder is {self.limit}",
                f"use --set data.max_length={self.limit // 2}: a pair is about twice as long as a sentence",
                code="augmenters.long_pair",
            )
        return tokens
