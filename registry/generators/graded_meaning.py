"""Meanings of the sentences of `graded_pairs`, and how alike two meanings are.

- A meaning has five slots: agent (weight 2), the agent's quality (1), action (3), object (2), place (2); and it is
  asserted or denied.
- A slot filled by the same concept on both sides counts fully, by different concepts not at all; synonyms are one
  concept.
- Participants that changed roles (the doctor helped the king, the king helped the doctor) count `SWAPPED` of what they
  would count in place; the better of the two readings holds.
- Denial of what the other sentence asserts leaves `DENIED` of the whole: same subject, opposite statement.
- The score is five times the weighted mean.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from registry.generators.graded_lexicon import PEOPLE, PLACES, QUALITIES, THINGS, VERBS, Noun, Verb, Word

WEIGHTS = {"agent": 2.0, "quality": 1.0, "action": 3.0, "object": 2.0, "place": 2.0}
SLOTS = tuple(WEIGHTS)
SWAPPED = 0.5
DENIED = 0.6
HIGHEST_SCORE = 5.0
NOUNS = PEOPLE + THINGS


@dataclass(frozen=True)
class Participant:
    """Who acts or is acted upon."""

    noun: Noun
    quality: Word | None


@dataclass(frozen=True)
class Meaning:
    """What a sentence says, whatever its words and word order."""

    action: Verb
    agent: Participant
    object: Participant
    place: Word
    negated: bool


def draw_meaning(rng: random.Random) -> Meaning:
    """Draw a meaning; one of ten is a denial."""
    action = rng.choice(VERBS)
    agent = rng.choice(PEOPLE)
    target = rng.choice([noun for noun in NOUNS if noun.kind in action.objects and noun != agent])
    return Meaning(
        action=action,
        agent=Participant(agent, rng.choice(QUALITIES)),
        object=Participant(target, None),
        place=rng.choice(PLACES),
        negated=rng.random() < 0.1,
    )


def change(meaning: Meaning, slots: Sequence[str], rng: random.Random) -> Meaning:
    """Put other concepts into some of `SLOTS`, such that the verb still fits its object."""
    while True:
        drawn = draw_meaning(rng)
        agent = Participant(
            drawn.agent.noun if "agent" in slots else meaning.agent.noun,
            drawn.agent.quality if "quality" in slots else meaning.agent.quality,
        )
        changed = replace(
            meaning,
            action=drawn.action if "action" in slots else meaning.action,
            agent=agent,
            object=drawn.object if "object" in slots else meaning.object,
            place=drawn.place if "place" in slots else meaning.place,
        )
        fits = changed.object.noun.kind in changed.action.objects and agent.noun != changed.object.noun
        if fits and _shared(meaning, changed) == set(SLOTS) - set(slots):
            return changed


def score(first: Meaning, second: Meaning) -> float:
    """Return how alike two meanings are, from 0 (nothing in common) to 5 (the same), by the rules above."""
    straight = _participant("agent", first.agent, second.agent) + _participant("object", first.object, second.object)
    crossed = _participant("agent", first.agent, second.object) + _participant("object", first.object, second.agent)
    whole = max(straight, SWAPPED * crossed)
    whole += WEIGHTS["action"] * (first.action == second.action) + WEIGHTS["place"] * (first.place == second.place)
    denied = DENIED if first.negated != second.negated else 1.0
    return HIGHEST_SCORE * denied * whole / sum(WEIGHTS.values())


def _shared(first: Meaning, second: Meaning) -> set[str]:
    same = {
        "agent": first.agent.noun == second.agent.noun,
        "quality": first.agent.quality == second.agent.quality,
        "action": first.action == second.action,
        "object": first.object.noun == second.object.noun,
        "place": first.place == second.place,
    }
    return {slot for slot, equal in same.items() if equal}


def _participant(slot: str, first: Participant, second: Participant) -> float:
    """Return what a participant adds; its quality counts with the agent's slot."""
    quality = WEIGHTS["quality"] * (first.quality == second.quality) if slot == "agent" else 0.0
    return WEIGHTS[slot] * (first.noun == second.noun) + quality
