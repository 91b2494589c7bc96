"""Sentences for the meanings of `graded_pairs`: one of eight constructions, in English and in German.

German needs what English lost: case and adjective endings, relative pronouns, the finite verb in second place in a main
clause and last in a subordinate one.
"""

from __future__ import annotations

import random
import re

from registry.generators.graded_meaning import Meaning, Participant

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
    """Close the gaps that silent slots left, and write the text as a sentence."""
    closed = re.sub(r" +(,|$)", r"\1", re.sub(r" +", " ", text))
    return f"{closed[0].upper()}{closed[1:]}."
