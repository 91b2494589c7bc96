"""The same sentence pairs: which runs may be put beside each other, and what resampling says of them."""

from __future__ import annotations

import numpy as np
import pytest

from cse_cli.analysis.paired_tests import RunPairs, compare_pairs, resample_runs
from tests.cse_cli.analysis.recorded import gold, pairs


def two(evaluator: str = "stsb", noises: tuple[float, float] = (1.5, 1.0), resamples: int = 400, seed: int = 0):
    runs = [(f"run{place}", {evaluator: pairs(evaluator, seed, noise)}, "d") for place, noise in enumerate(noises)]
    found = resample_runs(runs, evaluator, resamples)
    return found["run0"], found["run1"]


def on_pairs(seeds, first: list[RunPairs], second: list[RunPairs]):
    return compare_pairs({seed: [couple] for seed, *couple in zip(seeds, first, second, strict=True)})


def test_the_same_model_twice_is_no_difference():
    first, second = two(noises=(1.0, 1.0))
    found = on_pairs([0], [first], [second])
    assert (found.difference, found.low, found.high, found.p) == (0.0, 0.0, 0.0, 1.0)


def test_the_two_ways_round_differ_by_the_sign():
    first, second = two()
    there, back = on_pairs([0], [first], [second]), on_pairs([0], [second], [first])
    assert there.difference == -back.difference
    assert (there.low, there.high) == pytest.approx((-back.high, -back.low))
    assert there.p == back.p


def test_the_smallest_bootstrap_p():
    first, second = two(noises=(9.0, 0.1))
    assert on_pairs([0], [first], [second]).p == pytest.approx(2 / 401)


def test_seeds_share_their_draws_and_are_averaged():
    one, other = two(seed=0), two(seed=1)
    found = on_pairs([0, 1], [one[0], other[0]], [one[1], other[1]])
    alone = [on_pairs([seed], [a], [b]) for seed, (a, b) in enumerate((one, other))]
    assert found.difference == pytest.approx((alone[0].difference + alone[1].difference) / 2)
    drawn = (one[1].draws - one[0].draws + other[1].draws - other[0].draws) / 2
    assert (found.low, found.high) == pytest.approx(tuple(100 * np.quantile(drawn, [0.025, 0.975])))


def test_an_average_resamples_each_evaluator_by_itself():
    sets = [two("stsb"), two("sickr"), two("sts12")]
    found = compare_pairs({0: sets})
    assert found.pairs == 3 * 80
    assert found.difference == pytest.approx(np.mean([100 * (b.rho - a.rho) for a, b in sets]))
    draws = [b.draws - a.draws for a, b in sets]
    assert abs(np.corrcoef(draws)[0, 1]) < 0.2  # 400 independent draws have a standard error of 0.05
    assert (found.low, found.high) == pytest.approx(tuple(100 * np.quantile(np.mean(draws, axis=0), [0.025, 0.975])))


def test_pairs_are_the_same_by_gold_score_and_by_digest():
    series = {"stsb": pairs("stsb", 0, 1.0)}
    other = {"stsb": {**series["stsb"], "gold": gold("stsb")[::-1].tolist()}}
    runs = [("a", series, "d"), ("b", series, "d"), ("c", series, "e"), ("e", other, "d"), ("f", series, "")]
    found = resample_runs([*runs, ("g", {}, "d"), ("h", {"stsb": {"singular_values": [1.0]}}, "d")], "stsb", 20)
    assert list(found) == ["a", "b", "c", "f", "e"]
    assert found["a"].same_pairs(found["b"])
    assert not found["a"].same_pairs(found["c"])
    assert not found["a"].same_pairs(found["e"])
    assert found["a"].same_pairs(found["f"])  # a run that does not say its data's digest has the same gold scores


def test_a_score_is_recognized_as_the_correlation_of_its_pairs():
    first, _ = two()
    assert first.explains(100 * first.rho)
    assert not first.explains(100 * first.rho + 0.01)


@pytest.mark.slow
def test_equal_models_differ_in_five_percent():
    rng = np.random.default_rng(5)
    hits, repeats = 0, 400
    for _ in range(repeats):
        truth = rng.normal(size=150)
        shared = rng.normal(size=150)
        cosines = [truth + 0.7 * shared + 0.7 * rng.normal(size=150) for _ in range(2)]
        gold_scores = np.round(2 * truth) / 2
        runs = [(name, {"e": {"gold": gold_scores, "cosine": c}}, "") for name, c in zip("ab", cosines, strict=True)]
        found = resample_runs(runs, "e", 300)
        hits += on_pairs([0], [found["a"]], [found["b"]]).p < 0.05
    assert hits / repeats == pytest.approx(0.05, abs=0.03)  # 400 tries at 5 % have a standard error of 1.1 points
