"""TSDAE's noise: most words of a sentence are gone."""

from __future__ import annotations

from random import Random
from typing import Annotated

from pydantic import Field

from registry import AUGMENTERS, Tune
from registry.tokens import Sample
from registry.types import Augmenter


@AUGMENTERS.register("delete_words")
class DeleteWords(Augmenter):
    """Delete each word of a sentence, by itself, with the same probability; one word always stays.

    Words stand between spaces. Where all would go, one of them, each equally likely, stays. Each segment of a pair is
    treated by itself.

    Source: TSDAE (Wang, Reimers and Gurevych 2021, section 3) and its code in sentence-transformers. Doubtful and
    settled in methods/tsdae.md: what the rate counts (TS1), what a word is (TS5).

    Args:
        rate: Probability that a word goes.
    """

    def __init__(self, rate: Annotated[float, Field(ge=0, le=1), Tune(0.1, 0.9)] = 0.6) -> None:
        self.rate = rate

    def on_text(self, samples: list[Sample], rng: Random) -> list[Sample]:
        """Return the samples with words deleted."""
        return [sample.changed(lambda text: self._shortened(text, rng)) for sample in samples]

    def _shortened(self, text: str, rng: Random) -> str:
        words = text.split(" ")
        return " ".join([word for word in words if rng.random() >= self.rate] or [rng.choice(words)])
