from collections import Counter
from random import Random

import pytest

from registry.augmenters.repeat_words import RepeatWords
from registry.encoders.transformer import TransformerEncoder
from registry.tokens import Pieces, Sample
from tests.support.tiny import tiny_bert, tiny_roberta


def repeat(augmenter, ids, seed=0):
    return augmenter.on_pieces([Pieces(tuple(ids))], Random(seed))[0].first


def slow(augmenter, ids, rng):
    """The released loop over ids with their special tokens, and the paper's two sentences."""
    row = ["[CLS]", *ids, "[SEP]"]
    length = len(row)
    doubled: list[int] = []
    if augmenter.count == "released":
        if int(augmenter.rate * length) > 0:
            number = rng.randrange(min(10, int(augmenter.rate * length)))
            doubled = rng.sample(range(1, length - 1), min(number, len(ids)))
    elif augmenter.rate:
        number = rng.randint(0, max(2, int(augmenter.rate * len(ids))))
        doubled = rng.sample(range(1, length - 1), min(number, len(ids)))
    out = []
    for place, unit in enumerate(row):
        out.append(unit)
        if place in doubled:
            out.append(unit)
    return tuple(out[1:-1])


def test_by_hand():
    """12 sub-words and 2 specials: ⌊14·0.32⌋ = 4, so 0 to 3 are doubled; each beside its own copy."""
    ids = range(10, 22)
    grown = Counter()
    for seed in range(400):
        out = repeat(RepeatWords(0.32), ids, seed)
        grown[len(out) - 12] += 1
        assert sorted(set(out)) == list(ids)
        assert list(out) == sorted(out)  # a copy stands beside its word
        assert max(Counter(out).values()) <= 2
    assert sorted(grown) == [0, 1, 2, 3]
    assert min(grown.values()) > 60  # 100 each, standard deviation 8.7


@pytest.mark.parametrize("count", ["released", "paper"])
@pytest.mark.parametrize(("rate", "length"), [(0.05, 60), (0.28, 1), (0.32, 30), (1.0, 5)])
def test_equals_the_slow_version(count, rate, length):
    augmenter = RepeatWords(rate, count)
    ids = tuple(range(100, 100 + length))
    for seed in range(30):
        assert repeat(augmenter, ids, seed) == slow(augmenter, ids, Random(seed))


def test_short_sentences_and_both_sides_of_a_pair():
    """One sub-word: ⌊3·0.32⌋ = 0 as released, 0 to 2 but at most the one there is in the paper; none: nothing."""
    assert {repeat(RepeatWords(), [7], seed) for seed in range(50)} == {(7,)}
    assert {repeat(RepeatWords(count="paper"), [7], seed) for seed in range(50)} == {(7,), (7, 7)}
    assert repeat(RepeatWords(), []) == repeat(RepeatWords(count="paper"), []) == ()
    augmenter = RepeatWords(1.0)
    row = augmenter.on_pieces([Pieces(tuple(range(9)), tuple(range(20, 29)), label=1)], Random(3))[0]
    assert set(row.first) == set(range(9))
    assert row.second is not None
    assert set(row.second) == set(range(20, 29))
    assert (len(row.first), len(row.second)) != (9, 9)
    assert row.label == 1
    pair = RepeatWords(1.0, unit="word").on_text([Sample("a b c d", "e f g h", label=2)], Random(1))[0]
    assert pair.pair is not None
    assert set(pair.text.split()) == set("abcd")
    assert set(pair.pair.split()) == set("efgh")
    assert pair.label == 2


def test_words_as_released_and_of_the_paper_which_reach_the_last():
    """Six words: b = min(10, 6, max(2, ⌊1.92⌋)) = 2, so none or one, never the last; one word stays alone."""
    augmenter = RepeatWords(unit="word")
    found = {augmenter.on_text([Sample("a b c d e f")], Random(seed))[0].text for seed in range(200)}
    assert found == {
        "a b c d e f", "a a b c d e f", "a b b c d e f", "a b c c d e f", "a b c d d e f", "a b c d e e f",
    }  # fmt: skip
    assert {augmenter.on_text([Sample("a")], Random(seed))[0].text for seed in range(20)} == {"a"}
    assert repeat(augmenter, [1, 2, 3]) == (1, 2, 3)
    augmenter = RepeatWords(unit="word", count="paper")
    found = {augmenter.on_text([Sample("a b")], Random(seed))[0].text for seed in range(200)}
    assert found == {"a b", "a a b", "a b b", "a a b b"}


@pytest.mark.parametrize("unit", ["subword", "word"])
def test_longest_cuts_what_grew(unit):
    augmenter = RepeatWords(1.0, longest=10, unit=unit)
    assert {len(repeat(augmenter, range(10), seed)) for seed in range(20)} == {10}
    assert max(len(repeat(RepeatWords(1.0), range(10), seed)) for seed in range(20)) > 10


@pytest.mark.parametrize("model", [tiny_bert, tiny_roberta])
def test_special_tokens_are_counted_and_never_doubled(tmp_path, model):
    encoder = TransformerEncoder(str(model(tmp_path)))
    augmenter = RepeatWords(1.0)
    augmenter.bind(encoder)
    assert augmenter.specials == 2
    vocabulary = encoder.vocabulary
    rows = augmenter.on_pieces(vocabulary.pieces([Sample("the cat sees a big green tree")] * 20, 9), Random(0))
    tokens = vocabulary.assemble(rows)
    assert tokens.length > 9  # as released: longer than max_length
    first, last = vocabulary.ids(["cat"], 9)[0][0], vocabulary.ids(["cat"], 9)[0][-1]
    assert ((tokens.ids == first).sum(1) == 1).all()
    assert ((tokens.ids == last).sum(1) == 1).all()
