"""A score next to a number of a few decimals: no difference inside its rounding, and no test of equal scores."""

from __future__ import annotations

import pytest

from cse_cli.analysis.score_table import Score, score_against_number, score_against_reported, score_against_untrained


@pytest.mark.parametrize(
    ("values", "reported", "mark"),
    [
        ([57.2142] * 5, 57.21, "within"),  # every method without training
        ([57.2149, 57.2148, 57.2147], 57.21, "within"),  # equal but for the last bits
        ([57.2161] * 5, 57.21, "above"),
        ([57.2049] * 5, 57.21, "below"),
        ([57.2142] * 5, 57.2, "above"),  # to two decimals
    ],
)
def test_a_difference_inside_the_rounding_of_a_number_is_none(values, reported, mark):
    score = score_against_number(values, reported)
    assert score.marked().marks == (mark,)
    assert not score.significant
    assert score.std is None or len(set(values)) > 1


def test_the_decimals_are_those_of_the_reported_cell():
    assert score_against_reported([0.81] * 3, Score(mean=0.8, digits=1)).marked().marks == ("within",)
    assert score_against_reported([0.81] * 3, Score(mean=0.8, digits=2)).marked().marks == ("above",)


def test_an_untrained_encoder_has_no_gain_over_itself():
    score = score_against_untrained([50.0, 50.0, 50.0], [50.0, 50.0, 50.0]).marked()
    assert (score.difference, score.marks, score.std) == (0.0, ("within",), None)
