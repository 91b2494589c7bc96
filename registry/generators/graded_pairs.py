"""Sentence pairs whose similarity is known by construction."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from registry import GENERATORS
from registry.errors import UnknownNameError
from registry.generators.graded_meaning import SLOTS, Meaning, change, draw_meaning, omit, score
from registry.generators.graded_surface import draw_construction, english, german
from registry.types import Generator

_CHANGES = {"one_change": 1, "two_changes": 2, "three_changes": 3}
KINDS = ("paraphrase", "omission", *_CHANGES, "negation", "role_swap", "unrelated")


@GENERATORS.register("graded_pairs")
class GradedPairs(Generator):
    """Make graded sentence pairs whose similarity is known by construction.

    A meaning (who did what to whom, where, when, or did not) is drawn and written in one of eight constructions with
    synonyms at random. The second sentence of a pair states the same meaning, or one that differs in a known way; the
    gold score is the weighted overlap of the two meanings (`graded_meaning`), never a measure of their wording. Both
    sentences draw construction and synonyms anew whatever the kind of pair, so wording carries no hint of the score.
    Pairs come in equal numbers of eight kinds, named in the column `subset`.

    Training sentences carry a German translation with the same construction. No meaning occurs in two splits.

    Args:
        sentences: Rows of the split "train".
        pairs: Rows of "dev", and of "test".
        seed: The same seed gives the same rows on every machine.
    """

    def __init__(
        self,
        sentences: Annotated[int, Field(gt=0)] = 6000,
        pairs: Annotated[int, Field(gt=0)] = 1000,
        seed: int = 0,
    ) -> None:
        self.sentences = sentences
        self.pairs = pairs
        self.seed = seed

    def rows(self, split: str) -> Iterator[dict[str, str]]:
        """Yield `text` and `translation` for "train"; `subset`, `score`, `sentence1`, `sentence2` for "dev" and "test".

        Raises:
            UnknownNameError: There is no such split.
        """
        if split not in ("train", "dev", "test"):
            raise UnknownNameError(f"graded_pairs has no split '{split}'.", "Use 'train', 'dev' or 'test'.")
        taken: set[Meaning] = set()
        for earlier in ("test", "dev"):
            pairs = self._draw_pairs(earlier, taken)
            if split == earlier:
                yield from pairs
                return
            for _ in pairs:  # later splits avoid what earlier ones say
                pass
        yield from self._draw_sentences(taken)

    def _draw_sentences(self, taken: set[Meaning]) -> Iterator[dict[str, str]]:
        rng = random.Random(f"{self.seed}:train")
        for _ in range(self.sentences):
            meaning = draw_meaning(rng)
            while meaning in taken:
                meaning = draw_meaning(rng)
            taken.add(meaning)
            construction = draw_construction(meaning, rng)
            yield {"text": english(meaning, construction, rng), "translation": german(meaning, construction)}

    def _draw_pairs(self, split: str, taken: set[Meaning]) -> Iterator[dict[str, str]]:
        rng = random.Random(f"{self.seed}:{split}")
        said: set[Meaning] = set()
        for index in range(self.pairs):
            kind = KINDS[index % len(KINDS)]
            first, second = _draw_pair(kind, rng)
            while first in taken or second in taken:
                first, second = _draw_pair(kind, rng)
            said |= {first, second}
            sentences = [english(meaning, draw_construction(meaning, rng), rng) for meaning in (first, second)]
            while sentences[0] == sentences[1]:
                sentences[1] = english(second, draw_construction(second, rng), rng)
            yield {
                "subset": kind,
                "score": f"{score(first, second):.3f}",
                "sentence1": sentences[0],
                "sentence2": sentences[1],
            }
        taken |= said


def _draw_pair(kind: str, rng: random.Random) -> tuple[Meaning, Meaning]:
    while True:
        first = draw_meaning(rng)
        second = _counterpart(kind, first, rng)
        if second is not None:
            return first, second


def _counterpart(kind: str, first: Meaning, rng: random.Random) -> Meaning | None:
    """Return the other meaning of a pair, or None if this kind of pair cannot start from the first."""
    if kind == "role_swap":
        swapped = replace(first, agent=first.object, object=first.agent)
        return swapped if first.object.noun.kind == "person" else None
    if kind == "omission":
        shorter = omit(first)
        return shorter if shorter != first else None
    if kind == "unrelated":
        second = draw_meaning(rng)
        return second if score(first, second) == 0 else None
    if kind == "negation":
        return replace(first, negated=not first.negated)
    second = first  # a paraphrase, unless slots are to be changed
    for slot in rng.sample(SLOTS, _CHANGES.get(kind, 0)):
        second = change(second, slot, rng)
    return second
