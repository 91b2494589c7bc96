"""What others measured, the field's own list of methods, and reported averages with their differences."""

from statistics import fmean

import pytest

from cse_cli.recipe.load import load
from registry import papers
from registry.papers.results import LISTED, reported_averages, reported_difference

STS = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")


def test_the_fifty_seeds_of_simcse_are_the_reference():
    first = papers.distribution("simcse_en")
    assert (first.mean, first.low, first.high, first.n) == (75.11, 73.16, 76.70, 50)
    assert first.source == "https://github.com/hppRC/simple-simcse"
    assert len(first.values) == 50
    assert round(fmean(first.values), 2) == 75.11
    assert first.std == 0.84
    # The printed 76.25 is reached by five runs of fifty.
    assert sum(value >= 76.25 for value in first.values) == 5
    of_simcse = [r for r in papers.reproductions() if (r.recipe, r.score) == ("simcse_en", "avg")]
    assert [r.mean for r in of_simcse] == [75.11, 74.84, 75.99, 73.47, 75.27, 75.68]
    assert papers.distribution("simcse_en").n == max(r.n for r in of_simcse)
    assert papers.distribution("diffcse_en").values == (77.00, 77.33, 77.44)
    assert papers.distribution("ifcl_en") is None
    assert papers.distribution("simcse_en", "mr") is None


@pytest.mark.parametrize("recipe", ["simcse_en", "simcse_en_large", "simcse_en_roberta", "simcse_en_roberta_large"])
def test_means_of_the_single_sets_make_the_mean_average(recipe):
    sets = [papers.distribution(recipe, name) for name in STS]
    assert [found.n for found in sets] == [50] * 7
    assert fmean(found.mean for found in sets) == pytest.approx(papers.distribution(recipe).mean, abs=0.01)


@pytest.mark.slow
def test_every_reproduction_has_a_source_and_a_recipe_and_is_consistent():
    for found in papers.reproductions():
        assert found.source.startswith("https://")
        assert found.score == papers.AVERAGE or found.score in load(found.recipe).recipe.evaluators
        assert (found.std is None) == (len(found.values) < 2)
    for found in papers.reproductions():
        assert found.low <= found.mean <= found.high, found
        if found.values:
            assert (found.n, found.low, found.high) == (
                len(found.values), round(min(found.values), 2), round(max(found.values), 2)
            )  # fmt: skip
            assert found.mean == pytest.approx(fmean(found.values), abs=0.01)
    for row in papers.measured_rows().values():
        assert {len(values) for values in row.scores.values()} == {len(row.seeds)}, row.recipe
        assert row.judged in row.scores


def test_eight_listed_averages_are_not_the_mean_of_their_row():
    wrong = set()
    for row in papers.field_rows():
        mean = sum(row.cells.values()) / 7
        assert row.avg_recomputed == round(mean, 2)
        if abs(row.avg - mean) > 0.015:
            wrong.add((row.encoder, row.method))
            assert row.note.startswith(f"the mean of the row is {mean:.2f}")
        else:
            assert "mean of the row" not in row.note
    assert wrong == {
        ("BERT-base", "EASE"), ("BERT-base", "MoCoSE"), ("BERT-base", "PromptBERT"), ("BERT-large", "BERT-Flow"),
        ("BERT-large", "SimCSE+GS-InfoNCE"), ("RoBERTa-base", "EASE"), ("RoBERTa-base", "MCSE+coco"),
        ("RoBERTa-large", "SimCSE+GS-InfoNCE"),
    }  # fmt: skip


def test_lists_beside_the_community_leaderboard():
    others = papers.listed_rows()[len(papers.field_rows()) :]
    assert {row.list for row in others} == set(papers.LISTS) - {papers.COMMUNITY}
    assert all(row.source and row.answer is not None for row in others)
    for row in others:
        assert row.avg == pytest.approx(row.avg_recomputed, abs=0.0151)
        assert set(row.cells) in (set(), set(STS))
    best = {name: max(row.avg for row in others if row.list == name and row.encoder == "BERT-base") for name in
            ("recent", "llm_data", "labels")}  # fmt: skip
    assert best == {"recent": 80.60, "llm_data": 81.98, "labels": 81.57}


def test_listed_spreads_are_kept_and_our_papers_numbers_equal_but_for_one_cell():
    (row,) = [r for r in papers.field_rows() if (r.encoder, r.method) == ("BERT-base", "MCSE+coco")]
    assert (row.avg, row.spreads["avg"], row.cells["sts12"], row.spreads["sts12"]) == (76.6, 0.5, 71.2, 1.3)
    assert sum(bool(r.spreads) for r in papers.field_rows()) == 6
    printed = papers.load("mocose").tables["sts"].values("MoCoSE")
    (row,) = [r for r in papers.field_rows() if (r.encoder, r.method) == ("BERT-base", "MoCoSE")]
    listed = dict(zip(printed, [*row.cells.values(), row.avg], strict=True))
    assert {name: (printed[name], listed[name]) for name in printed if printed[name] != listed[name]} == {
        "STS12": (71.48, 71.58)
    }


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
