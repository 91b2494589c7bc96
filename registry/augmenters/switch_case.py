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

    Words are separated by spaces. "count": max(1, round(rate·n)) words for a sentence of n words, drawn without
    replacement from those that start with a letter, or all of these if there are fewer. No word with rate 0.
    "chance": each word independently with probability `rate`. Words that start with another character do not change.
    Several spaces in a row become one. A tokenizer for lower-case text is not affected.

    Source: CARDS (Wang et al. 2022) and its code (alibaba/SimCSE-with-CARDS @8e038a0, `data/text_augmentation.py:51-65`
    for version 1, "count", and `:89-100` for version 2, "chance"). It changes only the second copy of a sentence: use
    this augmenter in the view of the positive.

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
        words = [word for word in text.split(" ") if word]
        places = [place for place, word in enumerate(words) if word[0].isalpha()]
        if self.draw == "chance":
            chosen = {place for place in places if rng.random() < self.rate}
        else:
            wanted = max(1, round(self.rate * len(words))) if self.rate else 0
            chosen = set(rng.sample(places, min(wanted, len(places))))
        for place in chosen:
            first = words[place][0]
            words[place] = (first.upper() if first.islower() else first.lower()) + words[place][1:]
        return " ".join(words)
