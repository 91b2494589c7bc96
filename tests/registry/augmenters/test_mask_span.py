from collections import Counter
from random import Random

import pytest

from registry.augmenters.mask_span import MaskSpan
from registry.encoders.transformer import TransformerEncoder
from registry.tokens import Sample
from tests.support.tiny import tiny_bert

TEXT = "a cat sat on a mat while a dog slept"


def masked(augmenter, text, seed=0):
    return augmenter.on_text([Sample(text)], Random(seed))[0].text


def slow(text, start, size, at_first, mask="[MASK]"):
    """Left of the span, the mask, right of it; character by character."""
    span = text[start : start + size]
    if at_first:
        start = next(i for i in range(len(text)) if text[i : i + size] == span)
    return "".join(text[:start]) + " " + mask + " " + "".join(text[start + size :])


@pytest.mark.parametrize(("at", "characters"), [("first", 5), ("drawn", 1), ("drawn", 12)])
def test_every_place_is_drawn_but_the_last(at, characters):
    augmenter = MaskSpan(characters, at=at)
    places = range(len(TEXT) - characters)
    expected = {slow(TEXT, start, characters, at == "first") for start in places}
    assert {masked(augmenter, TEXT, seed) for seed in range(2000)} == expected


def test_the_first_occurrence_is_cut_wherever_the_span_was_drawn():
    """30 times "ab": each span of two is "ab" or "ba", which occur first at places 0 and 1."""
    text = "ab" * 30
    found = Counter(masked(MaskSpan(2), text, seed) for seed in range(400))
    assert set(found) == {" [MASK] " + text[2:], "a [MASK] " + text[3:]}
    assert min(found.values()) > 150  # 200 each, standard deviation 10
    assert len({masked(MaskSpan(2, at="drawn"), text, seed) for seed in range(2000)}) == 58


@pytest.mark.slow
def test_places_are_drawn_evenly_for_one_mask(tmp_path):
    text = "".join(map(chr, range(200, 240)))
    found = Counter(masked(MaskSpan(), text, seed).index(" [MASK] ") for seed in range(7000))
    assert sorted(found) == list(range(35))
    assert min(found.values()) > 130  # 200 each, standard deviation 14
    sample = Sample(TEXT, pair=TEXT, label=1, joint=True)
    found = MaskSpan(mask="<mask>").on_text([sample], Random(1))[0]
    assert found.text.count(" <mask> ") == 1
    assert (found.pair, found.label, found.joint) == (TEXT, 1, True)
    vocabulary = TransformerEncoder(str(tiny_bert(tmp_path))).vocabulary
    rows = vocabulary.ids([masked(MaskSpan(), TEXT, seed) for seed in range(20)], 64)
    assert [row.count(vocabulary.mask) for row in rows] == [1] * 20


def test_short_texts_and_those_no_longer_than_the_span_stay():
    for text, changed in (("x" * 29, False), ("x" * 30, True), ("", False)):
        assert (masked(MaskSpan(), text) != text) is changed
    assert masked(MaskSpan(5, shortest=0), "abcde") == "abcde"
    assert masked(MaskSpan(5, shortest=0), "abcdef") == " [MASK] f"
