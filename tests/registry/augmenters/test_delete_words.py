from collections import Counter
from random import Random

import pytest

from registry.augmenters.delete_words import DeleteWords
from registry.tokens import Sample

WORDS = [f"w{number}" for number in range(2000)]


def shortened(text, seed=0, rate=0.6):
    return DeleteWords(rate).on_text([Sample(text)], Random(seed))[0].text


def test_words_go_one_by_one_in_each_segment_and_one_stays():
    rng = Random(4)
    assert shortened(" ".join(WORDS), 4).split(" ") == [word for word in WORDS if rng.random() >= 0.6]
    assert len(shortened(" ".join(WORDS), 4).split(" ")) == pytest.approx(800, abs=80)
    assert shortened("a b c", rate=0.0) == "a b c"
    left = Counter(shortened("a b c", seed, rate=1.0) for seed in range(300))
    assert set(left) == {"a", "b", "c"}
    assert all(70 < count < 130 for count in left.values())
    assert shortened("", rate=1.0) == ""
    (made,) = DeleteWords(1.0).on_text([Sample("a", pair="b")], Random(0))
    assert made == Sample("a", pair="b")
