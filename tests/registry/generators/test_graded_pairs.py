"""Gold scores follow from meanings, worked by hand; wording gives nothing away; splits share nothing."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from registry.generators.graded_meaning import (
    PEOPLE,
    PERSON_QUALITIES,
    PLACES,
    SLOTS,
    THINGS,
    TIMES,
    VERBS,
    Meaning,
    Participant,
    change,
    draw_meaning,
    omit,
    score,
)
from registry.generators.graded_pairs import ENGLISH, GERMAN, KINDS, GradedPairs, english, german
from tests.support.errors import refuses


def word(table: tuple[Any, ...], german_word: str) -> Any:
    return next(entry for entry in table if entry.german == german_word)


DOCTOR, NURSE, KING = word(PEOPLE, "Arzt"), word(PEOPLE, "Krankenschwester"), word(PEOPLE, "König")
DOG, BRAVE, RICH = word(THINGS, "Hund"), word(PERSON_QUALITIES, "mutig"), word(PERSON_QUALITIES, "reich")
HELP, SELL = word(VERBS, "unterstützt"), word(VERBS, "verkauft")
PARK, GARDEN, CELLAR = word(PLACES, "im Park"), word(PLACES, "im Garten"), word(PLACES, "im Keller")
MONDAY = word(TIMES, "am Montag")
BASE = Meaning(HELP, Participant(DOCTOR, None), Participant(KING, None), PARK, None, negated=False)


@pytest.mark.parametrize(
    ("other", "gold"),
    [
        (BASE, 5.0),
        (replace(BASE, place=CELLAR), 5 * 7 / 8.5),  # 3 + 4 of 3 + 4 + 1.5
        (replace(BASE, place=GARDEN), 5 * 7.6 / 8.5),  # a place of the same field: 0.4 of 1.5
        (replace(BASE, action=SELL), 5 * 5.5 / 8.5),
        (replace(BASE, agent=Participant(NURSE, None)), 5 * (3 + 4 * 0.7 + 1.5) / 8.5),  # (0.4 + 1) / 2
        (replace(BASE, time=MONDAY), 5 * 8.5 / 8.75),  # stated on one side only: half of weight 0.5
        (replace(BASE, agent=Participant(DOCTOR, BRAVE)), 5 * (3 + 4 * (4 / 4.5 + 1) / 2 + 1.5) / 8.5),
        (replace(BASE, negated=True), 3.0),  # 0.6 × 5
        (replace(BASE, agent=BASE.object, object=BASE.agent), 5 * (3 + 4 * 0.5 + 1.5) / 8.5),
        (
            Meaning(SELL, Participant(KING, RICH), Participant(DOG, None), CELLAR, None, negated=False),
            5 / 8.5 * 4 * 0.5 * (4 / 4.5) / 2,
        ),
    ],
)
def test_gold_scores_by_hand(other: Meaning, gold: float) -> None:
    assert score(BASE, other) == pytest.approx(gold)
    assert score(other, BASE) == pytest.approx(gold)


def test_sentences_by_hand() -> None:
    rng = random.Random(0)
    meaning = replace(BASE, agent=Participant(DOCTOR, BRAVE), time=MONDAY)
    for name in ENGLISH:
        assert "in the park" in english(meaning, name, rng).lower()
        assert "not" not in english(meaning, name, rng)
    denied = replace(meaning, negated=True)
    assert "did not " in english(denied, "active", rng)
    assert "was not " in english(denied, "passive", rng)
    assert german(meaning, "active") == "Der mutige Arzt hat den König am Montag im Park unterstützt."
    assert german(denied, "passive") == "Der König wurde vom mutigen Arzt am Montag im Park nicht unterstützt."
    assert german(replace(BASE), "agent_cleft") == "Es war der Arzt, der den König im Park unterstützt hat."
    assert set(GERMAN) == set(ENGLISH)


@pytest.mark.parametrize("slot", SLOTS)
def test_exactly_the_slot_asked_for_changes(slot: str) -> None:
    rng = random.Random(slot)
    for _ in range(50):
        first = draw_meaning(rng)
        second = change(first, slot, rng)
        assert second.object.noun.kind in second.action.objects
        assert second.agent.noun != second.object.noun
        assert (second.negated, second.time) == (first.negated, first.time)
        same = {
            "agent": first.agent.noun == second.agent.noun,
            "action": first.action == second.action,
            "object": first.object.noun == second.object.noun,
            "place": first.place == second.place,
        }
        assert [name for name, equal in same.items() if not equal] == [slot]


def test_omission_leaves_only_what_must_be_said() -> None:
    full = replace(BASE, agent=Participant(DOCTOR, BRAVE), time=MONDAY)
    assert omit(full) == BASE
    assert 4 < score(full, omit(full)) < 5


def test_splits_are_deterministic_and_share_no_sentence() -> None:
    made = GradedPairs(sentences=500, pairs=80)
    splits = {split: list(made.rows(split)) for split in ("train", "dev", "test")}
    again = GradedPairs(sentences=500, pairs=80)
    assert all(list(again.rows(split)) == rows for split, rows in splits.items())
    other = GradedPairs(sentences=500, pairs=80, seed=1)
    assert list(other.rows("train")) != splits["train"]
    said = {s: {r["sentence1"] for r in splits[s]} | {r["sentence2"] for r in splits[s]} for s in ("dev", "test")}
    trained = {row["text"] for row in splits["train"]}
    assert not said["dev"] & said["test"]
    assert not trained & (said["dev"] | said["test"])
    assert all(row["sentence1"] != row["sentence2"] for row in splits["dev"])
    assert Counter(row["subset"] for row in splits["dev"]) == dict.fromkeys(KINDS, 10)
    assert all(0 <= float(row["score"]) <= 5 for row in splits["dev"])


def test_the_default_rows_are_the_ones_that_were_frozen() -> None:
    first = next(GradedPairs().rows("dev"))
    assert first == {
        "subset": "paraphrase",
        "score": "5.000",
        "sentence1": "In the morning, the lecturer did not sell the boat at the airport.",
        "sentence2": "The professor did not sell the boat at the airport in the morning.",
    }


def test_an_unknown_split_is_refused() -> None:
    with refuses("data.unknown_split", "'validation'", "'train'"):
        next(GradedPairs().rows("validation"))
