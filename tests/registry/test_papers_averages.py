"""Reported averages of recipes, and the differences between them."""

import pytest

from registry.papers.averages import LISTED, reported_averages, reported_difference


@pytest.mark.parametrize(
    ("recipe", "difference"),
    [
        ("pcl_en", 1.89),  # a list: 78.14 − 76.25
        ("cot_bert_en", 3.15),  # another list, the same SimCSE
        ("ifcl_en", 1.55),  # Table 1 of its paper
        ("vascl_en", 0.94),  # Table 1 of IFCL
        ("focal_infonce_en", 1.65),  # 77.33 − 75.68, SimCSE in its own table
        ("conisi_o1_en", 0.89),
        ("bert_avg_en", -19.55),
        ("simcse_en", 0.0),
    ],
)
def test_a_reported_difference_is_within_one_source(recipe, difference):
    assert reported_difference(recipe, "simcse_en") == pytest.approx(difference, abs=1e-9)


@pytest.mark.parametrize("recipe", ["tsdae_en", "gcse_en", "sup_simcse_en", "mini/pcl_en"])
def test_a_method_with_other_data_or_without_an_average_has_none(recipe):
    assert recipe not in reported_averages()
    assert reported_difference(recipe, "simcse_en") is None
    assert reported_difference("simcse_en", recipe) is None


def test_an_average_of_other_tasks_does_not_count():
    """Tables of other tasks have averages, too: accuracies, and other languages."""
    assert reported_averages()["mocose_en"] == {LISTED: 77.27, "ifcl/sts_en": 77.27, "mocose/sts": 77.27}
    assert reported_difference("simcse_en_large", "simcse_en") == pytest.approx(2.16)
