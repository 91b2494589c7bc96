"""TSDAE's noise: most words of a sentence are deleted."""

from __future__ import annotations

from random import Random
from typing import Annotated

from pydantic import Field

from registry import AUGMENTERS, Tune
from registry.tokens import Sample
from registry.types import Augmenter


@AUGMENTERS.register("delete_words")
class DeleteWords(Augmenter):
    """Delete each word of a sentence with the same probability.

    The words are separated by spaces and deleted independently. If all words would be deleted, a random one stays. The
    two segments of a pair are changed separately.

    Source: TSDAE (Wang, Reimers and Gurevych 2021, section 3) and its code in sentence-transformers. Doubtful and
    settled in methods/tsdae.md: the meaning of the rate (TS1), the definition of a word (TS5).

    Args:
        rate: Probability that a word is deleted.

    Example:
        [views.noisy]
        encoder = "online"
        augment = [{ name = "delete_words", rate = 0.6 }]
    """

    def __init__(self, rate: Annotated[float, Field(ge=0, le=1), Tune(0.1, 0.9)] = 0.6) -> None:
        self.rate = rate

    def on_text(self, samples: list[Sample], rng: Random) -> list[Sample]:
        """Return the samples without the deleted words."""

        def shortened(text: str) -> str:
            words = text.split(" ")
            return " ".join([word for word in words if rng.random() >= self.rate] or [rng.choice(words)])

        return [sample.changed(shortened) for sample in samples]
