"""Sentences in pairs, as encoders like BERT read them in pretraining."""

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
    """Put a second segment behind the sentence: the sentence itself, or another one of the batch.

    [CLS] x [SEP] c [SEP] with the model's own special tokens and segment ids; RoBERTa's is <s> x </s></s> c </s>.

    Args:
        partner: c: "self" is x again, "other" another row of the batch, each with the same probability. Another row
            may hold the same sentence where the data repeats one.
        truncation: "presplit" cuts each side to what a single sentence may hold, so that a pair of one sentence with
            itself holds exactly that sentence twice; "tokenizer" cuts the pair to twice `data.max_length`, the longer
            side first.

    Shapes: (B,) sentences → (B,) pairs.

    Source: ConIsI §3.1.1 and §3.1.2 ("self"), §3.2.2 ("other"). Doubtful and settled in methods/conisi.md: where pairs
    are cut (C5 → `truncation`), duplicates (C9: only the sentence's own row is excluded).
    """

    def __init__(
        self, partner: Literal["self", "other"] = "self", truncation: Literal["presplit", "tokenizer"] = "presplit"
    ) -> None:
        self.partner = partner
        self.truncation = truncation
        self.room: int | None = None

    def bind(self, encoder: Encoder) -> None:
        """Note how many tokens the encoder takes."""
        self.room = encoder.max_length

    def on_text(self, samples: list[Sample], rng: Random) -> list[Sample]:
        """Return each sample with its partner as second segment.

        Raises:
            CseError: A sample is a pair already, or the batch has no other sentence.
        """
        if any(sample.pair is not None for sample in samples):
            raise CseError("pair: the view's sentences are pairs already", "keep one `pair` in the view's augment list")
        joint, rows = self.truncation == "tokenizer", len(samples)
        partners = [place if self.partner == "self" else another_row(place, rows, rng) for place in range(rows)]
        return [replace(s, pair=samples[k].text, joint=joint) for s, k in zip(samples, partners, strict=True)]

    def on_tokens(self, tokens: Tokens, step: Step) -> Tokens:  # noqa: ARG002 - the hook's form
        """Return the tokens as they are.

        Raises:
            CseError: They are more than the encoder takes.
        """
        if self.room is not None and tokens.length > self.room:
            raise CseError(
                f"pair: a pair of {tokens.length} tokens, but the encoder takes at most {self.room}",
                f"--set data.max_length={self.room // 2}: a pair is about twice as long as a sentence",
            )
        return tokens
