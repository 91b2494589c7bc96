"""Sentence pairs whose similarity is known by construction, with meanings expressed in eight constructions."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Annotated

from pydantic import Field

from registry import GENERATORS
from registry.errors import UnknownNameError
from registry.generators.graded_meaning import SLOTS, Meaning, Participant, change, draw_meaning, omit, score
from registry.types import RowGenerator

_CHANGES = {"one_change": 1, "two_changes": 2, "three_changes": 3}
KINDS = ("paraphrase", "omission", *_CHANGES, "negation", "role_swap", "unrelated")


@GENERATORS.register("graded_pairs")
class GradedPairs(RowGenerator):
    """Generate sentence pairs whose similarity is known by construction.

    A random meaning (who did what to whom, where and when, or did not) is expressed in one of eight constructions with
    random synonyms. The second sentence of a pair has the same meaning, or one with a known difference. The gold score
    is the weighted overlap of the two meanings (`graded_meaning`) and does not depend on the wording. Construction and
    synonyms of both sentences are drawn independently of the kind of pair, so they do not reveal the score. The eight
    kinds of pairs have the same frequency, and the column `subset` names them.

    Training sentences have a German translation with the same construction. No meaning occurs in two splits.

    Args:
        sentences: Number of rows of the split "train".
        pairs: Number of rows of each of the splits "dev" and "test".
        seed: Random seed. The same seed gives the same rows on every machine.

    Example:
        [generator]
        name = "graded_pairs"
        params = { sentences = 6000, pairs = 1000 }
    """

    def __init__(
        self,
        sentences: Annotated[int, Field(gt=0)] = 6000,
        pairs: Annotated[int, Field(gt=0)] = 1000,
        seed: int = 0,
    ) -> None:
        self.sentences, self.pairs, self.seed = sentences, pairs, seed

    def rows(self, split: str) -> Iterator[dict[str, str]]:
        """Yield the rows of a split.

        "train" has `text` and `translation`. "dev" and "test" have `subset`, `score`, `sentence1` and `sentence2`.

        Raises:
            UnknownNameError: If the split does not exist.
        """
        if split not in ("train", "dev", "test"):
            raise UnknownNameError(
                f"graded_pairs has no split '{split}'", "use 'train', 'dev' or 'test'", code="data.unknown_split"
            )
        yield from map(dict, _made(self.sentences, self.pairs, self.seed, split))

    def draw(self, split: str) -> Iterator[dict[str, str]]:
        """Yield the rows of a split one by one."""
        taken: set[Meaning] = set()
        for earlier in ("test", "dev"):
            pairs = self._draw_pairs(earlier, taken)
            if split == earlier:
                yield from pairs
                return
            for _ in pairs:  # later splits do not repeat meanings of earlier ones
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


@cache
def _made(sentences: int, pairs: int, seed: int, split: str) -> list[dict[str, str]]:
    """Return the rows of a split. Cached, because drawing takes about a second."""
    return list(GradedPairs(sentences, pairs, seed).draw(split))


def _draw_pair(kind: str, rng: random.Random) -> tuple[Meaning, Meaning]:
    while True:
        first = draw_meaning(rng)
        second = _counterpart(kind, first, rng)
        if second is not None:
            return first, second


def _counterpart(kind: str, first: Meaning, rng: random.Random) -> Meaning | None:
    """Return the other meaning of a pair, or None if `first` does not allow this kind of pair."""
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


ENGLISH = {
    "active": "{agent} {did} {object} {place} {time}",
    "passive": "{object} {was_done} by {agent} {place} {time}",
    "place_first": "{place}, {agent} {did} {object} {time}",
    "time_first": "{time}, {agent} {did} {object} {place}",
    "passive_place_first": "{place}, {object} {was_done} by {agent} {time}",
    "agent_cleft": "it was {agent} who {did} {object} {place} {time}",
    "object_cleft": "it was {object} that {agent} {did} {place} {time}",
    "place_cleft": "it was {place} that {agent} {did} {object} {time}",
}
GERMAN = {
    "active": "{agent} hat {accusative} {time} {place} {done}",
    "passive": "{object} wurde {by_agent} {time} {place} {done}",
    "place_first": "{place} hat {agent} {accusative} {time} {done}",
    "time_first": "{time} hat {agent} {accusative} {place} {done}",
    "passive_place_first": "{place} wurde {object} {by_agent} {time} {done}",
    "agent_cleft": "es war {agent}, {agent_who} {accusative} {time} {place} {done} hat",
    "object_cleft": "es war {object}, {object_whom} {agent} {time} {place} {done} hat",
    "place_cleft": "es war {place}, wo {agent} {accusative} {time} {done} hat",
}
# German has what English lost: case and adjective endings, relative pronouns, the finite verb in second place in a main
# clause and last in a subordinate one.
_ACCUSATIVE = {"der": "den", "die": "die", "das": "das"}
_BY = {"der": "vom", "die": "von der", "das": "vom"}


def draw_construction(meaning: Meaning, rng: random.Random) -> str:
    """Choose a construction that the meaning can fill."""
    return rng.choice([name for name in ENGLISH if name != "time_first" or meaning.time])


def english(meaning: Meaning, construction: str, rng: random.Random) -> str:
    """Write the meaning in English, with a synonym drawn for every word."""
    base, past, participle = rng.choice(meaning.action.english)
    words = {
        "agent": _english_participant(meaning.agent, rng),
        "object": _english_participant(meaning.object, rng),
        "did": f"did not {base}" if meaning.negated else past,
        "was_done": f"was not {participle}" if meaning.negated else f"was {participle}",
        "place": rng.choice(meaning.place.english),
        "time": rng.choice(meaning.time.english) if meaning.time else "",
    }
    return _sentence(ENGLISH[construction].format_map(words))


def german(meaning: Meaning, construction: str) -> str:
    """Write the meaning in German."""
    agent, target = meaning.agent, meaning.object
    words = {
        "agent": _nominative(agent),
        "by_agent": _oblique(agent, _BY[agent.noun.article], "en"),
        "agent_who": agent.noun.article,
        "object": _nominative(target),
        "accusative": _oblique(target, _ACCUSATIVE[target.noun.article], "en" if target.noun.article == "der" else "e"),
        "object_whom": _ACCUSATIVE[target.noun.article],
        "done": f"nicht {meaning.action.german}" if meaning.negated else meaning.action.german,
        "place": meaning.place.german,
        "time": meaning.time.german if meaning.time else "",
    }
    return _sentence(GERMAN[construction].format_map(words))


def _english_participant(participant: Participant, rng: random.Random) -> str:
    quality = f"{rng.choice(participant.quality.english)} " if participant.quality else ""
    return f"the {quality}{rng.choice(participant.noun.english)}"


def _nominative(participant: Participant) -> str:
    quality = f"{participant.quality.german}e " if participant.quality else ""
    return f"{participant.noun.article} {quality}{participant.noun.german}"


def _oblique(participant: Participant, article: str, ending: str) -> str:
    quality = f"{participant.quality.german}{ending} " if participant.quality else ""
    return f"{article} {quality}{participant.noun.oblique}"


def _sentence(text: str) -> str:
    """Remove the spaces of empty slots, and write the text as a sentence."""
    closed = re.sub(r" +(,|$)", r"\1", re.sub(r" +", " ", text))
    return f"{closed[0].upper()}{closed[1:]}."
