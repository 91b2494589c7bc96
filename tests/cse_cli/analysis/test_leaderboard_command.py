"""`cse leaderboard` from its arguments to what it writes."""

import json
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from cse_cli.analysis.experiments import FinishedRuns
from cse_cli.cli import results
from cse_cli.core.identity import Identity
from cse_cli.core.results import STS_TASKS
from registry.errors import UnknownNameError
from tests.cse_cli.analysis.leaderboard_runs import mini, result, tables
from tests.support.errors import refuses

LISTED = ("bert-base", "bert-large", "roberta-base", "roberta-large")
"""Encoders of the public lists."""


@pytest.fixture
def run(monkeypatch):
    found = []
    monkeypatch.setattr(
        "cse_cli.analysis.experiments.read_finished_runs", lambda: FinishedRuns(found, status="current")
    )
    app = typer.Typer()
    app.callback()(lambda: None)
    app.command("leaderboard")(results.leaderboard)

    def invoke(*arguments, results=()):
        found[:] = results
        return CliRunner().invoke(app, ["leaderboard", *arguments], catch_exceptions=False)

    return invoke


def shown(done):
    return json.loads(done.stdout)["tables"]


@pytest.mark.slow
def test_without_runs_reported_rows_have_their_commands(run):
    done = run("--wide")
    assert done.exit_code == 0
    assert done.stdout.startswith("bert-base (en) [Spearman × 100]")
    lines = [line.split() for line in done.stdout.split("\n")]
    place = next(n for n, line in enumerate(lines) if line[:2] == ["IFCL-BERT", "base"])
    assert lines[place + 1] == ["cse", "run", "ifcl_en"]
    assert "no runs yet: cse run " in done.stdout
    assert " ifcl_en " in done.stdout
    assert done.stderr.split("\n") == [
        "no finished runs yet: showing published results",
        "  → run `cse run quickstart` (about two minutes)",
        "",
    ]


RAN = [result(), mini(), result(language="zh", recipe="other", recipe_hash="c" * 16, paper=None, model="zh")]


@pytest.mark.parametrize(
    ("query", "encoders", "recipes"),
    [
        ({}, {"bert-base", "mini_en", "zh"}, {"ifcl_en", "mini/ifcl_en", "other"}),
        ({"recipes": ["mini/ifcl_en", "other"]}, {"mini_en", "zh"}, {"mini/ifcl_en", "other"}),
        ({"language": "zh"}, {"zh"}, {"other"}),
        ({"encoder": "mini_en"}, {"mini_en"}, {"mini/ifcl_en"}),
        ({"community": True, "encoder": "roberta-large"}, {"roberta-large"}, set()),
        ({"community": True, "encoder": "mini_en"}, {"mini_en"}, {"mini/ifcl_en"}),
        ({"community": True, "language": "en"}, {*LISTED, "mini_en"}, {"ifcl_en", "mini/ifcl_en"}),
    ],
)
def test_filters(query, encoders, recipes):
    found = tables(RAN, **query)
    assert {table.encoder for table in found} == encoders
    assert {row.recipe for table in found for row in table.rows if row.source == "measured"} == recipes


@pytest.mark.slow
def test_without_runs_the_filters_hold_too():
    assert {table.encoder for table in tables([], encoder="roberta-base")} == {"roberta-base"}
    assert {table.language for table in tables([], language="zh")} == {"zh"}
    assert {table.paper for table in tables([], paper="conisi")} == {"conisi"}
    assert tables([], recipes=["ifcl_en"]) == []
    (table,) = tables([result()], table="ifcl/1", encoder="bert-large")
    assert {row.model for row in table.rows} == {"bert-large"}
    lists = [(name, encoder) for name in ("community", "recent", "llm_data", "labels") for encoder in LISTED]
    assert [(table.table, table.encoder) for table in tables([], community=True)] == lists


def test_pooled_settings_are_asked_for(run):
    results = [mini(seed, identity=Identity(settings="a", text=str(seed))) for seed in (0, 1)]
    for options, seeds in (((), [[0], [1]]), (("--pool", "settings"), [[0, 1]])):
        (table,) = shown(run("--format", "json", *options, results=results))
        assert [row["seeds"] for row in table["rows"] if row["source"] == "measured"] == seeds


@pytest.mark.slow
def test_a_papers_own_tables(run):
    for address in (("--table", "ifcl/2"), ("--paper", "ifcl", "--table", "2"), ("--table", "ifcl/ablation")):
        one = shown(run("--format", "json", *address, results=[result()]))
        assert [(table["paper"], table["table"], table["kind"]) for table in one] == [("ifcl", "ablation", "table")]
    every = shown(run("--format", "json", "--paper", "ifcl", results=[result()]))
    assert {table["table"] for table in every} >= {"sts_en"}
    assert all(any(row["source"] == "measured" for row in table["rows"]) for table in every)


def test_a_page_is_written_and_nothing_else(run, tmp_path):
    path = tmp_path / "board.html"
    done = run("--html", str(path), results=[result(), mini()])
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", f"{path}: 2 tables\n")
    assert path.read_text(encoding="utf-8").count("<table") == 2


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--table", "ifcl/queue_lenght"), "Did you mean 'queue_length'"),
        (("--recipe", "mini/simcse_enn"), "Did you mean 'mini/simcse_en'"),
        (("--table", "ifcl/²"), "no table '²'"),
        (("--encoder", "bert-bse"), "Did you mean 'bert-base'"),
        (("--language", "xx"), "use one of: en, zh"),
    ],
)
def test_unknown_names_suggest_the_nearest(run, arguments, error):
    with pytest.raises(UnknownNameError, match=error):
        run(*arguments, results=[result()])


def test_a_figure_is_refused_with_what_draws_it(run):
    with refuses("leaderboard.conflicting_options"):
        run("--community", "--table", "ifcl/1")
    with refuses("leaderboard.figure", "ifcl/fig4c") as caught:
        run("--table", "ifcl/fig4c")
    assert "cse run studies/ifcl_fig4c" in caught.value.next_action


@pytest.mark.process
def test_it_imports_neither_torch_nor_a_tracker(home):
    code = (
        "import sys; from cse_cli.analysis.experiments import *; from cse_cli.analysis.leaderboard import *; "
        "from cse_cli.analysis.table_view import *; "
        "print_tables(score_tables(read_finished_runs(), LeaderboardQuery(community=True))); "
        "print([name for name in ('torch', 'mlflow', 'sqlalchemy', 'transformers', 'matplotlib', 'pandas', "
        "'scipy.stats') if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.split("\n")[-2] == "[]"


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--community",), ("--table", "ifcl/1", "--wide")])
def test_the_last_row_is_word_overlap(run, options):
    overlap = {name: {"spearman": 50.0 + place} for place, name in enumerate(STS_TASKS)}
    done = run(*options, "--format", "json", results=[result(word_overlap=overlap)])
    rows = [table["rows"][-1] for table in shown(done) if {row["source"] for row in table["rows"]} & {"measured"}]
    means = [[score["mean"] for score in row["scores"].values()] for row in rows if row["source"] == "baseline"]
    assert means == [[50, 51, 52, 53, 54, 55, 56, 53]]
    lines = run(*options, results=[result(word_overlap=overlap)]).stdout.splitlines()
    assert len([line for line in lines if line.strip().startswith("word overlap") and "53.00" in line]) == 1
