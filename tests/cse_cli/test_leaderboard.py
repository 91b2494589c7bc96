"""Finished results beside the papers' rows: grouping, statistics, marks, four formats."""

import csv
import io
import json
import math
from datetime import UTC, datetime

import pytest
import typer
from typer.testing import CliRunner

from cse_cli import leaderboard
from cse_cli.commands import leaderboard as command
from cse_cli.leaderboard import STS_TASKS, check_names, rows
from cse_cli.recipe.find import all_recipes
from cse_cli.recipe.load import load
from cse_cli.render_leaderboard import FORMATS
from cse_cli.results import PaperRow, Result, Versions
from registry import EVALUATORS, papers
from registry.errors import UnknownNameError
from registry.papers import AVERAGE

IFCL = PaperRow(key="ifcl", table="sts_en", row="IFCL-BERT base")


def result(seed=0, score=70.0, **changes):
    values = {
        "recipe": "ifcl_en",
        "title": "IFCL, English",
        "recipe_hash": "a" * 16,
        "language": "en",
        "seed": seed,
        "paper": IFCL,
        "model": "bert-base-uncased",
        "scores": {task: {"spearman": score, "pearson": 1.0} for task in STS_TASKS},
        "steps": 10,
        "versions": Versions(cse="0", python="3.11", torch="2", transformers="5"),
        "device": "cpu",
        "precision": "fp32",
        "seconds": 1.0,
        "finished": datetime(2026, 1, 1, tzinfo=UTC),
    }
    return Result(**{**values, **changes})


def mini(seed=0, score=60.0, before=45.0, **changes):
    values = {
        "recipe": "mini/ifcl_en",
        "title": "Mini",
        "paper": None,
        "model": "mini_en",
        "scores": {"dev": {"spearman": score}},
        "untrained": {"dev": {"spearman": before}},
    }
    return result(seed, **{**values, **changes})


def current(result):
    return "current"


def ours(lines, table="sts_en"):
    return [row for row in lines if row.source == "ours" and row.table == table]


def test_our_row_stands_below_the_row_it_answers_and_all_printed_rows_are_there():
    lines = [row for row in rows([result()], current) if row.table == "sts_en"]
    names = [(row.source, row.name) for row in lines]
    assert names[names.index(("paper", "IFCL-BERT base")) + 1] == ("ours", "IFCL, English")
    assert len([1 for source, _ in names if source == "paper"]) == len(papers.load("ifcl").tables["sts_en"].rows)


def test_a_recipe_answers_every_row_that_names_it():
    lines = rows([result()], current)
    assert {row.answers for row in lines if row.source == "ours"} == {"IFCL-BERT base", "IFCL base"}


def test_tables_without_our_runs_are_left_out_unless_asked_for():
    assert {row.table for row in rows([result()], current)} == {"sts_en", "ablation"}
    assert {row.table for row in rows([], current, table="chinese")} == {"chinese"}
    assert rows([], current) == []


def test_mean_sample_deviation_and_difference():
    (row,) = ours(rows([result(0, 70.0), result(1, 71.0), result(2, 75.0)], current))
    score = row.scores["STS12"]
    assert row.seeds == (0, 1, 2)
    assert score.n == 3
    assert score.mean == pytest.approx(72.0)
    assert score.std == pytest.approx(math.sqrt((4 + 1 + 9) / 2))
    assert score.difference == pytest.approx(72.0 - 71.57)


def test_average_is_of_scores_rounded_to_two_decimals():
    scores = {task: {"spearman": 70.004} for task in STS_TASKS}
    (row,) = ours(rows([result(scores=scores)], current))
    assert row.scores["Avg"].mean == pytest.approx(70.0, abs=1e-12)
    assert row.scores["STS12"].mean == 70.004


def test_average_needs_all_seven():
    scores = {task: {"spearman": 70.0} for task in STS_TASKS[1:]}
    (row,) = ours(rows([result(scores=scores)], current))
    assert "Avg" not in row.scores
    assert "STS12" not in row.scores
    assert "STS13" in row.scores


def test_a_table_of_averages_alone_shows_the_average_of_the_seven():
    row = PaperRow(key="conisi", table="sts", row="ConIsI-s-BERT-base")
    lines = rows([result(recipe="conisi_s_en", paper=row)], current, paper="conisi")
    (beside,) = ours(lines, table="ablation")
    assert beside.answers == "ConIsI-s-BERT-base"
    assert {column: score.mean for column, score in beside.scores.items()} == {"Avg": pytest.approx(70.0)}
    assert beside.scores["Avg"].difference == pytest.approx(70.0 - 78.30)


def test_one_seed_has_no_spread_is_marked_and_is_never_significant():
    (row,) = ours(rows([result(0, 10.0)], current))
    assert row.scores["STS12"].std is None
    assert not row.scores["STS12"].significant
    assert any("one seed" in note for note in row.notes)


@pytest.mark.parametrize(
    ("values", "significant"),
    [
        # limit = t(0.975, n − 1) · std · √(1 + 1/n); t(2) = 4.3027, so 4.968 for a std of 1 and three seeds
        ((71.57 + 4.9 - 1, 71.57 + 4.9, 71.57 + 4.9 + 1), False),
        ((71.57 + 5.0 - 1, 71.57 + 5.0, 71.57 + 5.0 + 1), True),
        ((71.57 - 5.0 - 1, 71.57 - 5.0, 71.57 - 5.0 + 1), True),
    ],
)
def test_significance_against_one_printed_number(values, significant):
    (row,) = ours(rows([result(seed, value) for seed, value in enumerate(values)], current))
    assert row.scores["STS12"].significant is significant


def test_the_last_run_of_a_seed_counts_once():
    later = datetime(2026, 2, 1, tzinfo=UTC)
    (row,) = ours(rows([result(0, 50.0, finished=later), result(0, 70.0)], current))
    assert row.seeds == (0,)
    assert row.scores["STS12"].mean == 50.0


def test_different_hashes_are_different_rows_and_the_stale_one_is_marked():
    lines = rows(
        [result(0), result(1, recipe_hash="b" * 16)], lambda r: "current" if r.recipe_hash[0] == "a" else "changed"
    )
    stale = [any("stale" in note for note in row.notes) for row in ours(lines)]
    assert sorted(stale) == [False, True]


def test_a_recipe_without_a_file_is_marked():
    (row,) = ours(rows([result()], lambda _: "missing"))
    assert any("no recipe of this name" in note for note in row.notes)


def test_test_selected_runs_are_marked_and_never_significant():
    picked = [result(seed, 20.0 + seed / 100, test_selected=True) for seed in range(3)]
    (row,) = ours(rows(picked, current))
    assert any("test split" in note for note in row.notes)
    assert not any(score.significant for score in row.scores.values())


def test_a_mini_recipe_stands_beside_no_paper_but_below_its_untrained_encoder():
    lines = rows([mini(0, 60.0), mini(1, 62.0)], current)
    assert [(row.source, row.paper) for row in lines] == [("untrained", None), ("ours", None)]
    assert lines[0].scores["dev"].mean == 45.0
    assert lines[1].scores["dev"].difference == pytest.approx(16.0)


def test_gains_over_the_untrained_encoder_are_compared_seed_by_seed():
    steady = [mini(seed, 60.0 + seed, 50.0 + seed) for seed in range(3)]
    lines = rows(steady, current)
    assert lines[1].scores["dev"].significant
    noisy = [mini(seed, 50.0 + change, 50.0) for seed, change in enumerate((-1.0, 0.0, 2.0))]
    assert not rows(noisy, current)[1].scores["dev"].significant


def test_without_an_untrained_score_there_is_no_difference():
    (row,) = rows([result(paper=None, recipe="own", untrained={})], current)
    assert row.scores["sts12"].difference is None
    assert row.scores["avg"].mean == 70.0


def test_every_evaluator_reports_its_own_metric_first():
    assert len(EVALUATORS) >= 1
    assert all(entry.cls.metrics[0] == entry.cls.metric for entry in EVALUATORS)


def test_markup_in_titles_is_text():
    text = FORMATS["table"](rows([result(title="[bold]x[/bold]", paper=None)], current))
    assert "[bold]x[/bold]" in text


def test_piped_table_is_plain_untruncated_and_ascii_free_of_escapes():
    title = "a title so long that no terminal of eighty columns could hold it beside eight numbers " * 3
    text = FORMATS["table"](rows([result(title=title.strip(), paper=None)], current))
    assert title.strip() in text
    assert "\x1b" not in text
    assert "…" not in text


def test_table_marks_only_significant_differences():
    near = [result(seed, 71.57 + value) for seed, value in enumerate((-1.0, 0.0, 1.5))]
    block = FORMATS["table"](rows(near, current)).split("Table 2")[0]
    (line,) = [line for line in block.split("\n") if line.strip().startswith("difference")]
    assert "+0.17 " in line
    assert "+0.17*" not in line
    assert "−10.61*" in line


def test_markdown_escapes_bars_and_bolds_only_significant():
    text = FORMATS["md"](rows([mini(seed, 60.0 + seed, title="a|b") for seed in range(3)], current))
    assert "a\\|b (mini/ifcl_en, mini_en)" in text
    assert "**+16.00**" in text
    single = FORMATS["md"](rows([result()], current))
    assert not any("**" in line for line in single.split("\n") if line.startswith("|"))


def test_csv_has_one_line_a_cell():
    lines = rows([result(0), result(1, 71.0)], current)
    read = list(csv.DictReader(io.StringIO(FORMATS["csv"](lines))))
    assert len(read) == sum(len(row.scores) for row in lines)
    (cell,) = [c for c in read if c["source"] == "ours" and c["table"] == "sts_en" and c["column"] == "STS12"]
    assert (cell["n"], float(cell["mean"]), float(cell["reference"])) == ("2", 70.5, 71.57)


@pytest.mark.parametrize("form", ["table", "md"])
def test_doubts_about_a_whole_table_stand_below_it(form):
    assert "whole table: CnData, 100,000 random sentences" in FORMATS[form](rows([], current, table="chinese"))


def test_json_is_one_versioned_document():
    document = json.loads(FORMATS["json"](rows([result()], current)))
    assert document["schema_version"] == 1
    (row,) = [r for r in document["rows"] if r["source"] == "ours" and r["table"] == "sts_en"]
    assert row["scores"]["STS12"]["difference"] == pytest.approx(-1.57)


def answering():
    return sorted(
        {row.recipe for key in papers.names() for t in papers.load(key).tables.values() for row in t.rows.values()}
        - {None}
    )


@pytest.mark.parametrize("name", answering())
def test_a_recipe_and_the_row_it_answers_name_each_other_and_share_scores(name):
    recipe = load(name).recipe
    table = papers.load(recipe.paper.key).tables[recipe.paper.table]
    assert table.rows[recipe.paper.row].recipe == name
    named = {column.evaluator for column in table.columns} - {None}
    assert named
    wanted = named - {AVERAGE} or set(STS_TASKS)
    assert wanted <= set(recipe.evaluators)
    for key in wanted:
        part = recipe.evaluators[key]
        assert part.params.get("split", "test") == "test"
        assert table.score in EVALUATORS[part.name].cls.metrics


def test_every_recipe_with_a_paper_row_is_named_by_that_row():
    with_paper = [name for name in all_recipes() if load(name).recipe.paper is not None]
    assert with_paper == answering()


@pytest.mark.parametrize("table", ["sts_en", "queue_length"])
def test_known_names_pass(table):
    check_names("ifcl", table)


def test_unknown_names_suggest_the_nearest():
    with pytest.raises(UnknownNameError, match="Did you mean 'sts_en'"):
        check_names(None, "sts_eng")
    with pytest.raises(UnknownNameError, match="Did you mean 'ifcl'"):
        check_names("iflc", None)


def test_standing():
    recipe = load("ifcl_en").recipe
    assert leaderboard.standing(result(recipe_hash=recipe.hash())) == "current"
    assert leaderboard.standing(result(recipe_hash="0" * 16)) == "changed"
    assert leaderboard.standing(result(recipe_hash="0" * 16, model="mini_en")) == "other_model"
    assert leaderboard.standing(result(recipe="no_such_recipe_anywhere")) == "missing"


def test_a_run_with_another_model_answers_no_printed_row():
    (row,) = rows([result(model="mini_en")], lambda _: "other_model")
    assert (row.source, row.paper, row.answers) == ("ours", None, None)
    assert any("stale" in note for note in row.notes)


def test_a_changed_recipe_is_shown_but_its_difference_is_never_marked():
    (row,) = ours(rows([result(seed, 20.0 + seed / 100) for seed in range(3)], lambda _: "changed"))
    assert row.scores["STS12"].difference < -50
    assert not row.scores["STS12"].significant


@pytest.fixture
def run(monkeypatch):
    found = []
    monkeypatch.setattr("cse_cli.tracking.reader.finished_results", lambda: found)
    monkeypatch.setattr("cse_cli.leaderboard.standing", current)
    app = typer.Typer()
    app.callback()(lambda: None)
    command.add(app)

    def invoke(*arguments, results=()):
        found[:] = results
        return CliRunner().invoke(app, ["leaderboard", *arguments], catch_exceptions=False)

    return invoke


def test_an_empty_store_is_no_error_and_names_the_next_command(run):
    done = run()
    assert done.exit_code == 0
    assert done.stdout == ""
    assert "cse run quickstart" in done.stderr


def test_an_empty_store_still_gives_programs_a_document(run):
    assert json.loads(run("--format", "json").stdout) == {"schema_version": 1, "rows": []}


def test_filters(run):
    found = [result(), mini(), result(language="zh", recipe="other", paper=None)]
    named = json.loads(run("--format", "json", "--recipe", "mini/ifcl_en", results=found).stdout)["rows"]
    assert {row["recipe"] for row in named} == {"mini/ifcl_en"}
    chinese = json.loads(run("--format", "json", "--language", "zh", results=found).stdout)["rows"]
    assert {row["recipe"] for row in chinese} == {"other"}
    one = json.loads(run("--format", "json", "--paper", "ifcl", "--table", "ablation", results=found).stdout)["rows"]
    assert {row["table"] for row in one} == {"ablation"}


def test_piped_output_of_the_command_is_the_table(run):
    done = run(results=[result()])
    assert done.stdout.startswith("IFCL, Table 1 (sts_en)")
