"""Tests between two methods: on the same sentence pairs, and conclusions that never go beyond what the tests say."""

from __future__ import annotations

import numpy as np
import pytest

from cse_cli.analysis.paired_tests import OnPairs, RunPairs, compare_pairs, resample_runs, verdict
from cse_cli.core.plans import SeedPlan
from cse_cli.core.stats import Paired, compare_paired
from tests.cse_cli.analysis.recorded import gold, pairs


def two(evaluator: str = "stsb", noises: tuple[float, float] = (1.5, 1.0), resamples: int = 400, seed: int = 0):
    series = {f"run{place}": pairs(evaluator, seed, noise) for place, noise in enumerate(noises)}
    found = resample_runs(series, evaluator, resamples)
    return found["run0"], found["run1"]


def on_pairs(seeds, first: list[RunPairs], second: list[RunPairs]):
    return compare_pairs({seed: [couple] for seed, *couple in zip(seeds, first, second, strict=True)})


def test_the_same_model_twice_is_no_difference_and_the_other_way_round_the_sign_differs():
    first, second = two(noises=(1.0, 1.0))
    found = on_pairs([0], [first], [second])
    assert (found.difference, found.low, found.high, found.p) == (0.0, 0.0, 0.0, 1.0)
    first, second = two(noises=(9.0, 0.1))
    there, back = on_pairs([0], [first], [second]), on_pairs([0], [second], [first])
    assert there.difference == -back.difference
    assert (there.low, there.high) == pytest.approx((-back.high, -back.low))
    assert there.p == back.p == pytest.approx(2 / 401)  # the smallest of 400 resamples
    assert first.explains(100 * first.rho)
    assert not first.explains(100 * first.rho + 0.01)


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


def test_pairs_are_the_same_by_gold_score():
    one = pairs("stsb", 0, 1.0)
    other = {**one, "gold": gold("stsb")[::-1].tolist()}
    runs = {"a": one, "b": one, "c": other, "d": {}, "e": {"singular_values": [1.0]}}
    found = resample_runs(runs, "stsb", 20)
    assert list(found) == ["a", "b", "c"]
    assert found["a"].same_pairs(found["b"])
    assert not found["a"].same_pairs(found["c"])


@pytest.mark.slow
def test_equal_models_differ_in_five_percent():
    rng = np.random.default_rng(5)
    hits, repeats = 0, 400
    for _ in range(repeats):
        truth = rng.normal(size=150)
        shared = rng.normal(size=150)
        cosines = [truth + 0.7 * shared + 0.7 * rng.normal(size=150) for _ in range(2)]
        gold_scores = np.round(2 * truth) / 2
        runs = {name: {"gold": gold_scores, "cosine": c} for name, c in zip("ab", cosines, strict=True)}
        found = resample_runs(runs, "e", 300)
        hits += on_pairs([0], [found["a"]], [found["b"]]).p < 0.05
    assert hits / repeats == pytest.approx(0.05, abs=0.03)  # 400 tries at 5 % have a standard error of 1.1 points


PLANNED = SeedPlan("planned", (0, 1, 2, 3), (0, 1, 2, 3))
CLEAR = (0.3, 0.4, 0.5, 0.4)
WAITING = SeedPlan("incomplete", (0, 1, 2, 3), (0, 1, 3))


def seeds(*differences: float) -> Paired:
    first = [60.0] * len(differences)
    return compare_paired(range(len(differences)), first, [60.0 + one for one in differences], "planned")


def bootstrapped(p: float, difference: float = 0.4) -> OnPairs:
    return OnPairs(
        pairs=9, resamples=99, difference=difference, low=0, high=1, p=p, p_adjusted=p, of_seeds=()
    )  # fmt: skip


def said(found: Paired, on_pairs: OnPairs | None = None, more_is_better: bool = True, plan: SeedPlan = PLANNED) -> str:
    return verdict("B", found, on_pairs, more_is_better, plan)[1]


@pytest.mark.parametrize(
    ("found", "finding", "sentence"),
    [
        (seeds(*CLEAR), "different", "B is better by 0.40 ± 0.13 (4 seeds, planned, p = 0.002)"),
        (seeds(5.0), "one_seed", "not decided: one seed has no standard deviation; B is 5.00 better with it"),
        (
            seeds(0.4, 0.4, 0.4),
            "constant",
            "B is 0.40 better with each of 3 seeds: the seed has no effect, so there is nothing to test",
        ),
        (seeds(0.0), "equal", "no difference in the one seed"),
        (  # mean 0.40, std 1: d = 0.4, which takes 52 (G*Power 3.1); ± is t(0.975; 2) · 1 / √3 = 2.48
            seeds(-0.6, 0.4, 1.4),
            "undecided",
            "not distinguishable with 3 seeds, planned: B is 0.40 ± 2.48 better; about 52 seeds would be needed",
        ),
        (
            seeds(*CLEAR).model_copy(update={"p_adjusted": 0.08}),  # the correction takes it back
            "undecided",
            "not distinguishable with 4 seeds, planned: B is 0.40 ± 0.13 better; uncorrected p = 0.002",
        ),
        (
            seeds(*CLEAR).judged("planned", 0.3, 0.0, 0.05),
            "undecided",
            "not tested, because the primary metric shows no difference: B is 0.40 better",
        ),
    ],
)
def test_sentences_over_seeds(found, finding, sentence):
    assert verdict("B", found, None, True, PLANNED) == (finding, sentence)


def test_unknown_directions_are_only_higher_and_a_tiny_difference_is_not_0():
    assert said(seeds(*CLEAR), more_is_better=False).startswith("B is higher by 0.40")
    assert "0.002 ±" in said(seeds(0.001, 0.002, 0.003, -0.001, 0.005))


@pytest.mark.parametrize(
    ("differences", "p", "gap", "end"),
    [
        (CLEAR, 0.01, 0.4, "; the choice of sentence pairs does not explain it either"),
        (CLEAR, 0.3, 0.4, "; but the choice of sentence pairs could explain it"),
        ((-0.6, 0.4, 1.4), 0.001, 0.4, "; for these trained models, the choice of sentence pairs does not explain it"),
        ((5.0,), 0.01, 0.4, ", more than the choice of sentence pairs explains (p = 0.010)"),
        ((5.0,), 0.2, 0.4, ", no more than the choice of sentence pairs explains (p = 0.200)"),
    ],
)
def test_pairs_add_a_clause_and_change_no_finding(differences, p, gap, end):
    found = seeds(*differences)
    assert said(found, bootstrapped(p, gap)).endswith(end)
    assert verdict("B", found, bootstrapped(p, gap), True, PLANNED)[0] == verdict("B", found, None, True, PLANNED)[0]


def test_without_a_plan_the_sentence_names_the_anytime_test():
    found = compare_paired(range(4), [60.0] * 4, [60.3, 60.4, 60.5, 60.4])
    sentence = said(found, plan=SeedPlan("anytime"))
    assert found.p_adjusted == found.p_anytime
    assert "4 seeds, anytime test" in sentence
    assert f"0.40 ± {(found.high - found.low) / 2:.2f}" in sentence
    two = compare_paired([0, 1], [60.0, 60.0], [60.3, 60.4])  # has no bounded interval
    assert (two.low, two.high, two.level) == (None, None, 0.05)
    assert "±" not in (sentence := said(two, plan=SeedPlan("anytime")))
    assert "B is 0.35 better" in sentence


def test_without_all_planned_seeds_there_is_no_verdict():
    differences = seeds(0.3, 0.4, 0.5).judged("incomplete", None, 0.0)
    assert verdict("B", differences, bootstrapped(0.001), True, WAITING)[0] == "incomplete"
    sentence = said(differences, bootstrapped(0.001), plan=WAITING)
    assert "3 of 4 planned seeds are finished" in sentence
    assert "better" not in sentence
