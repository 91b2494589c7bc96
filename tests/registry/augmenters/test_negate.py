from random import Random
from string import punctuation

import pytest

from registry.augmenters.negate import Negate
from registry.tokens import Sample


@pytest.mark.parametrize(
    ("text", "negation", "rule"),
    [
        ("A cat is not a dog, not at all.", "A cat is a dog, not at all.", "removed"),
        ("Not all birds fly.", "all birds fly.", "removed"),
        ("He says not.", "He says.", "removed"),
        ("It cannot be seen.", "It can be seen.", "removed"),
        ("The man who is old left.", "The man who is not old left.", "auxiliary"),
        ("He thought that it was late.", "He did not think that it was late.", "verb"),
        ("John went home and was tired.", "John did not go home and was tired.", "verb"),
        ("The car used by him was red.", "The car used by him was not red.", "auxiliary"),
        ("A cat,  MAY sleep.", "A cat,  MAY not sleep.", "auxiliary"),
        ("He has already seen it.", "He has not already seen it.", "auxiliary"),
        ("It won't rain.", "It won't not rain.", "auxiliary"),
        ("He has a dog.", "He does not have a dog.", "verb"),
        ("His wife married in 1913.", "His wife did not marry in 1913.", "verb"),
        ("He stops, she sleeps.", "He does not stop, she sleeps.", "verb"),
        ("We know them.", "We do not know them.", "verb"),
        ("The used car.", "Not The used car.", "front"),
        ("(darts)", "Not (darts)", "front"),
        ("", "Not ", "front"),
    ],
)
def test_worked_by_hand(text, negation, rule):
    assert Negate().negated(text) == (negation, rule)


@pytest.mark.parametrize(
    ("text", "rule_for_all", "rule"),
    [
        ("He is not here", "He is here", "removed"),
        ("The sea is blue", "The sea is not blue", "auxiliary"),
        ("The sea is blue “", "The sea is not blue “", "auxiliary"),
        ("History of the sea", "Not History of the sea", "front"),
        ("", "Not ", "front"),
    ],
)
def test_without_final_punctuation_not_goes_in_front_as_in_the_code(text, rule_for_all, rule):
    """`train_SNCSE.py:511-514` appends " ." before it looks the line up, so that it finds no line of this kind."""
    assert Negate().negated(text) == (f"Not {text}", "front")
    assert Negate(rules_for_all=True).negated(text) == (rule_for_all, rule)


def test_only_the_sentence_is_negated_and_each_ascii_mark_ends_one():
    augmenter = Negate()
    assert augmenter.report() == {}
    samples = [Sample("A cat is red.", "It is.", 1, joint=True), Sample("Red"), Sample("Cats"), Sample("It is not.")]
    made = augmenter.on_text(samples, Random(0))
    assert made[0] == Sample("A cat is not red.", "It is.", 1, joint=True)
    assert [sample.text for sample in made[1:]] == ["Not Red", "Not Cats", "It is."]
    assert augmenter.report() == {"auxiliary": 0.25, "front": 0.5, "removed": 0.25}
    for mark in punctuation:
        assert Negate().negated(f"The sea is blue{mark} ") == (f"The sea is not blue{mark} ", "auxiliary")
