"""CARDS' change of a sentence: the first letters of some words in the other case."""

from __future__ import annotations

from random import Random
from typing import Annotated, Literal

from pydantic import Field

from registry import AUGMENTERS, Tune
from registry.tokens import Sample
from registry.types import Augmenter


@AUGMENTERS.register("switch_case")
class SwitchCase(Augmenter):
    """Give the first letter of some words the other case, so that a cased tokenizer cuts them otherwise.

    Words stand between spaces. "count": max(1, round(rate·n)) of a sentence's n words, drawn without replacement, none
    at rate 0; "chance": each word by itself with probability `rate`. A drawn word that begins with no letter stays as
    it is. For a tokenizer that lowers all letters nothing changes.

    Source: CARDS (Wang et al. 2022) and its code (`data/text_augmentation.py`, versions 1 and 2), which changes the
    second copy of a sentence only: put this into the positive's view.

    Args:
        rate: Share of the words, or probability of each.
        draw: How many: a "count" of each sentence, or by "chance".
    """

    def __init__(
        self,
        rate: Annotated[float, Field(ge=0, le=1), Tune(0.02, 0.3)] = 0.05,
        draw: Literal["count", "chance"] = "chance",
    ) -> None:
        self.rate, self.draw = rate, draw

    def on_text(self, samples: list[Sample], rng: Random) -> list[Sample]:
        """Switch first letters, in both segments of a pair."""
        return [sample.changed(lambda text: self._switched(text, rng)) for sample in samples]

    def _switched(self, text: str, rng: Random) -> str:
        words = text.split(" ")
        if self.draw == "chance":
            chosen = {place for place in range(len(words)) if rng.random() < self.rate}
        else:
            wanted = max(1, round(self.rate * len(words))) if self.rate else 0
            chosen = set(rng.sample(range(len(words)), wanted))
        return " ".join(word[:1].swapcase() + word[1:] if i in chosen else word for i, word in enumerate(words))
