"""`cse leaderboard` from its arguments to what it writes."""

import json
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from cse_cli.analysis import command
from cse_cli.analysis.leaderboard import FinishedRuns
from cse_cli.core.identity import Identity
from cse_cli.core.results import STS_TASKS
from registry.errors import UnknownNameError
from tests.cse_cli.analysis.leaderboard_runs import mini, result
from tests.support.errors import refuses


@pytest.fixture
def run(monkeypatch):
    found = []
    monkeypatch.setattr(
        "cse_cli.analysis.leaderboard.read_finished_runs", lambda: FinishedRuns(found, status="current")
    )
    app = typer.Typer()
    app.callback()(lambda: None)
    app.command("leaderboard")(command.leaderboard)

    def invoke(*arguments, results=()):
        found[:] = results
        return CliRunner().invoke(app, ["leaderboard", *arguments], catch_exceptions=False)

    return invoke


def shown(done):
    return json.loads(done.stdout)["tables"]


def ours(done):
    return {row["recipe"] for table in shown(done) for row in table["rows"] if row["source"] == "measured"}


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


def test_without_runs_the_filters_hold_too(run):
    assert {table["encoder"] for table in shown(run("--format", "json", "--encoder", "roberta-base"))} == {
        "roberta-base"
    }
    chinese = shown(run("--format", "json", "--language", "zh"))
    assert {table["language"] for table in chinese} == {"zh"}
    assert {table["paper"] for table in shown(run("--format", "json", "--paper", "conisi"))} == {"conisi"}
    assert shown(run("--format", "json", "--recipe", "ifcl_en")) == []


def test_the_community_list_needs_no_runs(run):
    done = run("--format", "json", "--community")
    lists = ["community", "recent", "llm_data", "labels"]
    encoders = ["bert-base", "bert-large", "roberta-base", "roberta-large"]
    found = [(table["table"], table["encoder"]) for table in shown(done)]
    assert found == [(name, encoder) for name in lists for encoder in encoders]
    assert {table["kind"] for table in shown(done)} == {"community"}
    assert {row["source"] for table in shown(done) for row in table["rows"]} == {"community"}
    assert not [
        row for table in shown(run("--format", "json")) for row in table["rows"] if row["source"] == "community"
    ]


def test_the_community_list_with_an_unlisted_encoder(run):
    found = shown(run("--format", "json", "--community", results=[result(), mini()]))
    assert [table["kind"] for table in found] == ["community"] * 16 + ["encoder"]
    assert ours(run("--format", "json", "--community", results=[result(), mini()])) == {"ifcl_en", "mini/ifcl_en"}


def test_filters_of_the_community_list(run):
    def encoders(*arguments):
        return [table["encoder"] for table in shown(run("--format", "json", "--community", *arguments, results=found))]

    found = [result(), mini(), result(language="zh", recipe="other", recipe_hash="c" * 16, paper=None, model="zh")]
    assert encoders("--encoder", "roberta-large") == ["roberta-large"] * 4
    assert encoders("--encoder", "mini_en") == ["mini_en"]
    assert encoders("--recipe", "ifcl_en") == ["bert-base"]
    assert encoders("--language", "zh") == ["zh"]


def test_filters(run):
    found = [result(), mini(), result(language="zh", recipe="other", recipe_hash="c" * 16, paper=None)]
    assert ours(run("--format", "json", "--recipe", "mini/ifcl_en", results=found)) == {"mini/ifcl_en"}
    assert ours(run("--format", "json", "--language", "zh", results=found)) == {"other"}
    assert ours(run("--format", "json", "--encoder", "mini_en", results=found)) == {"mini/ifcl_en"}
    assert ours(run("--format", "json", results=found)) == {"mini/ifcl_en", "other", "ifcl_en"}


def test_a_papers_own_tables(run):
    one = shown(run("--format", "json", "--table", "ifcl/2", results=[result()]))
    assert [(table["paper"], table["table"], table["kind"]) for table in one] == [("ifcl", "ablation", "table")]
    every = shown(run("--format", "json", "--paper", "ifcl", results=[result()]))
    assert {table["table"] for table in every} >= {"sts_en"}
    assert all(any(row["source"] == "measured" for row in table["rows"]) for table in every)


def test_the_rows_of_one_encoder_in_a_papers_table(run):
    done = run("--format", "json", "--table", "ifcl/1", "--encoder", "bert-large", results=[result()])
    (table,) = shown(done)
    assert {row["model"] for row in table["rows"]} == {"bert-large"}


def test_a_page_is_written_and_nothing_else(run, tmp_path):
    path = tmp_path / "board.html"
    done = run("--html", str(path), results=[result(), mini()])
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == f"{path}: 2 tables\n"
    assert path.read_text(encoding="utf-8").count("<table") == 2


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--table", "ifcl/queue_lenght"), "Did you mean 'queue_length'"),
        (("--table", "iflc/5"), "Did you mean 'ifcl'"),
        (("--paper", "iflc"), "Did you mean 'ifcl'"),
        (("--recipe", "mini/simcse_enn"), "Did you mean 'mini/simcse_en'"),
        (("--recipe", "nothing.toml"), "--recipe 'nothing.toml'"),
        (("--paper", ""), "unknown paper ''"),
        (("--table", "ifcl/²"), "no table '²'"),
    ],
)
def test_unknown_names_suggest_the_nearest(run, arguments, error):
    with pytest.raises(UnknownNameError, match=error):
        run(*arguments, results=[result()])


def test_a_folder_is_no_page(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with refuses("leaderboard.cannot_write", "Is a directory"):
        run("--html", "", results=[result()])


def test_a_figure_is_refused_with_what_draws_it(run):
    with refuses("leaderboard.figure", "ifcl/fig4c") as caught:
        run("--table", "ifcl/fig4c")
    assert "cse run studies/ifcl_fig4c" in caught.value.next_action


@pytest.mark.process
def test_it_imports_neither_torch_nor_a_tracker(home):
    code = (
        "import sys; from cse_cli.analysis.leaderboard import *; from cse_cli.analysis.leaderboard_view import *; "
        "print_tables(score_tables(read_finished_runs(), LeaderboardQuery(community=True))); "
        "print([name for name in ('torch', 'mlflow', 'sqlalchemy', 'transformers', 'matplotlib', 'pandas', "
        "'scipy.stats') if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.split("\n")[-2] == "[]"


def test_pooled_settings_are_asked_for(run):
    results = [mini(seed, identity=Identity(settings="a", text=str(seed))) for seed in (0, 1)]
    assert [row["seeds"] for row in shown_rows(run("--format", "json", results=results))] == [[0], [1]]
    assert [row["seeds"] for row in shown_rows(run("--format", "json", "--pool", "settings", results=results))] == [
        [0, 1]
    ]


def shown_rows(done):
    return [row for table in shown(done) for row in table["rows"] if row["source"] == "measured"]


@pytest.mark.parametrize("options", [(), ("--wide",), ("--community",), ("--table", "ifcl/1", "--wide")])
def test_the_last_row_is_word_overlap(run, options):
    overlap = {name: {"spearman": 50.0 + place} for place, name in enumerate(STS_TASKS)}
    done = run(*options, "--format", "json", results=[result(word_overlap=overlap)])
    rows = [table["rows"][-1] for table in shown(done) if {row["source"] for row in table["rows"]} & {"measured"}]
    means = [[score["mean"] for score in row["scores"].values()] for row in rows if row["source"] == "baseline"]
    assert means == [[50, 51, 52, 53, 54, 55, 56, 53]]
    lines = run(*options, results=[result(word_overlap=overlap)]).stdout.splitlines()
    assert len([line for line in lines if line.strip().startswith("word overlap") and "53.00" in line]) == 1
