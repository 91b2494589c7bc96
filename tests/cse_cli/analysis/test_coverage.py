"""Who ran a printed cell, or what is lacking to run it; and cells that are differences of others."""

import csv
import io
import json
from datetime import UTC, datetime

import pytest

from cse_cli.analysis.leaderboard import FinishedRuns, LeaderboardQuery, score_tables
from cse_cli.analysis.leaderboard_view import coverage_lines, to_csv, to_html, to_json, to_markdown
from cse_cli.core.identity import Identity
from cse_cli.core.results import STS_TASKS, PaperRow
from cse_cli.recipe.cells import cells
from cse_cli.recipe.load import load
from cse_cli.recipe.study import load_study
from registry import papers
from tests.cse_cli.analysis.leaderboard_runs import current, result

pytestmark = pytest.mark.usefixtures("nothing_here")
ABLATION = "studies/conisi_ablation"


def tables(results=(), **query):
    return score_tables(FinishedRuns(list(results), {}, current), LeaderboardQuery(**query))


def states(table):
    return {row.name: {(one.state, one.columns) for one in row.coverage} for row in table.rows if row.source == "paper"}


def texts(table):
    return {row.name: [one.text for one in row.coverage] for row in table.rows if row.source == "paper"}


def test_every_printed_cell_of_every_table_has_one():
    for key in papers.names():
        for shown in tables(paper=key):
            table = papers.load(key).tables[shown.table]
            told = {
                (row.name, name)
                for row in shown.rows
                for one in row.coverage
                for name in one.columns or (column.name for of, column in table.printed() if of == row.name)
            }
            assert told == {(row, column.name) for row, column in table.printed()}


def test_recipes_that_ran_and_that_did_not():
    digest = load("ifcl_en").recipe.hash()
    ran = [result(seed, 78.0, recipe_hash=digest) for seed in (0, 3, 5)]
    other = result(1, 77.0, recipe_hash="0" * 16)  # of the recipe as it was once
    (table,) = tables([*ran, other], table="ifcl/1")
    row = next(row for row in table.rows if row.name == "IFCL-BERT base" and row.source == "paper")
    assert [(one.state, one.seeds, one.text) for one in row.coverage] == [("run", (0, 3, 5), "finished: 3 seeds")]
    (lacking,) = texts(table)["SimCSE-BERT base"]
    assert lacking.startswith("requires weights: bert-base-uncased; data: wiki1m")
    assert all(one.source == "paper" or not one.coverage for one in table.rows)


def test_seeds_of_other_experiments_are_counted_apart():
    digest = load("ifcl_en").recipe.hash()
    ran = [result(seed, 78.0, identity=Identity(settings=digest, text=text)) for seed, text in ((0, "a"), (1, "b"))]
    later = result(2, 78.0, identity=Identity(settings=digest, text="b"), finished=datetime(2027, 1, 1, tzinfo=UTC))
    (table,) = tables([*ran, later], table="ifcl/1")
    assert texts(table)["IFCL-BERT base"] == ["finished: 2 seeds, and 1 other experiment with the same settings"]


def test_a_recipe_whose_parts_are_all_here_is_ready(monkeypatch):
    monkeypatch.setattr("cse_cli.listing.inventory.Machine.missing", lambda self, wanted: ())
    (table,) = tables(table="ifcl/1")
    assert texts(table)["SimCSE-BERT base"] == ["recipe ready to run"]
    (table,) = tables(table="conisi/5")
    assert texts(table)["ConIsI-s-BERT-base"] == ["study ready to run"]


def test_omitted_columns_belong_to_the_papers_study():
    study = load_study("studies/mini/ifcl_queue_length")
    ran = [result(0, recipe=cell.recipe, recipe_hash=cell.hash, model="mini_en", paper=None) for cell in cells(study)]
    (table,) = tables(ran, table="ifcl/5")
    assert table.study == "studies/mini/ifcl_queue_length"
    english, chinese = next(row for row in table.rows if row.name == "M=416").coverage
    assert (english.columns, english.text) == (("STS-B",), "finished: 1 of 3 seeds")
    assert chinese.columns == ("C-STS-B",)
    assert chinese.text.startswith("requires weights: ")
    assert "bert-base-chinese" in chinese.text


def test_reasons_settings_and_numbers_of_data():
    (sizes,) = tables(table="conisi/2")
    assert states(sizes)["train"] == {("data", (name,)) for name in sizes.columns[:-1]}
    (settings,) = tables(table="ifcl/6")
    assert texts(settings)["similarity omega_a"] == [
        "setting of ifcl_en_fixed_margin",
        "setting of ifcl_zh_fixed_margin",
    ]
    (transfer,) = tables(table="mocose/2")
    (reason,) = next(row.coverage for row in transfer.rows if row.name == "Skip-thought")
    assert (reason.state, reason.columns) == ("reason", ())
    assert reason.text.startswith("reason: a recurrent encoder")


def ablation_runs(seeds=(0, 1, 2)):
    """Averages 76, 78.5, 77 and 67, each seed 0.1 higher than the one before; ConIsI's own twice that."""
    found = []
    for cell, (score, step) in zip(
        cells(load_study(ABLATION)), [(76, 0.1), (78.5, 0.2), (77, 0.1), (67, 0.1)], strict=True
    ):
        for seed in seeds:
            scores = {task: {"spearman": score + step * seed} for task in STS_TASKS}
            found.append(result(seed, recipe=cell.recipe, recipe_hash=cell.hash, scores=scores, paper=None))
    return found


def test_a_column_of_differences_is_taken_seed_by_seed():
    (table,) = tables(ablation_runs(), table="conisi/5")
    ours = {row.name: row.scores for row in table.rows if row.source == "measured"}
    without = ours["w/o fine-grained classification loss"]
    assert without["to ConIsI"].mean == pytest.approx(77 - 78.5 - 0.1)  # −1.5, −1.6, −1.7
    assert without["to ConIsI"].std == pytest.approx(0.1)
    assert without["to SimCSE"].mean == pytest.approx(1.0)
    assert without["to SimCSE"].std == pytest.approx(0.0, abs=1e-9)
    assert (without["to ConIsI"].reference, without["to ConIsI"].n) == (-1.3, 3)
    assert "to SimCSE" not in ours["w/o contrastive loss"]  # nothing is printed there
    assert set(ours["SimCSE-BERT-base"]) == {"Avg"}
    assert texts(table)["w/o contrastive loss"] == ["finished: 3 seeds"]


def test_differences_need_seeds_that_both_have():
    ran = [r for r in ablation_runs() if r.recipe != "simcse_en"]
    (table,) = tables(ran, table="conisi/5")
    ours = {row.name: row.scores for row in table.rows if row.source == "measured"}
    assert set(ours["w/o fine-grained classification loss"]) == {"Avg", "to ConIsI"}
    (few,) = tables(ablation_runs(seeds=(0, 1)), table="conisi/5")
    assert texts(few)["w/o contrastive loss"] == ["finished: 2 of 3 seeds"]


def test_a_row_with_a_metric_of_its_own_is_compared_by_it():
    """BERT large of IFCL's Table 1 weights subsets by their pairs."""
    recipe = load("bert_avg_en_large").recipe
    scores = {task: {"spearman": 50.0, "spearman_wmean": 60.0 + place} for place, task in enumerate(STS_TASKS)}
    about = {"recipe": "bert_avg_en_large", "recipe_hash": recipe.hash(), "model": "bert-large-uncased"}
    ran = [result(0, scores=scores, paper=PaperRow(key="ifcl", table="sts_en", row="BERT large"), **about)]
    (own,) = tables(ran, table="ifcl/1")
    (encoder,) = tables(ran)
    for table in (own, encoder):
        (row,) = [row for row in table.rows if row.source == "measured" and row.scores]
        assert (row.scores["STS13"].mean, row.scores["STS13"].reference) == (61.0, 61.17)
        assert row.scores["Avg"].mean == pytest.approx(63.0)


def test_it_is_told_in_every_format():
    found = tables(ablation_runs()[:3], table="conisi/5")
    assert "finished: 3 seeds · SimCSE-BERT-base" in coverage_lines(found[0].rows)
    assert "finished: 3 seeds · SimCSE-BERT-base" in to_markdown(found)
    assert "finished: 3 seeds · SimCSE-BERT-base" in to_html(found)
    row = json.loads(to_json(found))["tables"][0]["rows"][0]
    assert row["coverage"] == [{"columns": [], "state": "run", "seeds": [0, 1, 2], "text": "finished: 3 seeds"}]
    lines = list(csv.DictReader(io.StringIO(to_csv(found))))
    assert next(line["coverage"] for line in lines if line["source"] == "paper") == "finished: 3 seeds"
