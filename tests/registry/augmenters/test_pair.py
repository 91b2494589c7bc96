from collections import Counter
from random import Random

from registry.augmenters.pair import Pair
from registry.encoders.transformer import TransformerEncoder
from registry.testing.materials import OneStep, draw
from registry.tokens import Sample
from tests.support.errors import refuses
from tests.support.tiny import tiny_bert

TEXTS = ["the cat runs", "a dog", "not two", "the red house", "a dog"]


def samples(texts=TEXTS):
    return [Sample(text) for text in texts]


def test_self_repeats_the_sentence():
    made = Pair().on_text(samples(["the cat", ""]), Random(0))
    assert made == [Sample("the cat", "the cat"), Sample("", "")]


def test_other_is_another_row_of_the_same_batch():
    rng = Random(3)
    for _ in range(50):
        made = Pair("other").on_text(samples(list("abcde")), rng)
        assert [s.text for s in made] == list("abcde")
        assert all(s.pair in "abcde" and s.pair != s.text for s in made)


def test_other_is_drawn_evenly():
    rng, rows = Random(0), list("abcd")
    drawn = Counter((s.text, s.pair) for _ in range(3000) for s in Pair("other").on_text(samples(rows), rng))
    assert len(drawn) == 4 * 3
    # 1000 expected; the standard deviation is √(3000·⅓·⅔) ≈ 26.
    assert all(abs(count - 1000) < 5 * 26 for count in drawn.values())


def test_only_the_own_row_is_excluded_not_the_same_sentence():
    made = Pair("other").on_text(samples(["same", "same"]), Random(0))
    assert made == [Sample("same", "same")] * 2


def test_one_row_has_no_other():
    with refuses("augmenters.one_row", "train.batch_size"):
        Pair("other").on_text(samples(["alone"]), Random(0))
    assert Pair("self").on_text(samples(["alone"]), Random(0)) == [Sample("alone", "alone")]


def test_truncation_marks_how_the_pair_is_cut():
    assert not Pair(truncation="presplit").on_text(samples(), Random(0))[0].joint
    assert Pair(truncation="tokenizer").on_text(samples(), Random(0))[0].joint


def test_a_pair_of_pairs_is_refused():
    with refuses("augmenters.already_pairs", "`pair`"):
        Pair().on_text([Sample("a", "b")], Random(0))


def test_a_pair_longer_than_the_encoder_takes_is_refused(tmp_path):
    encoder = TransformerEncoder(str(tiny_bert(tmp_path)))  # 64 places
    augmenter, long = Pair(), "the cat sees a dog " * 20
    augmenter.bind(encoder)
    step = OneStep(draw(0, 1, 16))
    for length, fits in ((32, True), (33, False)):
        tokens = encoder.vocabulary.tokens(augmenter.on_text(samples([long]), Random(0)), length)
        assert tokens.length == 2 * length - 1
        if fits:
            assert augmenter.on_tokens(tokens, step) is tokens
        else:
            with refuses("augmenters.long_pair", 65, 64, "data.max_length=32"):
                augmenter.on_tokens(tokens, step)
