"""Sentences for the meanings of `graded_pairs`: one of five constructions, in English and in German.

Each construction frames the statement in words that say nothing about it, as much of real text does: to judge what two
sentences share, an encoder has to look past them.

German needs what English lost: case and adjective endings, relative pronouns, the finite verb in second place in a main
clause and last in a subordinate one.
"""

from __future__ import annotations

import random

from registry.generators.graded_meaning import Meaning, Participant

ENGLISH = {
    "known": "{agent} {did} {object} {place}, as everybody in the village knows",
    "reported": "according to the newspaper, {object} {was_done} by {agent} {place}",
    "said": "people say that {place} {agent} {did} {object}",
    "remembered": "it was {agent} who {did} {object} {place}, if I remember correctly",
    "expected": "nobody was surprised to hear that {object} {was_done} {place} by {agent}",
}
GERMAN = {
    "known": "{agent} hat {accusative} {place} {done}, wie jeder im Dorf weiß",
    "reported": "laut der Zeitung wurde {object} {by_agent} {place} {done}",
    "said": "man sagt, dass {agent} {place} {accusative} {done} hat",
    "remembered": "es war {agent}, {agent_who} {accusative} {place} {done} hat, wenn ich mich recht erinnere",
    "expected": "niemand war überrascht, dass {object} {place} {by_agent} {done} wurde",
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
