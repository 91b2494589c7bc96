"""Sentences for the meanings of `graded_pairs`: one of five constructions, in English and in German.

German needs what English lost: case and adjective endings, relative pronouns, the finite verb in second place in a main
clause and last in a subordinate one.
"""

from __future__ import annotations

import random

from registry.generators.graded_meaning import Meaning, Participant

ENGLISH = {
    "active": "{agent} {did} {object} {place}",
    "passive": "{object} {was_done} by {agent} {place}",
    "place_first": "{place}, {agent} {did} {object}",
    "passive_place_first": "{place}, {object} {was_done} by {agent}",
    "agent_cleft": "it was {agent} who {did} {object} {place}",
}
GERMAN = {
    "active": "{agent} hat {accusative} {place} {done}",
    "passive": "{object} wurde {by_agent} {place} {done}",
    "place_first": "{place} hat {agent} {accusative} {done}",
    "passive_place_first": "{place} wurde {object} {by_agent} {done}",
    "agent_cleft": "es war {agent}, {agent_who} {accusative} {place} {done} hat",
}
_ACCUSATIVE = {"der": "den", "die": "die", "das": "das"}
_BY = {"der": "vom", "die": "von der", "das": "vom"}


def draw_construction(rng: random.Random) -> str:
    """Choose a construction."""
    return rng.choice(list(ENGLISH))


def english(meaning: Meaning, construction: str, rng: random.Random) -> str:
    """Write the meaning in English, with a synonym drawn for every word."""
    base, past, participle = rng.choice(meaning.action.english)
    words = {
        "agent": _english_participant(meaning.agent, rng),
        "object": _english_participant(meaning.object, rng),
        "did": f"did not {base}" if meaning.negated else past,
        "was_done": f"was not {participle}" if meaning.negated else f"was {participle}",
        "place": rng.choice(meaning.place.english),
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
        "done": f"nicht {meaning.action.german}" if meaning.negated else meaning.action.german,
        "place": meaning.place.german,
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
    return f"{text[0].upper()}{text[1:]}."
