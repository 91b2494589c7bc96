"""Finished results next to the papers' rows: grouping, statistics, rounding, marks."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest

from cse_cli.analysis.origins import recipe_status
from cse_cli.analysis.score_table import Score, measure
from cse_cli.core.results import STS_TASKS, PaperRow
from cse_cli.recipe.files import all_recipes
from cse_cli.recipe.load import load
from registry import EVALUATORS, papers
from registry.papers import AVERAGE
from tests.cse_cli.analysis.leaderboard_runs import mini, result, rows, tables


def ours(lines, table="sts_en"):
    return [row for row in lines if row.source == "measured" and row.table == table]


def test_your_row_is_below_every_row_of_its_recipe_and_other_tables_are_omitted():
    every = rows([result()])
    names = [(row.source, row.name) for row in every if row.table == "sts_en"]
    assert names[names.index(("paper", "IFCL-BERT base")) + 1] == ("measured", "IFCL, English")
    assert sum(source == "paper" for source, _ in names) == len(papers.load("ifcl").tables["sts_en"].rows)
    assert {row.reproduces for row in every if row.source == "measured"} == {"IFCL-BERT base", "IFCL base"}
    assert {row.table for row in every} == {"sts_en", "ablation"}
    assert {row.table for row in rows([], table="chinese")} == {"chinese"}
    assert rows([]) == []


def test_mean_sample_deviation_and_difference_of_the_last_run_of_each_seed():
    later = datetime(2026, 2, 1, tzinfo=UTC)
    ran = [result(0, 70.0, finished=later), result(0, 50.0), result(1, 71.0), result(2, 75.0)]
    (row,) = ours(rows(ran))
    score = row.scores["STS12"]
    assert (row.seeds, score.n, score.mean) == ((0, 1, 2), 3, pytest.approx(72.0))
    assert score.std == pytest.approx(math.sqrt((4 + 1 + 9) / 2))
    assert score.difference == pytest.approx(72.0 - 71.57)


def test_the_average_is_of_all_seven_scores_rounded_to_two_decimals():
    scores = {task: {"spearman": 70.004} for task in STS_TASKS}
    (row,) = ours(rows([result(scores=scores)]))
    assert row.scores["Avg"].mean == pytest.approx(70.0, abs=1e-12)
    assert row.scores["STS12"].mean == 70.004
    del scores[STS_TASKS[0]]
    (row,) = ours(rows([result(scores=scores)]))
    assert {"STS13"} == {"Avg", "STS12", "STS13"} & row.scores.keys()


def test_a_table_of_averages_has_the_mean_of_seven():
    row = PaperRow(key="conisi", table="sts", row="ConIsI-s-BERT-base")
    lines = rows([result(recipe="conisi_s_en", paper=row)], paper="conisi")
    (beside,) = ours(lines, table="ablation")
    assert beside.reproduces == "ConIsI-s-BERT-base"
    assert {column: score.mean for column, score in beside.scores.items()} == {"Avg": pytest.approx(70.0)}
    assert beside.scores["Avg"].difference == pytest.approx(70.0 - 78.30)


def test_gains_over_untrained_are_tested_seed_by_seed():
    def own(*scores):
        runs = [
            mini(seed, scores={"own": {"spearman": score}}, untrained={"own": {"spearman": before}})
            for seed, (score, before) in enumerate(scores)
        ]
        return tables(runs)[0].rows[1].scores["own"]

    assert own((60.0, 50.0), (61.1, 51.0), (62.2, 52.0)).significant
    assert not own((49.0, 50.0), (50.0, 50.0), (52.0, 50.0)).significant
    equal = own((60.0, 50.0), (61.0, 51.0), (62.0, 52.0))
    assert (equal.p, equal.marks) == (None, ("above",)), "every seed gains as much, so there is nothing to test"
    (row,) = [row for row in tables([result(paper=None, untrained={})])[0].rows if row.source == "measured"]
    assert (row.scores["STS12"].difference, row.scores["Avg"].mean) == (None, 70.0)


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
)
def test_a_doubt_is_marked_once_and_never_significant(results, status, mark):
    (row,) = ours(rows(results, status))
    assert all(mark in score.marks for score in row.scores.values())
    assert not row.notes  # the legend explains the mark
    assert row.scores["STS12"].difference < -50
    assert not any(score.significant for score in row.scores.values())


@pytest.mark.parametrize(
    ("values", "reported", "mark"),
    [
        ([57.2142] * 5, 57.21, "within"),  # every method without training
        ([57.2149, 57.2148, 57.2147], 57.21, "within"),  # equal but for the last bits
        ([57.2161] * 5, 57.21, "above"),
        ([57.2049] * 5, 57.21, "below"),
    ],
)
def test_a_difference_inside_the_rounding_of_a_number_is_none(values, reported, mark):
    score = measure(values, Score(mean=reported))
    assert score.marked().marks == (mark,)
    assert not score.significant
    assert score.std is None or len(set(values)) > 1


def test_the_decimals_are_those_of_the_reported_cell():
    assert measure([0.81] * 3, Score(mean=0.8, digits=1)).marked().marks == ("within",)
    assert measure([0.81] * 3, Score(mean=0.8, digits=2)).marked().marks == ("above",)


def test_an_untrained_encoder_has_no_gain_over_itself():
    score = measure([50.0, 50.0, 50.0], before=[50.0, 50.0, 50.0]).marked()
    assert (score.difference, score.marks, score.std) == (0.0, ("within",), None)
