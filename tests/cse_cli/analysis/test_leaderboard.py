"""Finished results beside the papers' rows: grouping, statistics, marks."""

import math
from datetime import UTC, datetime

import pytest

from cse_cli.analysis.experiments import recipe_status
from cse_cli.core.results import STS_TASKS, PaperRow
from cse_cli.recipe.files import all_recipes
from cse_cli.recipe.load import load
from registry import EVALUATORS, papers
from registry.papers import AVERAGE
from tests.cse_cli.analysis.leaderboard_runs import mini, result, rows, tables


def ours(lines, table="sts_en"):
    return [row for row in lines if row.source == "measured" and row.table == table]


def test_your_row_is_below_the_one_it_reproduces():
    lines = [row for row in rows([result()]) if row.table == "sts_en"]
    names = [(row.source, row.name) for row in lines]
    assert names[names.index(("paper", "IFCL-BERT base")) + 1] == ("measured", "IFCL, English")
    assert len([1 for source, _ in names if source == "paper"]) == len(papers.load("ifcl").tables["sts_en"].rows)


def test_a_recipe_answers_every_row_that_names_it():
    lines = rows([result()])
    assert {row.reproduces for row in lines if row.source == "measured"} == {"IFCL-BERT base", "IFCL base"}


def test_tables_without_our_runs_are_left_out_unless_asked_for():
    assert {row.table for row in rows([result()])} == {"sts_en", "ablation"}
    assert {row.table for row in rows([], table="chinese")} == {"chinese"}
    assert rows([]) == []


def test_mean_sample_deviation_and_difference():
    (row,) = ours(rows([result(0, 70.0), result(1, 71.0), result(2, 75.0)]))
    score = row.scores["STS12"]
    assert row.seeds == (0, 1, 2)
    assert score.n == 3
    assert score.mean == pytest.approx(72.0)
    assert score.std == pytest.approx(math.sqrt((4 + 1 + 9) / 2))
    assert score.difference == pytest.approx(72.0 - 71.57)


def test_average_is_of_scores_rounded_to_two_decimals():
    scores = {task: {"spearman": 70.004} for task in STS_TASKS}
    (row,) = ours(rows([result(scores=scores)]))
    assert row.scores["Avg"].mean == pytest.approx(70.0, abs=1e-12)
    assert row.scores["STS12"].mean == 70.004


def test_average_needs_all_seven():
    scores = {task: {"spearman": 70.0} for task in STS_TASKS[1:]}
    (row,) = ours(rows([result(scores=scores)]))
    assert "Avg" not in row.scores
    assert "STS12" not in row.scores
    assert "STS13" in row.scores


def test_a_table_of_averages_has_the_mean_of_seven():
    row = PaperRow(key="conisi", table="sts", row="ConIsI-s-BERT-base")
    lines = rows([result(recipe="conisi_s_en", paper=row)], paper="conisi")
    (beside,) = ours(lines, table="ablation")
    assert beside.reproduces == "ConIsI-s-BERT-base"
    assert {column: score.mean for column, score in beside.scores.items()} == {"Avg": pytest.approx(70.0)}
    assert beside.scores["Avg"].difference == pytest.approx(70.0 - 78.30)


def test_the_last_run_of_a_seed_counts_once():
    later = datetime(2026, 2, 1, tzinfo=UTC)
    (row,) = ours(rows([result(0, 50.0, finished=later), result(0, 70.0)]))
    assert row.seeds == (0,)
    assert row.scores["STS12"].mean == 50.0


def test_different_hashes_are_different_rows(one_is_stale):
    lines = rows([result(0), result(1, recipe_hash="b" * 16)], None)
    stale = [any("stale" in score.marks for score in row.scores.values()) for row in ours(lines)]
    assert sorted(stale) == [False, True]


def test_gains_over_untrained_are_tested_seed_by_seed():
    def own(seed, score, before):
        return mini(seed, scores={"own": {"spearman": score}}, untrained={"own": {"spearman": before}})

    steady = [own(seed, 60.0 + seed + seed / 10, 50.0 + seed) for seed in range(3)]
    assert tables(steady)[0].rows[1].scores["own"].significant
    equal = tables([own(seed, 60.0 + seed, 50.0 + seed) for seed in range(3)])[0].rows[1].scores["own"]
    assert (equal.p, equal.marks) == (None, ("above",)), "every seed gains as much, so there is nothing to test"
    noisy = [own(seed, 50.0 + change, 50.0) for seed, change in enumerate((-1.0, 0.0, 2.0))]
    assert not tables(noisy)[0].rows[1].scores["own"].significant


def test_without_an_untrained_score_there_is_no_difference():
    (table,) = tables([result(paper=None, recipe="own", untrained={})])
    (row,) = [row for row in table.rows if row.source == "measured"]
    assert row.scores["STS12"].difference is None
    assert row.scores["Avg"].mean == 70.0


def test_every_evaluator_reports_its_own_metric_first():
    assert len(EVALUATORS) >= 1
    assert all(entry.cls.metrics[0] == entry.cls.metric for entry in EVALUATORS)


@pytest.mark.slow
def test_recipes_and_reported_rows_name_each_other():
    rows = {row.recipe for key in papers.names() for t in papers.load(key).tables.values() for row in t.rows.values()}
    with_paper = {name: recipe for name in all_recipes() if (recipe := load(name).recipe).paper is not None}
    assert set(with_paper) == rows - {None}
    for name, recipe in with_paper.items():
        table = papers.load(recipe.paper.key).tables[recipe.paper.table]
        assert table.rows[recipe.paper.row].recipe == name
        named = {column.evaluator for column in table.columns} - {None, AVERAGE} or set(STS_TASKS)
        assert table.study is not None or named <= set(recipe.evaluators)
        assert named & set(recipe.evaluators)
        for key in named & set(recipe.evaluators):
            part = recipe.evaluators[key]
            assert part.params.get("split", "test") == "test"
            scores = {table.score_of(column) for column in table.columns if column.evaluator == key} or {table.score}
            assert scores <= set(EVALUATORS[part.name].cls.metrics)


def test_status_of_a_recipe():
    recipe = load("ifcl_en").recipe
    assert recipe_status(result(recipe_hash=recipe.hash())) == "current"
    assert recipe_status(result(recipe_hash="0" * 16)) == "changed"
    assert recipe_status(result(recipe_hash="0" * 16, model="mini_en")) == "other_model"
    assert recipe_status(result(recipe="no_such_recipe_anywhere")) == "missing"


LOW = [result(seed, 20.0 + seed / 100) for seed in range(3)]


@pytest.mark.parametrize(
    ("results", "status", "mark"),
    [
        (LOW[:1], "current", "single seed"),
        (LOW, "changed", "stale"),
        ([one.model_copy(update={"test_selected": True}) for one in LOW], "current", "test-selected"),
    ],
    ids=["one seed", "changed recipe", "selected by test"],
)
def test_a_doubt_is_marked_once_and_never_significant(results, status, mark):
    (row,) = ours(rows(results, status))
    assert all(mark in score.marks for score in row.scores.values())
    assert not row.notes  # the legend explains the mark
    assert row.scores["STS12"].difference < -50
    assert not any(score.significant for score in row.scores.values())


def test_a_recipe_without_a_file_is_marked():
    (row,) = ours(rows([result()], "missing"))
    assert any("no recipe with this name" in note for note in row.notes)
