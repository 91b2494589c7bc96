"""What is said of a difference never goes beyond what the tests say."""

from __future__ import annotations

import pytest

from cse_cli.analysis.paired_tests import OnPairs
from cse_cli.analysis.verdict import verdict
from cse_cli.core.plans import SeedPlan
from cse_cli.core.stats import Paired, compare_paired

PLANNED = SeedPlan("planned", (0, 1, 2, 3), (0, 1, 2, 3))
CLEAR = (0.3, 0.4, 0.5, 0.4)
WAITING = SeedPlan("incomplete", (0, 1, 2, 3), (0, 1, 3))


def seeds(*differences: float) -> Paired:
    first = [60.0] * len(differences)
    return compare_paired(range(len(differences)), first, [60.0 + one for one in differences], "planned")


def pairs(p: float, difference: float = 0.4) -> OnPairs:
    return OnPairs(
        pairs=9, resamples=99, difference=difference, low=0, high=1, p=p, p_adjusted=p, of_seeds=()
    )  # fmt: skip


def said(found: Paired, on_pairs: OnPairs | None = None, more_is_better: bool = True, plan: SeedPlan = PLANNED) -> str:
    return verdict("B", found, on_pairs, more_is_better, plan)[1]


def test_too_few_seeds_say_how_many_it_would_take():
    # mean 0.40, std 1: d = 0.4, which takes 52 (G*Power 3.1); ± is t(0.975; 2) · 1 / √3 = 2.48
    found = seeds(-0.6, 0.4, 1.4)
    assert verdict("B", found, None, True, PLANNED)[0] == "undecided"
    assert (
        said(found)
        == "not distinguishable with 3 seeds, planned: B is 0.40 ± 2.48 better; about 52 seeds would be needed"
    )


@pytest.mark.parametrize(
    ("differences", "finding", "sentence"),
    [
        ((0.3, 0.4, 0.5, 0.4), "different", "B is better by 0.40 ± 0.13 (4 seeds, planned, p = 0.002)"),
        ((-0.3, -0.4, -0.5, -0.4), "different", "B is worse by 0.40 ± 0.13 (4 seeds, planned, p = 0.002)"),
        ((5.0,), "one_seed", "not decided: one seed has no standard deviation; B is 5.00 better with it"),
        (
            (0.4, 0.4, 0.4),
            "constant",
            "B is 0.40 better with each of 3 seeds: the seed has no effect, so there is nothing to test",
        ),
        ((0.0, 0.0), "equal", "no difference in any of 2 seeds"),
        ((0.0,), "equal", "no difference in the one seed"),
    ],
)
def test_sentences_over_seeds(differences, finding, sentence):
    assert verdict("B", seeds(*differences), None, True, PLANNED) == (finding, sentence)


def test_what_is_not_known_to_be_better_is_only_higher():
    assert said(seeds(0.3, 0.4, 0.5, 0.4), more_is_better=False).startswith("B is higher by 0.40")


@pytest.mark.parametrize(
    ("differences", "p", "gap", "end"),
    [
        (CLEAR, 0.01, 0.4, "; the choice of sentence pairs does not explain it either"),
        (CLEAR, 0.3, 0.4, "; but the choice of sentence pairs could explain it"),
        (CLEAR, 0.01, -0.4, "; but the choice of sentence pairs could explain it"),
        ((-0.6, 0.4, 1.4), 0.001, 0.4, "; for these trained models, the choice of sentence pairs does not explain it"),
        ((-0.6, 0.4, 1.4), 0.2, 0.4, "about 52 seeds would be needed"),
        ((5.0,), 0.01, 0.4, ", more than the choice of sentence pairs explains (p = 0.010)"),
        ((5.0,), 0.2, 0.4, ", no more than the choice of sentence pairs explains (p = 0.200)"),
    ],
)
def test_pairs_add_a_clause_and_change_no_finding(differences, p, gap, end):
    found = seeds(*differences)
    assert said(found, pairs(p, gap)).endswith(end)
    assert verdict("B", found, pairs(p, gap), True, PLANNED)[0] == verdict("B", found, None, True, PLANNED)[0]


def test_what_the_correction_takes_back_is_not_called_different():
    found = seeds(0.3, 0.4, 0.5, 0.4).model_copy(update={"p_adjusted": 0.08})
    assert verdict("B", found, None, True, PLANNED)[0] == "undecided"
    assert said(found) == ("not distinguishable with 4 seeds, planned: B is 0.40 ± 0.13 better; uncorrected p = 0.002")


def test_a_tiny_difference_is_not_written_as_0():
    assert "0.002 ±" in said(seeds(0.001, 0.002, 0.003, -0.001, 0.005))


def test_without_a_plan_the_sentence_names_the_anytime_test():
    found = compare_paired(range(4), [60.0] * 4, [60.3, 60.4, 60.5, 60.4])
    sentence = said(found, plan=SeedPlan("anytime"))
    assert found.p_adjusted == found.p_anytime
    assert "4 seeds, anytime test" in sentence
    assert f"0.40 ± {(found.high - found.low) / 2:.2f}" in sentence


def test_two_seeds_have_no_bounded_anytime_interval():
    found = compare_paired([0, 1], [60.0, 60.0], [60.3, 60.4])
    assert (found.low, found.high, found.level) == (None, None, 0.05)
    sentence = said(found, plan=SeedPlan("anytime"))
    assert "±" not in sentence
    assert "B is 0.35 better" in sentence


def test_without_all_planned_seeds_there_is_no_verdict():
    differences = seeds(0.3, 0.4, 0.5).judged("incomplete", None, 0.0)
    assert verdict("B", differences, pairs(0.001), True, WAITING)[0] == "incomplete"
    sentence = said(differences, pairs(0.001), plan=WAITING)
    assert "3 of 4 planned seeds are finished" in sentence
    assert "better" not in sentence


def test_what_is_not_tested_is_not_called_undistinguishable():
    found = seeds(0.3, 0.4, 0.5, 0.4).judged("planned", 0.3, 0.0, 0.05)
    assert verdict("B", found, None, True, PLANNED)[0] == "undecided"
    assert said(found).startswith("not tested")
