"""Gold scores follow from meanings, worked by hand; wording gives nothing away; splits share nothing."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from registry.errors import UnknownNameError
from registry.generators.graded_lexicon import PEOPLE, PLACES, QUALITIES, THINGS, VERBS
from registry.generators.graded_meaning import SLOTS, Meaning, Participant, change, draw_meaning, score
from registry.generators.graded_pairs import KINDS, SHARES, GradedPairs
from registry.generators.graded_surface import ENGLISH, GERMAN, english, german


def word(table: tuple, german_word: str):  # type: ignore[no-untyped-def, type-arg]
    return next(entry for entry in table if entry.german == german_word)


DOCTOR, KING, DOG = word(PEOPLE, "Arzt"), word(PEOPLE, "König"), word(THINGS, "Hund")
BRAVE, RICH = word(QUALITIES, "mutig"), word(QUALITIES, "reich")
HELP, RESCUE = word(VERBS, "unterstützt"), word(VERBS, "gerettet")
PARK, CELLAR = word(PLACES, "im Park"), word(PLACES, "im Keller")
BASE = Meaning(HELP, Participant(DOCTOR, BRAVE), Participant(KING, None), PARK, negated=False)


@pytest.mark.parametrize(
    ("other", "gold"),
    [
        (BASE, 5.0),
        (replace(BASE, place=CELLAR), 4.0),  # 8 of 10
        (replace(BASE, action=RESCUE), 3.5),  # 7 of 10
        (replace(BASE, agent=Participant(DOCTOR, RICH)), 4.5),  # the quality alone: 9 of 10
        (replace(BASE, object=Participant(DOG, None), place=CELLAR), 3.0),
        (replace(BASE, negated=True), 3.0),  # 0.6 × 5
        (replace(BASE, agent=BASE.object, object=BASE.agent), 3.75),  # half of 2 + 1 + 2, and 3 + 2 in place
        (replace(BASE, agent=Participant(KING, RICH), object=Participant(DOG, None), action=RESCUE, place=CELLAR), 0.5),
    ],
)
def test_gold_scores_by_hand(other: Meaning, gold: float) -> None:
    assert score(BASE, other) == pytest.approx(gold)
    assert score(other, BASE) == pytest.approx(gold)


def test_sentences_by_hand() -> None:
    rng = random.Random(0)
    frames = {name: english(BASE, name, rng) for name in ENGLISH}
    assert all("not" not in sentence for sentence in frames.values())
    assert frames["known"].endswith("in the park, as everybody in the village knows.")
    denied = replace(BASE, negated=True)
    assert "did not " in english(denied, "known", rng)
    assert "was not " in english(denied, "reported", rng)
    assert german(BASE, "said") == "Man sagt, dass der mutige Arzt im Park den König unterstützt hat."
    assert german(denied, "reported") == "Laut der Zeitung wurde der König vom mutigen Arzt im Park nicht unterstützt."
    assert set(GERMAN) == set(ENGLISH)


@pytest.mark.parametrize("count", range(len(SLOTS) + 1))
def test_exactly_the_slots_asked_for_change(count: int) -> None:
    rng = random.Random(count)
    for _ in range(50):
        first = draw_meaning(rng)
        second = change(first, rng.sample(SLOTS, count), rng)
        weights = score(first, second) if count in (0, 5) else None
        assert second.negated == first.negated
        assert second.object.noun.kind in second.action.objects
        same = [
            first.agent.noun == second.agent.noun, first.agent.quality == second.agent.quality,
            first.action == second.action, first.object.noun == second.object.noun, first.place == second.place,
        ]  # fmt: skip
        assert sum(same) == len(SLOTS) - count
        if count == 0:
            assert weights == 5.0


def test_splits_are_deterministic_disjoint_and_evenly_graded() -> None:
    made = GradedPairs(sentences=500, pairs=540)
    splits = {split: list(made.rows(split)) for split in ("train", "dev", "test")}
    again = GradedPairs(sentences=500, pairs=540)
    assert all(list(again.rows(split)) == rows for split, rows in splits.items())
    assert [row["text"] for row in GradedPairs(sentences=500, pairs=540, seed=1).rows("train")] != [
        row["text"] for row in splits["train"]
    ]
    said = {s: {r["sentence1"] for r in splits[s]} | {r["sentence2"] for r in splits[s]} for s in ("dev", "test")}
    trained = {row["text"] for row in splits["train"]}
    assert not said["dev"] & said["test"]
    assert not trained & (said["dev"] | said["test"])
    assert all(row["sentence1"] != row["sentence2"] for row in splits["dev"])
    kinds = Counter(row["subset"] for row in splits["dev"])
    assert kinds == {kind: share * 10 for kind, share in zip(KINDS, SHARES, strict=True)}
    assert all(0 <= float(row["score"]) <= 5 for row in splits["dev"])


def test_an_unknown_split_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="no split 'validation'"):
        next(GradedPairs().rows("validation"))
