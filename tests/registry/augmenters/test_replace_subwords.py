from collections import Counter
from random import Random

import pytest

from registry.augmenters.replace_subwords import ReplaceSubwords
from registry.encoders.transformer import TransformerEncoder
from registry.tokens import Pieces
from tests.support.errors import refuses
from tests.support.tiny import WORDS, tiny_bert, tiny_roberta


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return TransformerEncoder(str(tiny_bert(tmp_path_factory.mktemp("models"))))


def bound(encoder, **values):
    augmenter = ReplaceSubwords(**values)
    augmenter.bind(encoder)
    return augmenter


def differing(left, right):
    return [place for place, (a, b) in enumerate(zip(left, right, strict=True)) if a != b]


class Scripted(Random):
    """Chooses the last places, always replaces, by the last id."""

    def sample(self, population, k, *, counts=None):
        return list(population)[-k:]

    def random(self):
        return 0.0

    def choice(self, seq):
        return seq[-1]


@pytest.mark.slow
def test_worked_by_hand_four_of_five_chosen(encoder):
    # 10 sub-words at 0.25: round(2.5) = 2 chosen, the last two; each becomes the last id of the vocabulary.
    last = 5 + len(WORDS) - 1
    [made] = bound(encoder, rate=0.25).on_pieces([Pieces(tuple(range(10, 20)), label=1)], Scripted())
    assert made == Pieces((*range(10, 18), last, last), label=1)
    row, augmenter, rng = tuple(range(1000, 1020)), bound(encoder, rate=0.25), Random(0)
    changed = sum(len(differing(row, augmenter.on_pieces([Pieces(row)], rng)[0].first)) for _ in range(2000))
    # 10,000 chosen, 8000 expected; the standard deviation is √(10000·0.8·0.2) = 40.
    assert abs(changed - 8000) < 5 * 40


@pytest.mark.parametrize(("rate", "length"), [(0.01, 1), (0.15, 30), (1.0, 7)])
def test_as_many_are_chosen_as_the_rate_says_and_one_at_least(encoder, rate, length):
    # Ids that the vocabulary does not have: every replacement shows.
    row = tuple(range(1000, 1000 + length))
    augmenter, rng = bound(encoder, rate=rate, change=1.0), Random(0)
    for _ in range(20):
        [made] = augmenter.on_pieces([Pieces(row)], rng)
        assert len(differing(row, made.first)) == max(1, round(rate * length))


@pytest.mark.parametrize("make", [tiny_bert, tiny_roberta])
def test_every_id_but_the_specials_is_drawn(tmp_path, make):
    augmenter, rng = bound(TransformerEncoder(str(make(tmp_path))), rate=1.0, change=1.0), Random(0)
    drawn = Counter(each for _ in range(200) for each in augmenter.on_pieces([Pieces((7,) * 50)], rng)[0].first)
    assert set(drawn) == set(range(5, 5 + len(WORDS)))
    assert max(drawn.values()) < 2 * min(drawn.values())


def test_the_other_segment_is_left_alone_and_an_empty_one_empty(encoder):
    pair, rng = Pieces((1000, 1001), (2000, 2001)), Random(0)
    [second] = bound(encoder, segment="second", change=1.0).on_pieces([pair], rng)
    assert second.first == pair.first
    assert second.second != pair.second
    [first] = bound(encoder, segment="first", change=1.0).on_pieces([pair], rng)
    assert first.second == pair.second
    assert first.first != pair.first
    assert bound(encoder).on_pieces([Pieces(())], Random(0)) == [Pieces(())]
    assert bound(encoder, segment="second").on_pieces([Pieces((7,), ())], Random(0)) == [Pieces((7,), ())]
    with refuses("augmenters.no_pairs", 'segment = "second"', "`pair`"):
        bound(encoder, segment="second").on_pieces([Pieces((7, 8))], Random(0))
