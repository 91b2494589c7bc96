import math

import pytest
import torch

from registry import EVALUATORS
from registry.errors import CseError
from registry.evaluators.pairs import similarities
from registry.evaluators.sts import Sts
from registry.resources import catalog
from registry.resources.catalog import Pair
from registry.statistics import spearman_interval
from tests.registry.evaluators.points import ANGLES, PAIRS, by_angle


def rank(values):
    """Return mean ranks, from 1."""
    return [1 + sum(o < v for o in values) + (sum(o == v for o in values) - 1) / 2 for v in values]


def pearson(x, y):
    mx, my = sum(x) / len(x), sum(y) / len(y)
    covariance = sum((a - mx) * (b - my) for a, b in zip(x, y, strict=True))
    return covariance / math.sqrt(sum((a - mx) ** 2 for a in x) * sum((b - my) ** 2 for b in y))


def literal(rows, cosine):
    """Return SentEval's numbers, written out."""
    found = {}
    for name, of in (("pearson", pearson), ("spearman", lambda x, y: pearson(rank(x), rank(y)))):
        subsets = dict.fromkeys(row.subset for row in rows)
        parts = [[(r.score, cosine(r)) for r in rows if r.subset == subset] for subset in subsets]
        values = [of(*zip(*part, strict=True)) for part in parts]
        found[f"{name}_all"] = 100 * of([r.score for r in rows], [cosine(r) for r in rows])
        found[f"{name}_mean"] = 100 * sum(values) / len(values)
        weighted = sum(len(part) * value for part, value in zip(parts, values, strict=True))
        found[f"{name}_wmean"] = 100 * weighted / len(rows)
    return found


def cosine_of(row):
    return math.cos(math.radians(ANGLES[row.first] - ANGLES[row.second]))


def test_value_by_hand(pairs):
    # Gold order of subset "one" is the order of its angles 10 < 25 < 50: ρ = 1; "two" is reversed: ρ = −1.
    # All: gold ranks 5 3 4 2 1, cosine ranks (angles 10, 50, 25, 110, 35) 5 2 4 1 3: ρ = 1 − 6·(1 + 1 + 4) / 120.
    asked = pairs(PAIRS)
    found = Sts("some_set", "dev")(by_angle)
    assert asked == [("some_set", "dev")]
    assert found["spearman_mean"] == pytest.approx(0.0)
    assert found["spearman_wmean"] == pytest.approx(100 * (3 - 2) / 5)
    assert found["spearman"] == found["spearman_all"]
    assert found["spearman"] == pytest.approx(70.0)


def test_matches_senteval_written_out(pairs):
    # Distinct angles: equal ones would tie on paper and differ by a rounding in the encoder.
    rows = [Pair(f"s{i % 3}", float((7 * i) % 5), *pair) for i, pair in enumerate(["ab", "ac", "bf", "ae", "ce", "df", "ef", "be", "af"])]  # fmt: skip  # noqa: E501
    pairs(rows)
    found = Sts("x")(by_angle)
    for key, value in literal(rows, cosine_of).items():
        assert found[key] == pytest.approx(value, abs=1e-3), key


@pytest.mark.parametrize("aggregate", ["all", "mean", "wmean"])
def test_the_chosen_aggregate_is_shown(pairs, aggregate):
    pairs(PAIRS)
    found = Sts("x", aggregate=aggregate)(by_angle)
    assert tuple(found) == Sts("x").returned_metrics()
    assert found["spearman"] == found[f"spearman_{aggregate}"]
    assert found["pearson"] == found[f"pearson_{aggregate}"]


def test_each_distinct_sentence_is_encoded_once(pairs):
    pairs([Pair("", 1.0, "a  b", "c"), Pair("", 2.0, "c", "a\u00a0b "), Pair("", 3.0, "d", "d")])
    seen = []

    def encode(sentences):
        seen.extend(sentences)
        return torch.randn(len(sentences), 3, generator=torch.Generator().manual_seed(0))

    Sts("x")(encode)
    assert seen == ["a b", "c", "d"]


def test_nan_and_zero_vectors_have_similarity_zero(pairs):
    pairs([Pair("", 0.0, "a", "b"), Pair("", 1.0, "a", "c"), Pair("", 2.0, "a", "d")])
    vectors = {"a": [1.0, 0.0], "b": [math.nan, math.nan], "c": [1.0, 1.0], "d": [1.0, 0.1]}
    found = Sts("x")(lambda sentences: torch.tensor([vectors[s] for s in sentences]))
    assert found["spearman"] == pytest.approx(100.0)  # 0 < 0.7 < 1: NaN became 0, not the largest
    pairs([Pair("", 0.0, "a", "b"), Pair("", 1.0, "a", "c"), Pair("", 2.0, "a", "a")])
    vectors = {"a": [1.0, 0.0], "b": [0.0, 0.0], "c": [1.0, 1.0]}
    found = Sts("x")(lambda sentences: torch.tensor([vectors[s] for s in sentences]))
    assert found["spearman"] == pytest.approx(100.0)


def test_nan_components_count_as_zero_and_equal_sentences_have_similarity_one():
    """As SentEval: the rest of the vector still speaks."""
    vectors = {"a": [math.nan, 2.0], "b": [0.0, 1.0], "c": [1.0, 1.0]}
    rows = [Pair("", 0.0, "a", "b"), Pair("", 0.0, "a", "c")]
    found = similarities(rows, lambda sentences: torch.tensor([vectors[s] for s in sentences]))
    assert found == pytest.approx([1.0, math.sqrt(0.5)])
    # Otherwise the last bit of x·x/(‖x‖·‖x‖) ranks them: of 79 equal pairs of STS12, not all are 1.
    rows = [Pair("", 0.0, f"row {row}", f"row  {row}") for row in range(200)] + [Pair("", 0.0, "zero", "zero")]
    found = similarities(rows, lambda sentences: torch.randn(len(sentences), 192).index_fill_(0, torch.tensor(200), 0))
    assert found == [1.0] * 200 + [0.0]


def test_a_collapsed_encoder_and_a_subset_of_one_pair_count_as_zero(pairs):
    pairs(PAIRS)
    found = Sts("x")(lambda sentences: torch.ones(len(sentences), 4))
    assert set(found.values()) == {0.0}
    pairs([*PAIRS[:3], Pair("lonely", 1.0, "b", "c")])
    found = Sts("x")(by_angle)
    assert found["spearman_mean"] == pytest.approx(50.0)
    assert found["spearman_wmean"] == pytest.approx(75.0)


def test_texts_are_the_sentences_of_all_splits_with_pairs(monkeypatch, toy):
    text = '[splits.train]\npath = "a"\nrows = 1\ncolumns = ["text"]\n'
    scored = '[splits.dev]\npath = "b"\nrows = 1\n[splits.test]\npath = "c"\nrows = 1\n'
    toy("mixed", text + scored, kind="pairs", columns='["subset", "score", "sentence1", "sentence2"]')
    toy("scored", scored, kind="pairs", columns='["subset", "score", "sentence1", "sentence2"]')
    rows = {"dev": [Pair("", 1.0, "a  b", "c")], "test": [Pair("", 2.0, "c", "d")], "all": [Pair("", 1.0, "x", " x")]}
    asked = []
    monkeypatch.setattr(catalog, "read_pairs", lambda dataset, split: asked.append((dataset, split)) or rows[split])
    assert Sts("mixed", "test").texts() == ["a b", "c", "c", "d"]  # its "train" split holds no pairs
    assert Sts("scored", "test").texts() == ["x", "x"]
    assert asked == [("mixed", "dev"), ("mixed", "test"), ("scored", "all")]


# --- pairs of the user's own, intervals, order ----------------------------------------------------------------------

OWN = "gold,left,right,where\n" + "".join(f"{p.score},{p.first},{p.second},{p.subset}\n" for p in PAIRS)


@pytest.fixture
def own(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text(OWN, encoding="utf-8")
    return {"file": str(path), "score_column": "gold", "first_column": "left", "second_column": "right"}


def test_own_pairs_score_as_a_data_set_does_and_are_traceable(pairs, own):
    pairs(PAIRS)
    named = Sts("x")(by_angle)
    assert Sts(**own, subset_column="where")(by_angle) == named
    assert Sts(**own)(by_angle)["spearman_all"] == named["spearman_all"]
    assert Sts(**own)(by_angle)["spearman_mean"] == named["spearman_all"]  # one subset only
    evaluator = Sts(**own, split="dev")
    (name,) = evaluator.fingerprints()
    assert name == f"{own['file']}/dev"
    assert evaluator.texts() == ["a", "b", "a", "d", "a", "c", "b", "f", "d", "e"]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({}, "sts: neither `dataset` nor `file`"),
        ({"dataset": "stsb", "file": "own.csv"}, "sts: both dataset 'stsb' and file 'own.csv'"),
        ({"file": "nowhere.csv"}, r"no table at nowhere\.csv"),
        ({"dataset": "stsb", "bootstrap": -1}, "should be at least 0, not -1"),
        ({"dataset": "stsb", "level": 1.0}, "less than 1"),
    ],
)
def test_what_is_refused(values, says):
    with pytest.raises(CseError, match=says):
        EVALUATORS["sts"].build(values)


def test_the_interval_is_reproducible_for_each_aggregate(pairs):
    rows = [Pair(f"s{i % 2}", float((7 * i) % 5), *pair) for i, pair in enumerate(["ab", "ac", "bf", "ae", "ce", "df", "ef", "be", "af"])]  # fmt: skip  # noqa: E501
    pairs(rows)
    found = {how: Sts("x", aggregate=how, bootstrap=200, level=0.9) for how in ("all", "mean", "wmean")}
    ends = {}
    for how, evaluator in found.items():
        scores = evaluator(by_angle)
        assert scores == evaluator(by_angle)
        wanted = spearman_interval(
            [row.subset for row in rows], ([row.score for row in rows], similarities(rows, by_angle)), how, 200, 0.9
        )
        ends[how] = (scores["spearman_low"], scores["spearman_high"])
        assert ends[how] == wanted
        assert wanted[0] < wanted[1]
    assert len(set(ends.values())) == 3


def test_figures_get_every_pair_of_the_last_call(pairs):
    pairs(PAIRS)
    evaluator = Sts("x")
    assert evaluator.series() == {}
    evaluator(by_angle)
    assert evaluator.series()["gold"] == [row.score for row in PAIRS]
    wanted = [math.cos(math.radians(ANGLES[row.first] - ANGLES[row.second])) for row in PAIRS]
    assert evaluator.series()["cosine"] == pytest.approx(wanted, abs=1e-6)
    pairs(PAIRS[:2])
    evaluator(by_angle)
    assert evaluator.series()["gold"] == [5.0, 3.0]


def by_letters(first, second):
    """Return the cosine of word counts clipped to 1, from vectors that are written out."""
    sides = [
        "".join(letter if letter.isalnum() else " " for letter in text).lower().split() for text in (first, second)
    ]
    known = sorted({word for side in sides for word in side})
    left, right = ([float(word in side) for word in known] for side in sides)
    size = math.sqrt(sum(left) * sum(right))
    return sum(a * b for a, b in zip(left, right, strict=True)) / size if size else 0.0


@pytest.mark.slow
def test_word_overlap_as_written_out():
    rows = catalog.read_pairs("stsb_open", "test")
    expected = literal(rows, lambda row: by_letters(row.first, row.second))
    for aggregate in ("all", "mean", "wmean"):
        found = Sts("stsb_open", "test", aggregate).word_overlap()
        assert found["spearman"] == found[f"spearman_{aggregate}"] == pytest.approx(expected[f"spearman_{aggregate}"])
        assert found["pearson"] == pytest.approx(expected[f"pearson_{aggregate}"])
