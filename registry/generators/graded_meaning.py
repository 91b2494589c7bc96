"""Meanings of the sentences of `graded_pairs`, and the similarity of two meanings.

The lexicon `graded_lexicon.toml` is small and contains English and German. The rules of the score were fixed before any
encoder was evaluated:

- A meaning has six slots: action (weight 3), agent (2), object (2), place (1.5), an optional time (0.5), and polarity.
  A participant has a noun (4) and an optional quality (1): "the brave doctor".
- The same concept in a slot of both sentences counts fully. Two concepts of one field (doctor, nurse) count `SIBLING`
  of it, and other concepts 0. A slot that only one sentence has counts as a difference of half the weight.
- Participants with exchanged roles (the doctor helped the king, the king helped the doctor) count `SWAPPED` of their
  similarity in the same roles. The better of the two readings is used.
- If only one sentence is negated, the score is multiplied by `DENIED`: same subject, opposite statement.
- The score is five times the weighted mean.
"""

from __future__ import annotations

import random
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar


@dataclass(frozen=True)
class Concept:
    """A meaning with its German word (a verb's participle, an adjective's stem) and its field of related meanings."""

    german: str
    field: str


@dataclass(frozen=True)
class Word(Concept):
    """An adjective, place or time with synonymous English phrases."""

    english: tuple[str, ...]


@dataclass(frozen=True)
class Noun(Word):
    """A noun with its German article, its oblique form and the kind of thing that it names."""

    article: str
    oblique: str
    kind: str


@dataclass(frozen=True)
class Verb(Concept):
    """A verb with English synonyms (base, past, participle) and the kinds of its objects."""

    english: tuple[tuple[str, str, str], ...]
    objects: frozenset[str]


_LEXICON = tomllib.loads(Path(__file__).with_name("graded_lexicon.toml").read_text(encoding="utf-8"))


def _cells(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")] for line in _LEXICON[table].strip().splitlines()]


def _split(cell: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in cell.split(","))


def _noun(english: str, german: str, field: str, kind: str) -> Noun:
    article, word = german.split(" ", 1)
    forms = _split(word)
    return Noun(forms[0], field, _split(english), article, forms[-1], kind)


def _verb(english: str, german: str, field: str, objects: str) -> Verb:
    forms = [part.split() for part in _split(english)]
    return Verb(german, field, tuple((base, past, done) for base, past, done in forms), frozenset(objects.split()))


PEOPLE = tuple(_noun(english, german, field, "person") for english, german, field in _cells("people"))
THINGS = tuple(_noun(english, german, field, field) for english, german, field in _cells("things"))
VERBS = tuple(_verb(*cells) for cells in _cells("verbs"))
# An adjective has no related meanings, so it is its own field.
PERSON_QUALITIES = tuple(Word(german, german, _split(english)) for english, german in _cells("person_qualities"))
THING_QUALITIES = tuple(Word(german, german, _split(english)) for english, german in _cells("thing_qualities"))
PLACES = tuple(Word(german, field, _split(english)) for english, german, field in _cells("places"))
TIMES = tuple(Word(german, field, _split(english)) for english, german, field in _cells("times"))


SIBLING = 0.4
SWAPPED = 0.5
DENIED = 0.6
HIGHEST_SCORE = 5.0
NOUNS = PEOPLE + THINGS
SLOTS = ("agent", "action", "object", "place")

AnyConcept = TypeVar("AnyConcept", bound=Concept)


@dataclass(frozen=True)
class Participant:
    """The agent or the object of an action."""

    noun: Noun
    quality: Word | None


@dataclass(frozen=True)
class Meaning:
    """Meaning of a sentence, independent of its words and word order."""

    action: Verb
    agent: Participant
    object: Participant
    place: Word
    time: Word | None
    negated: bool


def draw_meaning(rng: random.Random) -> Meaning:
    """Draw a meaning. A time and each quality have probability 1/2, a negation 1/10."""
    action = rng.choice(VERBS)
    agent = rng.choice(PEOPLE)
    target = rng.choice([noun for noun in NOUNS if noun.kind in action.objects and noun != agent])
    return Meaning(
        action=action,
        agent=_describe(agent, rng),
        object=_describe(target, rng),
        place=rng.choice(PLACES),
        time=rng.choice(TIMES) if rng.random() < 0.5 else None,
        negated=rng.random() < 0.1,
    )


def change(meaning: Meaning, slot: str, rng: random.Random) -> Meaning:
    """Replace the concept of one of `SLOTS`, with probability 1/2 by one of the same field if possible."""
    if slot == "place":
        return replace(meaning, place=_other(PLACES, meaning.place, rng))
    if slot == "action":
        fitting = [verb for verb in VERBS if meaning.object.noun.kind in verb.objects]
        return replace(meaning, action=_other(fitting, meaning.action, rng))
    if slot == "agent":
        people = [noun for noun in PEOPLE if noun != meaning.object.noun]
        return replace(meaning, agent=_describe(_other(people, meaning.agent.noun, rng), rng))
    fitting_nouns = [noun for noun in NOUNS if noun.kind in meaning.action.objects and noun != meaning.agent.noun]
    return replace(meaning, object=_describe(_other(fitting_nouns, meaning.object.noun, rng), rng))


def omit(meaning: Meaning) -> Meaning:
    """Remove the optional parts: the time and both qualities."""
    agent, target = replace(meaning.agent, quality=None), replace(meaning.object, quality=None)
    return replace(meaning, agent=agent, object=target, time=None)


def score(first: Meaning, second: Meaning) -> float:
    """Return the similarity of two meanings by the rules above, from 0 (nothing in common) to 5 (the same)."""
    straight = _participant(first.agent, second.agent) + _participant(first.object, second.object)
    crossed = _participant(first.agent, second.object) + _participant(first.object, second.agent)
    parts = [
        (3.0, _likeness(first.action, second.action)),
        (4.0, max(straight, SWAPPED * crossed) / 2),
        (1.5, _likeness(first.place, second.place)),
        _optional(0.5, first.time, second.time),
    ]
    return HIGHEST_SCORE * _weighted_mean(parts) * (DENIED if first.negated != second.negated else 1.0)


def _describe(noun: Noun, rng: random.Random) -> Participant:
    qualities = PERSON_QUALITIES if noun.kind == "person" else THING_QUALITIES
    return Participant(noun, rng.choice(qualities) if rng.random() < 0.5 else None)


def _other(concepts: Sequence[AnyConcept], current: AnyConcept, rng: random.Random) -> AnyConcept:
    siblings = [concept for concept in concepts if concept.field == current.field and concept != current]
    strangers = [concept for concept in concepts if concept.field != current.field]
    if not siblings or not strangers:
        return rng.choice(siblings or strangers)
    return rng.choice(siblings if rng.random() < 0.5 else strangers)


def _likeness(first: Concept, second: Concept) -> float:
    if first == second:
        return 1.0
    return SIBLING if first.field == second.field else 0.0


def _optional(weight: float, first: Concept | None, second: Concept | None) -> tuple[float, float]:
    if first is None and second is None:
        return 0.0, 0.0
    if first is None or second is None:
        return weight / 2, 0.0
    return weight, _likeness(first, second)


def _participant(first: Participant, second: Participant) -> float:
    return _weighted_mean([(4.0, _likeness(first.noun, second.noun)), _optional(1.0, first.quality, second.quality)])


def _weighted_mean(parts: Sequence[tuple[float, float]]) -> float:
    return sum(weight * value for weight, value in parts) / sum(weight for weight, _ in parts)
