from collections import Counter
from itertools import permutations
from random import Random

import pytest

from registry.augmenters.switch_case import SwitchCase
from registry.tokens import Sample

TEXT = "The Cat sat on 9 mats, IN a Row"


def switched(text=TEXT, seed=0, **params):
    return SwitchCase(**params).on_text([Sample(text)], Random(seed))[0].text


def test_every_word_by_hand_and_by_chance():
    assert switched(rate=1.0) == "the cat Sat On 9 Mats, iN A row"
    assert switched(rate=1.0, draw="count") == "the cat Sat On 9 Mats, iN A row"
    assert switched("Ein  ß \u00e4 ", rate=1.0) == "ein SS \u00c4"  # as the code; a letter may become two
    (made,) = SwitchCase(1.0).on_text([Sample("A b", pair="c D")], Random(0))
    assert (made.text, made.pair) == ("a B", "C d")
    assert switched("", rate=1.0, draw="count") == ""
    assert switched(rate=0.0, draw="count") == TEXT
    words = " ".join(["word"] * 2000)
    changed = sum(word == "Word" for word in switched(words, 3, rate=0.1).split(" "))
    rng = Random(3)
    assert changed == sum(rng.random() < 0.1 for _ in range(2000))
    assert changed == pytest.approx(200, abs=45)


def theirs(text, rate, shuffled):
    """`randomly_switch_case_str_v1` of the authors' `text_augmentation.py:51-68`, written out for a given order."""
    words = [word for word in text.split(" ") if word != ""]
    wanted, done = max(1, int(round(len(words) * rate))), 0  # noqa: RUF046 - as there
    for place in shuffled:
        word = words[place]
        if done < wanted and word[0].isalpha():
            words[place] = (word[0].upper() if word[0].islower() else word[0].lower()) + word[1:]
            done += 1
    return " ".join(words)


@pytest.mark.parametrize(("text", "rate"), [("The 9 Cats , 12 of  sat", 0.3), ("1 2 3 a", 0.6), ("10 %", 0.1)])
def test_counted_words_start_with_a_letter_as_in_the_authors_code(text, rate):
    """Every result of theirs, over all orders, is one of ours, equally often."""
    number = len(text.split())
    expected = Counter(theirs(text, rate, order) for order in permutations(range(number)))
    found = Counter(switched(text, seed, rate=rate, draw="count") for seed in range(600))
    assert found.keys() == expected.keys()
    for made, count in found.items():
        assert count / 600 == pytest.approx(expected[made] / expected.total(), abs=0.09)
