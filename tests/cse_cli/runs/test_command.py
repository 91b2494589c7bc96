"""`cse runs`: what is printed, into a terminal's table, a pipe and a program."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from cse_cli import tracking
from cse_cli.tracking import command
from cse_cli.tracking import view as render_runs
from cse_cli.tracking.store import Store
from cse_cli.tracking.unsent import Change, Unsent
from cse_cli.tracking.view import sparkline
from registry.errors import CseError
from tests.cse_cli.tracking.stores import fresh_store, killed, result


@pytest.fixture
def store(home: Path) -> Store:
    return fresh_store(home)


@pytest.fixture
def app() -> typer.Typer:
    app = typer.Typer()
    app.add_typer(command.app, name="runs")
    app.command("other")(lambda: None)
    return app


@pytest.fixture
def run_id(store: Store) -> str:
    tracker = tracking.start("[b]mini[/b] seed 1", {"train.steps": "3"}, {"cse.recipe": "mini/simcse_en"})
    for step in (1, 2, 3):
        tracker.metrics({"train/loss": 4.0 - step, "nan": math.nan}, step)
    tracker.text("result.json", result(recipe="[b]mini[/b]").model_dump_json())
    tracker.finish("FINISHED")
    return tracker.run_id


def call(app: typer.Typer, *arguments: str) -> str:
    answer = CliRunner().invoke(app, ["runs", *arguments], catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    return answer.stdout


def test_a_pipe_gets_tab_separated_lines_with_whole_ids(app: typer.Typer, run_id: str) -> None:
    head, line = call(app, "ls").strip().split("\n")
    found = dict(zip(head.split("\t"), [*line.split("\t"), ""], strict=False))
    assert found["run"] == run_id
    assert (found["recipe"], found["seed"], found["status"]) == ("[b]mini[/b]", "1", "FINISHED")
    assert (found["dev"], found["test avg"], found["seconds"]) == ("70.00", "62.00", "12.5")


def test_a_terminal_gets_a_table(
    run_id: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from cse_cli.tracking.listing import RunQuery

    monkeypatch.setattr(render_runs.sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")  # 80 columns, no colours
    render_runs.print_runs(RunQuery().lines())
    out = capsys.readouterr().out
    assert run_id[:8] in out
    assert run_id not in out
    assert "[b]mini[/b]" in out
    assert max(len(line) for line in out.split("\n")) <= 80


def test_a_program_gets_one_document(app: typer.Typer, run_id: str) -> None:
    document = json.loads(call(app, "ls", "--json"))
    assert document["schema_version"] == 2
    (run,) = document["runs"]
    assert (run["run_id"], run["dev"], run["test"], run["status"]) == (run_id, 70.0, 62.0, "FINISHED")


def test_no_store_is_an_empty_list_and_a_hint(app: typer.Typer, home: Path) -> None:
    answer = CliRunner().invoke(app, ["runs", "ls", "--json"])
    assert json.loads(answer.stdout) == {"schema_version": 2, "runs": []}
    assert "cse run quickstart" in answer.stderr
    assert not home.exists()


def test_show_prints_scores_curves_parameters_and_files(app: typer.Typer, run_id: str) -> None:
    out = call(app, "show", run_id[:6])
    assert "[b]mini[/b] seed 1" in out
    assert "spearman 61.00" in out
    assert "train/loss  █▅▁  3 → 1  (3 points)" in out
    assert "×××" in out
    assert "train.steps  3" in out
    assert "result.json" in out
    assert "mlflow." not in out.replace("mlflow.db", "")


def test_show_as_json_is_strict_and_complete(app: typer.Typer, run_id: str) -> None:
    def refuse(constant: str) -> None:
        pytest.fail(f"{constant} is not JSON")

    run = json.loads(call(app, "show", run_id, "--json"), parse_constant=refuse)["run"]
    assert run["curves"]["train/loss"] == [[1, 3.0], [2, 2.0], [3, 1.0]]
    assert run["curves"]["nan"] == [[1, None], [2, None], [3, None]]
    assert run["result"]["scores"]["stsb"] == {"spearman": 61.004}
    assert run["params"] == {"train.steps": "3"}


def test_close_and_sync_say_what_they_did(app: typer.Typer, store: Store) -> None:
    run_id = killed(tracking.start("run", {}, {}))
    assert call(app, "close", run_id[:8]) == f"{run_id[:8]} run: KILLED\n"
    assert call(app, "sync") == "nothing is waiting\n"
    Unsent(run_id).keep(store.uri, Change(tags={"late": "yes"}))
    assert "cse runs sync" in CliRunner().invoke(app, ["runs", "ls"]).stderr
    assert call(app, "sync") == f"{run_id[:8]}: 1 records sent\n"
    assert store.client.get_run(run_id).data.tags["late"] == "yes"


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["runs", "show", "nope"], 2, "no run 'nope'"),
        (["runs", "close", "nope"], 2, "no run 'nope'"),
        (["runs", "sync"], 4, "not everything could be sent"),
    ],
)
def test_errors_are_one_message_and_the_right_code(
    app: typer.Typer, store: Store, arguments: list[str], code: int, says: str
) -> None:
    Unsent("f" * 32).keep("http://127.0.0.1:9", Change(tags={"a": "b"}))
    error = CliRunner().invoke(app, arguments).exception
    assert isinstance(error, CseError)
    assert error.exit_code == code
    assert says in error.message


def test_sparklines_show_shape_and_length() -> None:
    assert sparkline([]) == ""
    assert sparkline([1.0]) == "▁"
    assert sparkline([2.0, 2.0]) == "▁▁"
    assert sparkline([0.0, 7.0, math.nan, math.inf]) == "▁█××"
    assert sparkline([float(i) for i in range(1000)], width=8) == "▁▂▃▄▅▆▇█"
