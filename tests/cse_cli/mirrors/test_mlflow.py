"""What MLflow has of a run: everything that its pages show."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import yaml
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import ENDPOINT_NOT_FOUND

from cse_cli.core.identity import Identity
from cse_cli.core.results import write_series
from cse_cli.mirrors import mlflow as mirror
from cse_cli.mirrors.mlflow import legal_name
from cse_cli.mirrors.ui import sync
from cse_cli.runs.claim import open_run
from cse_cli.runs.details import settings_of
from cse_cli.runs.record import RunRecord, read_about
from tests.support.errors import refuses
from tests.support.records import recorded, result
from tests.support.trackers import all_there, client, points, there

pytestmark = pytest.mark.slow


def full(**about: Any) -> RunRecord:
    """Record a run with everything that a run records."""
    fields = {"name": "mini/ifcl_en seed 1", "group": "mini/ifcl_en", "recipe": "mini/ifcl_en", "method": "IFCL"}
    resolved = {"title": "IFCL", "train": {"steps": 3, "seed": 1}}
    record = recorded(end=None, resolved=resolved, **{**fields, **about})
    record.event("dataset", name="stsb/dev", digest="a" * 64, context="evaluation", source="stsb")
    record.file("environment.json", "{}")
    for step in (1, 2, 3):
        record.metrics({"train/loss": 1 / step}, step)
    record.event("system", values={"system/cpu_utilization_percentage": 12.5})
    fill(record)
    return record


def fill(record: RunRecord) -> None:
    """Record the scores, the files and the end of a run."""
    record.metrics({"eval/avg": 50.567, "eval/gain": 8.0}, 3)
    record.file("result.json", result().model_copy(update={"run_id": record.run_id}).to_json())
    model = record.path / "model"
    (model / "1_Pooling").mkdir(parents=True)
    (model / "1_Pooling/config.json").write_text("{}")
    (model / "modules.json").write_text("[]")
    (model / "weights").write_bytes(bytes(10_000))
    title = "mini/ifcl_en:b.c%'\"d seed 1"  # some characters are not legal
    record.event("model", name="model", title=title, about={"recipe": "mini/ifcl_en"})
    write_series({"stsb": {"gold": [1.0, 2.0]}}, record.path / "series")
    record.file("series")
    record.end("finished")


def models(run_id: str) -> list[Any]:
    run = there(run_id)
    return list(client().search_logged_models([run.info.experiment_id], f"source_run_id = '{run.info.run_id}'"))


def test_a_run_is_there_with_everything(home: Path) -> None:
    about = {"note": "A note", "seed": 1, "encoder": "mini_en", "changes": ("train.steps=3",), "tags": {"for": "paper"}}
    record = full(identity=Identity(settings="s"), **about)
    sync()
    run = there(record.run_id)
    assert (run.info.status, run.info.run_name) == ("FINISHED", "mini/ifcl_en seed 1")
    assert client().get_experiment(run.info.experiment_id).name == "mini/ifcl_en"
    assert run.data.params == {"title": "IFCL", "train.steps": "3", "train.seed": "1"}
    tags = {
        "cse.run_id": record.run_id, "for": "paper", "avg": "50.57", "cse.set": "train.steps=3", "method": "IFCL",
        "recipe": "mini/ifcl_en", "encoder": "mini_en", "seed": "1", "mlflow.note.content": "A note",
        "cse.experiment": read_about(record.run_id).experiment,
    }  # fmt: skip
    assert run.data.tags.items() >= tags.items()
    assert points(record.run_id, "train/loss") == [(1, 1.0), (2, 0.5), (3, 1 / 3)]
    assert points(record.run_id, "system/cpu_utilization_percentage") == [(0, 12.5)]
    (data,) = run.inputs.dataset_inputs
    assert (data.dataset.name, data.dataset.digest, data.tags[0].value) == ("stsb/dev", "a" * 36, "evaluation")
    files = "environment.json", "events.jsonl", "figures", "recipe.toml", "result.json", "run.toml", "series"
    assert sorted(one.path for one in client().list_artifacts(run.info.run_id)) == [*files]
    events = [json.loads(line) for line in (record.path / "events.jsonl").read_text().splitlines()]
    assert (run.info.start_time, run.info.end_time) == (int(events[0]["time"] * 1000), int(events[-1]["time"] * 1000))


def test_artifacts_are_on_the_disk_once_and_go_with_the_run(home: Path) -> None:
    import shutil

    record = full()
    sync()
    run = there(record.run_id)
    shown = Path(run.info.artifact_uri.removeprefix("file://")) / "result.json"
    assert shown.stat().st_ino == (record.path / "result.json").stat().st_ino
    shutil.rmtree(record.path)
    assert sum(file.stat().st_size for file in (home / "artifacts").rglob("*") if file.is_file()) == 0


def test_the_model_is_logged_with_scores_files_and_run() -> None:
    record = full()
    sync()
    (made,) = models(record.run_id)
    assert (made.name, str(made.status)) == ("mini-ifcl_en-b-c---d seed 1", "READY")
    assert made.params == {"recipe": "mini/ifcl_en"}
    assert {metric.key: metric.value for metric in made.metrics} == {"eval/avg": 50.567, "eval/gain": 8.0}
    assert points(record.run_id, "eval/avg") == [(3, 50.567)]
    (output,) = there(record.run_id).outputs.model_outputs
    assert (output.model_id, output.step) == (made.model_id, 3)
    files = Path(made.artifact_location.removeprefix("file://"))
    described = yaml.safe_load((files / "MLmodel").read_text())
    assert described["flavors"]["python_function"]["loader_module"] == "mlflow.sentence_transformers"
    weights = files / "model.sentence_transformer/weights"
    assert weights.stat().st_ino == (record.path / "model" / "weights").stat().st_ino


def test_mlflow_loads_the_model(tmp_path: Path) -> None:
    pytest.importorskip("sentence_transformers")
    import mlflow

    from cse_cli.mirrors.mlflow import uri
    from registry.encoders.transformer import TransformerEncoder
    from tests.support.tiny import tiny_bert

    record = recorded(end=None)
    TransformerEncoder(str(tiny_bert(tmp_path)), pooling="mean").export(record.path / "model", 32)
    record.event("model", name="model", title="run", about={})
    record.end("finished")
    sync()
    (made,) = models(record.run_id)
    mlflow.set_tracking_uri(uri())
    loaded = mlflow.sentence_transformers.load_model(f"models:/{made.model_id}")
    assert loaded.encode(["a b"]).shape[0] == 1


@pytest.mark.parametrize(
    ("end", "status"), [("finished", "FINISHED"), ("pruned", "FINISHED"), ("failed", "FAILED"), ("stopped", "KILLED")]
)
def test_ends_become_statuses(end: str, status: str) -> None:
    record = recorded(end=None)
    record.end(end, "a reason")  # type: ignore[arg-type]
    sync()
    run = there(record.run_id)
    assert (run.info.status, run.data.tags["cse.state"]) == (status, end.upper())
    assert run.data.tags["cse.reason"] == "a reason"


def test_a_lost_run_is_killed_and_runs_again_when_resumed() -> None:
    record = recorded(end=None)
    record.close()
    sync()
    assert there(record.run_id).info.status == "KILLED"
    resumed = open_run(record.run_id)
    resumed.started(0)
    sync()
    assert there(record.run_id).info.status == "RUNNING"
    resumed.end("finished")
    sync()
    assert there(record.run_id).info.status == "FINISHED"


def test_a_trial_is_below_its_search() -> None:
    parent = recorded(name="search", group="tune/queue", summary="tuning")
    child = recorded(group="tune/queue", parent=parent.run_id, search="queue", trial=3)
    sync()
    tags = there(child.run_id).data.tags
    assert (tags["mlflow.parentRunId"], tags["cse.trial"]) == (there(parent.run_id).info.run_id, "3")


def test_sent_twice_is_as_sent_once() -> None:
    record = full()
    sync()
    before = there(record.run_id)
    (record.path / "mirrors" / "mlflow.json").write_text("{")
    sync()
    after = there(record.run_id)
    assert after.to_dictionary() == before.to_dictionary()
    assert len(all_there()) == 1
    assert points(record.run_id, "train/loss") == [(1, 1.0), (2, 0.5), (3, 1 / 3)]
    assert points(record.run_id, "eval/avg") == [(3, 50.567)]
    assert len(models(record.run_id)) == len(after.outputs.model_outputs) == 1


@pytest.mark.parametrize(
    ("name", "legal"),
    [
        ("train/loss", "train/loss"),
        ("p@5", "p_at_5"),
        ("losses[0]", "losses.0"),
        ("a+b (%)", "a_b ___"),
        ("../x", "x"),
        ("a//b/./c/", "a/b/c"),
        ("größe", "größe"),
        ("", "_"),
        ("x" * 300, "x" * 250),
    ],
)
def test_names_become_legal(name: str, legal: str) -> None:
    assert legal_name(name) == legal
    if name in ("p@5", "a+b (%)", "größe"):
        record = recorded(end=None)
        record.metrics({name: 2.0}, 0)
        record.end("finished")
        sync()
        assert there(record.run_id).data.metrics == {legal: 2.0}


def test_nan_is_kept_and_infinity_is_skipped() -> None:
    record = recorded(end=None)
    record.metrics({"a": math.nan, "b": math.inf, "c": 1.0}, 4)
    record.metrics({"b": -math.inf}, 5)
    record.end("finished")
    sync()
    data = there(record.run_id).data
    assert math.isnan(data.metrics["a"])
    assert ("b" in data.metrics, data.metrics["c"]) == (False, 1.0)


def test_long_values_are_cut() -> None:
    path = "/".join(["folder"] * 90) + "/dev.tsv"
    record = recorded(end=None, resolved={"long": "x" * 7000, **{f"p{i}": "v" for i in range(150)}}, note="n" * 9000)
    record.event("dataset", name=path, digest="d", context="evaluation", source=path)
    record.end("finished")
    sync()
    run = there(record.run_id)
    assert (len(run.data.params), run.data.params["long"]) == (151, "x" * 6000)
    assert run.inputs.dataset_inputs[0].dataset.name == path[-500:]
    assert len(run.data.tags["mlflow.note.content"]) == 8000


def test_params_are_the_leaves_without_prose() -> None:
    resolved = {"title": "T", "description": "…", "tune": {"a": 1}, "train": {"lr": 1e-05, "names": ["ä"], "on": True}}
    found = settings_of(recorded(resolved=resolved).run_id)
    assert found == {"title": "T", "train.lr": "1e-05", "train.names": '["ä"]', "train.on": "true"}


def test_a_refused_record_keeps_back_no_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mirror, "_LONGEST_DATASET", 1000)
    record = recorded(end=None)
    record.metrics({"loss": 1.0}, 1)
    record.event("dataset", name="x" * 501, digest="d", context="evaluation", source="x")
    record.event("dataset", name="stsb", digest="d", context="test", source="stsb")
    record.metrics({"loss": 2.0}, 2)
    record.end("finished")
    sync()
    run = there(record.run_id)
    assert ([one.dataset.name for one in run.inputs.dataset_inputs], run.info.status) == (["stsb"], "FINISHED")
    assert points(record.run_id, "loss") == [(1, 1.0), (2, 2.0)]
    said = capsys.readouterr().err
    assert said.count("warning") == said.count("exceeds the maximum length of 500 characters") == 1


def test_a_run_that_was_deleted_there_stays_deleted(capsys: pytest.CaptureFixture[str]) -> None:
    record = recorded(end=None, group="g")
    sync()
    run = there(record.run_id)
    client().rename_experiment(run.info.experiment_id, "renamed")
    client().delete_run(run.info.run_id)
    record.metrics({"loss": 1.0}, 1)
    record.end("finished")
    sync()
    assert capsys.readouterr().out.endswith("mlflow: up to date\n")
    client().restore_run(run.info.run_id)
    sync()
    assert there(record.run_id).info.run_id == run.info.run_id
    assert points(record.run_id, "loss") == [(1, 1.0)]


def test_a_new_run_of_a_deleted_experiment_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    first = recorded(group="g")
    sync()
    client().delete_experiment(there(first.run_id).info.experiment_id)
    recorded(group="g")
    with refuses("mirrors.not_sent"):
        sync()
    assert "must be in the 'active' state" in capsys.readouterr().out


def test_a_server_older_than_mlflow_3_gets_all_but_the_model(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = MlflowException("no such endpoint", error_code=ENDPOINT_NOT_FOUND)
    monkeypatch.setattr(MlflowClient, "search_logged_models", Mock(side_effect=missing))
    record = full()
    sync()
    assert there(record.run_id).info.status == "FINISHED"
    assert "(model): no such endpoint" in capsys.readouterr().err


def test_only_the_public_interface_of_mlflow_is_used() -> None:
    import re

    code = "".join(file.read_text() for file in Path(mirror.__file__).parent.glob("*.py"))
    assert re.findall(r"client\)?\._\w+|mlflow[\w.]*\._\w+|dbmodels|SqlRun|(?:SELECT|UPDATE|INSERT) .*", code) == []
