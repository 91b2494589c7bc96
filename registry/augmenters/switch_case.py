"""CARDS' change of a sentence: the case of first letters switched."""

from __future__ import annotations

from random import Random
from typing import Annotated, Literal

from pydantic import Field

from registry import AUGMENTERS, Tune
from registry.tokens import Sample
from registry.types import Augmenter


@AUGMENTERS.register("switch_case")
class SwitchCase(Augmenter):
    """Switch the case of the first letter of some words, so that a cased tokenizer splits them differently.

    Words are separated by spaces. "count": max(1, round(rate·n)) of a sentence's n words, drawn without replacement, or
    no word with rate 0. "chance": each word independently with probability `rate`. Words that start with another
    character do not change. A tokenizer for lower-case text is not affected.

    Source: CARDS (Wang et al. 2022) and its code (`data/text_augmentation.py`, versions 1 and 2). It changes only the
    second copy of a sentence: use this augmenter in the view of the positive.

    Args:
        rate: Share of words, or probability of each word.
        draw: A fixed "count" in each sentence, or "chance".

    Example:
        [views.positive]
        encoder = "online"
        augment = [{ name = "switch_case", rate = 0.05 }]
    """

    def __init__(
        self,
        rate: Annotated[float, Field(ge=0, le=1), Tune(0.02, 0.3)] = 0.05,
        draw: Literal["count", "chance"] = "chance",
    ) -> None:
        self.rate, self.draw = rate, draw

    def on_text(self, samples: list[Sample], rng: Random) -> list[Sample]:
        """Return the samples with switched first letters in both segments."""
        return [sample.changed(lambda text: self._switched(text, rng)) for sample in samples]

    def _switched(self, text: str, rng: Random) -> str:
        words = text.split(" ")
        if self.draw == "chance":
            chosen = {place for place in range(len(words)) if rng.random() < self.rate}
        else:
            wanted = max(1, round(self.rate * len(words))) if self.rate else 0
            chosen = set(rng.sample(range(len(words)), wanted))
        return " ".join(word[:1].swapcase() + word[1:] if i in chosen else word for i, word in enumerate(words))
