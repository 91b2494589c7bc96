"""`cse runs`: what a terminal, a pipe and a program get."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cse_cli.core.identity import Identity, Plan
from cse_cli.runs.details import sparkline
from cse_cli.runs.plans import record_plan
from cse_cli.runs.record import RunRecord, read_about
from tests.cse_cli.runs.conftest import Runs
from tests.support.records import recorded, result


@pytest.fixture
def run() -> RunRecord:
    identity = Identity(
        settings="5" * 16, text="7e" * 32, weights={"encoders.bert": "3a" * 32}, code={"losses.info_nce": "c0" * 32}
    )
    record_plan(identity.experiment, Plan(seeds=(0, 1, 2), made=datetime(2026, 11, 21, tzinfo=UTC)))
    resolved = {"title": "T", "description": "long", "train": {"steps": 3, "seed": 1}}
    record = recorded(None, None, resolved, name="[b]mini[/b] seed 1", recipe="[b]mini[/b]", seed=1, identity=identity,
                      tags={"for": "paper"}, changes=("train.steps=3",))  # fmt: skip
    for step in (1, 2, 3):
        record.metrics({"train/loss": 4.0 - step, "nan": math.nan}, step)
    record.metrics({"eval/avg": 62.0, "speed/tokens": 100.0}, 3)
    record.event("tags", values={"avg": "62.00"})
    record.event("warning", text="the batch is small")
    record.file("result.json", result(recipe="[b]mini[/b]", identity=identity).to_json())
    (record.path / "mirrors").mkdir()
    (record.path / "mirrors/mlflow.json").write_text('{"uri": "sqlite:///m.db", "id": "fedc", "offset": 3}')
    record.end("finished")
    return record


def test_a_pipe_gets_tab_separated_lines_with_whole_ids(runs: Runs, run: RunRecord) -> None:
    head, line = runs("ls")[1].strip().split("\n")
    found = dict(zip(head.split("\t"), line.split("\t"), strict=True))
    assert (found["run"], found["experiment"]) == (run.run_id, read_about(run.run_id).experiment)
    assert (found["recipe"], found["seed"], found["status"]) == ("[b]mini[/b]", "1", "FINISHED")
    assert (found["dev"], found["test avg"], found["seconds"]) == ("70.00", "62.00", "12.5")


def test_no_runs_are_an_empty_list_and_a_hint(runs: Runs, home: Path) -> None:
    code, out, err = runs("ls", "--json")
    assert (code, json.loads(out)) == (0, {"schema_version": 3, "runs": []})
    assert "cse run quickstart" in err
    assert not home.exists()


def test_show_prints_everything_about_a_run(runs: Runs, run: RunRecord) -> None:
    code, out, _ = runs("show", run.run_id[:6], "--all")
    assert code == 0
    lines = [line.strip() for line in out.splitlines()]
    assert "[b]mini[/b] seed 1" in lines[0]
    assert "stsb      spearman 61.00" in lines
    assert "train/loss  █▅▁  3 → 1  (3 points)" in lines
    assert any("×××" in line for line in lines)
    assert "train.steps  3" in lines
    assert {"speed/tokens  100", "for  paper", "avg  62.00", "result.json", "the batch is small"} <= set(lines)
    assert not any(line.startswith(("eval/avg", "description")) for line in lines)
    named = {" ".join(line.split()) for line in lines}
    assert {"text 7e7e7e7e", "weights of encoders.bert 3a3a3a3a", "code of losses.info_nce c0c0c0c0"} <= named
    assert any(line.startswith("planned seeds 0–2, 2026-11-21") for line in named)
    assert "mlflow fedc at sqlite:///m.db" in named


def test_show_without_all_is_short(runs: Runs, run: RunRecord) -> None:
    lines = [line.strip() for line in runs("show", run.run_id[:6])[1].splitlines()]
    assert {"stsb      spearman 61.00", "the batch is small", "for  paper"} <= set(lines)
    assert any(line.startswith("train/loss") for line in lines)
    assert not {"settings", "experiment", "metrics"} & set(lines)
    assert lines[-1].endswith(f"cse runs show {run.run_id[:8]} --all")


def test_show_prints_an_early_stop(runs: Runs) -> None:
    stop = {"step": 50, "best_step": 30, "evaluations": 2, "metric": "dev.spearman"}
    record = recorded(result(early_stop=stop))
    out = runs("show", record.run_id)[1]
    assert "stopped early at step 50: no better dev.spearman in 2 evaluations since step 30" in out.splitlines()


def test_show_as_json_is_strict_and_complete(runs: Runs, run: RunRecord) -> None:
    def refuse(constant: str) -> None:
        pytest.fail(f"{constant} is not JSON")

    document = json.loads(runs("show", run.run_id, "--json")[1], parse_constant=refuse)
    assert document["schema_version"] == 3
    shown = document["run"]
    assert shown["curves"]["train/loss"] == [[1, 3.0], [2, 2.0], [3, 1.0]]
    assert shown["curves"]["nan"] == [[1, None], [2, None], [3, None]]
    assert shown["result"]["scores"]["stsb"] == {"spearman": 61.004}
    assert shown["settings"] == {"title": "T", "train.steps": "3", "train.seed": "1"}
    assert shown["about"]["identity"]["code"] == {"losses.info_nce": "c0" * 32}
    assert (shown["tags"], shown["recorded_tags"]) == ({"for": "paper"}, {"avg": "62.00"})
    assert shown["mirrors"]["mlflow"]["id"] == "fedc"


def test_show_of_a_run_that_has_almost_nothing(runs: Runs) -> None:
    record = recorded(end=None, summary="tuning", name="search")
    record.close()
    (record.path / "events.jsonl").unlink()
    (record.path / "mirrors").mkdir()
    (record.path / "mirrors/mlflow.json").write_text("[")
    code, out, _ = runs("show", "search")
    assert (code, "LOST" in out) == (0, True)
    assert json.loads(runs("show", "search", "--json")[1])["run"]["settings"] == {}


def test_sparklines_show_shape_and_length() -> None:
    assert sparkline([]) == ""
    assert sparkline([1.0]) == "▁"
    assert sparkline([2.0, 2.0]) == "▁▁"
    assert sparkline([0.0, 7.0, math.nan, math.inf]) == "▁█××"
    assert sparkline([float(i) for i in range(1000)], width=8) == "▁▂▃▄▅▆▇█"
