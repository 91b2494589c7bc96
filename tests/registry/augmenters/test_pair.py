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


def test_self_repeats_the_sentence_and_marks_how_the_pair_is_cut():
    made = Pair().on_text(samples(["the cat", ""]), Random(0))
    assert made == [Sample("the cat", "the cat"), Sample("", "")]
    assert not Pair(truncation="presplit").on_text(samples(), Random(0))[0].joint
    assert Pair(truncation="tokenizer").on_text(samples(), Random(0))[0].joint


def test_other_is_another_row_of_the_same_batch_drawn_evenly():
    rng = Random(3)
    for _ in range(50):
        made = Pair("other").on_text(samples(list("abcde")), rng)
        assert [s.text for s in made] == list("abcde")
        assert all(s.pair in "abcde" and s.pair != s.text for s in made)
    made = Pair("other").on_text(samples(["same", "same"]), Random(0))
    assert made == [Sample("same", "same")] * 2
    rng, rows = Random(0), list("abcd")
    drawn = Counter((s.text, s.pair) for _ in range(3000) for s in Pair("other").on_text(samples(rows), rng))
    assert len(drawn) == 4 * 3
    # 1000 expected; the standard deviation is √(3000·⅓·⅔) ≈ 26.
    assert all(abs(count - 1000) < 5 * 26 for count in drawn.values())


def test_one_row_has_no_other_and_a_pair_no_second_one():
    with refuses("augmenters.one_row", "train.batch_size"):
        Pair("other").on_text(samples(["alone"]), Random(0))
    assert Pair("self").on_text(samples(["alone"]), Random(0)) == [Sample("alone", "alone")]
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
