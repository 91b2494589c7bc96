from random import Random

import pytest

from registry.augmenters.replace_antonyms import ReplaceAntonyms
from registry.errors import MissingError
from registry.lexicons.wordnet import installed, shipped
from registry.tokens import Pieces, Sample
from tests.registry.wordnet import write_wordnet
from tests.support.errors import refuses


@pytest.fixture
def folder(tmp_path):
    return write_wordnet(tmp_path)


def replaced(text, seed=0, **values):
    [made] = ReplaceAntonyms(**values).on_text([Sample(text)], Random(seed))
    return made.text


def test_worked_by_hand():
    # WordNet 3.0: ascent – descent is the one pair.
    assert shipped()["ascent"] == ("descent",)
    assert replaced("the ascent of it") == "the descent of it"
    assert replaced('"Ascent," he wrote.') == '"Descent," he wrote.'
    assert replaced("AN (ASCENT)!") == "AN (DESCENT)!"
    assert replaced("ascent\tand -ascent-", rate=1.0) == "descent\tand -descent-"


def test_words_count_as_they_stand_and_each_antonym_is_drawn(folder):
    values = {"wordnet": str(folder), "fallback": "same", "rate": 1.0}
    assert replaced("hotter, overheat, hot", **values) == "hotter, overheat, cold"
    assert replaced("red-hot hot's hot", **values) == "red-hot hot's cold"
    assert replaced("Ärger über hot", **values) == "Ärger über cold"
    assert installed(folder)["big"] == ("little", "small")
    assert {replaced("big", seed, wordnet=str(folder)) for seed in range(20)} == {"little", "small"}


@pytest.mark.parametrize(("rate", "count"), [(0.01, 1), (0.15, 2), (0.25, 2), (0.4, 4), (1.0, 10)])
def test_as_many_are_replaced_as_the_rate_says_and_one_at_least(folder, rate, count):
    for seed in range(10):
        made = replaced("hot x " * 10, seed, rate=rate, wordnet=str(folder))
        assert made.split().count("cold") == count
        assert made.split().count("x") == 10


def test_a_sentence_without_antonyms_becomes_another_one_or_stays_the_same(folder):
    augmenter = ReplaceAntonyms(wordnet=str(folder))
    made = augmenter.on_text([Sample("a tree"), Sample("hot tea"), Sample("rain")], Random(0))
    assert made[0].text in ("hot tea", "rain")
    assert made[1].text == "cold tea"
    assert made[2].text in ("a tree", "hot tea")
    assert augmenter.report() == {"fallbacks": 2 / 3}
    augmenter = ReplaceAntonyms(fallback="same", wordnet=str(folder))
    assert augmenter.report() == {}
    assert augmenter.on_text([Sample("a tree")], Random(0)) == [Sample("a tree")]
    augmenter.on_text([Sample("hot"), Sample("cold"), Sample("big")], Random(0))
    assert augmenter.report() == {"fallbacks": 1 / 4}
    with refuses("augmenters.one_row", "train.batch_size"):
        replaced("a tree", wordnet=str(folder))
    assert replaced("hot", wordnet=str(folder)) == "cold"


def test_the_second_segment_of_pairs_and_a_missing_wordnet(folder, tmp_path):
    augmenter = ReplaceAntonyms(segment="second", wordnet=str(folder))
    made = augmenter.on_text([Sample("hot", "hot", joint=True), Sample("a", "a")], Random(0))
    assert made == [Sample("hot", "cold", joint=True), Sample("a", "hot")]
    with refuses("augmenters.no_pairs", 'segment = "second"', "`pair`"):
        augmenter.on_text([Sample("hot")], Random(0))
    with refuses("lexicons.missing_file", tmp_path / "no", "data.noun, data.verb", "wordnet-base") as caught:
        ReplaceAntonyms(wordnet=str(tmp_path / "no"))
    assert isinstance(caught.value, MissingError)


SAME, CUT, OTHER = Pieces((7, 8, 9), (7, 8, 9)), Pieces((5, 6, 7), (5, 6)), Pieces((1, 2, 3), (1, 4, 3))


def test_a_pair_that_the_cut_made_the_same_gets_another_sentence_and_is_counted_once(folder):
    augmenter = ReplaceAntonyms(segment="second", wordnet=str(folder))
    augmenter.on_text([Sample("hot", "hot")] * 3, Random(0))
    made = augmenter.on_pieces([SAME, CUT, OTHER], Random(0))
    assert [each.first for each in made] == [SAME.first, CUT.first, OTHER.first]
    assert made[0].second in ((5, 6, 7), (1, 2, 3))
    assert made[1].second in ((7, 8), (1, 2))  # no longer than what it replaces
    assert made[2] == OTHER
    assert augmenter.report() == {"fallbacks": 2 / 3}
    augmenter = ReplaceAntonyms(segment="second", fallback="same", wordnet=str(folder))
    augmenter.on_text([Sample("tree", "tree"), Sample("hot", "hot"), Sample("hot", "hot")], Random(0))
    assert augmenter.on_pieces([SAME, CUT, OTHER], Random(0)) == [SAME, CUT, OTHER]
    assert augmenter.report() == {"fallbacks": 2 / 3}
    augmenter = ReplaceAntonyms(wordnet=str(folder))
    assert augmenter.on_pieces([Pieces((1, 2))], Random(0)) == [Pieces((1, 2))]
