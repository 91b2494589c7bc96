"""A run's model in MLflow: in the Models tab, on the disk once, read by MLflow's loaders."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import mlflow
import pytest
import yaml
from mlflow.exceptions import MlflowException

from cse_cli import tracking
from cse_cli.tracking.logged_model import SavedModel, legal_model_name
from cse_cli.tracking.mlflow_tracker import MlflowTracker
from cse_cli.tracking.reader import details
from cse_cli.tracking.store import Store
from cse_cli.tracking.unsent import sync
from tests.cse_cli.tracking.stores import Flaky, points


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    (folder / "1_Pooling").mkdir(parents=True)
    (folder / "1_Pooling/config.json").write_text("{}")
    (folder / "modules.json").write_text("[]")
    (folder / "weights").write_bytes(bytes(10_000))
    return folder


def logged(store: Store, run_id: str) -> list[Any]:
    return list(store.client.search_logged_models(list(store.experiments()), f"source_run_id = '{run_id}'"))


def test_a_model_is_logged_with_scores_files_and_run(store: Store, model: Path) -> None:
    tracker = tracking.start("mini/ifcl_en seed 0", {}, {})
    tracker.metrics({"train/loss": 1.0}, 60)
    tracker.metrics({"eval/avg": 50.5, "eval/gain": 8.0}, 60)
    tracker.model(model, "mini/ifcl_en seed 0", {"recipe": "mini/ifcl_en"})
    tracker.finish("FINISHED")
    (made,) = logged(store, tracker.run_id)
    assert (made.name, str(made.status)) == ("mini-ifcl_en seed 0", "READY")
    assert made.params == {"recipe": "mini/ifcl_en"}
    assert {metric.key: metric.value for metric in made.metrics} == {"eval/avg": 50.5, "eval/gain": 8.0}
    assert points(store.client, tracker.run_id, "eval/avg") == [(60, 50.5)]
    assert details(tracker.run_id).models == [f"models:/{made.model_id}"]

    there = Path(made.artifact_location.removeprefix("file://"))
    described = yaml.safe_load((there / "MLmodel").read_text())
    assert described["flavors"]["python_function"]["loader_module"] == "mlflow.sentence_transformers"
    weights = there / "model.sentence_transformer/weights"
    assert weights.stat().st_ino == (model / "weights").stat().st_ino


def test_a_model_refused_is_sent_later_even_if_the_run_s_folder_has_gone(
    store: Store, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = tracking.start("run", {}, {}).run_id
    flaky = Flaky(store.client)
    tracker = MlflowTracker(Store(store.uri, cast(Any, flaky)), run_id)
    flaky.down = True
    tracker.metrics({"eval/avg": 1.0}, 1)
    tracker.model(model, "run", {})
    tracker.finish("FINISHED")
    for file in model.rglob("*"):
        if file.is_file():
            file.unlink()
    (sent,) = sync()
    assert sent.refused is None
    (made,) = logged(store, run_id)
    there = Path(made.artifact_location.removeprefix("file://"))
    assert (there / "model.sentence_transformer/weights").stat().st_size == 10_000
    assert points(store.client, run_id, "eval/avg") == [(1, 1.0)]


def test_sent_twice_it_is_one(store: Store, model: Path) -> None:
    tracker = tracking.start("run", {}, {})
    tracker.metrics({"eval/avg": 1.0}, 1)
    tracker.flush()
    run_id, saved = tracker.run_id, SavedModel(name="run", folder=model, about={"a": "1"})
    for _ in range(2):
        saved.send(store.client, run_id)
    (made,) = logged(store, run_id)
    assert len(store.client.get_run(run_id).outputs.model_outputs) == 1
    assert points(store.client, run_id, "eval/avg") == [(1, 1.0)]
    assert made.params == {"a": "1"}


def test_a_server_older_than_mlflow_3_gets_it_as_an_artifact(store: Store, model: Path) -> None:
    class Old:
        def __getattr__(self, name: str) -> Any:
            if "logged_model" in name:
                raise MlflowException("no such endpoint", error_code=_endpoint_not_found())
            return getattr(store.client, name)

    run_id = tracking.start("run", {}, {}).run_id
    SavedModel(name="run", folder=model, about={}).send(cast(Any, Old()), run_id)
    assert [file.path for file in store.client.list_artifacts(run_id)] == ["model"]


def _endpoint_not_found() -> int:
    from mlflow.protos.databricks_pb2 import ENDPOINT_NOT_FOUND

    return int(ENDPOINT_NOT_FOUND)


@pytest.mark.parametrize(("name", "legal"), [("mini/ifcl_en seed 0", "mini-ifcl_en seed 0"), ("a:b.c%'\"", "a-b-c---")])
def test_names_become_legal(store: Store, name: str, legal: str) -> None:
    assert legal_model_name(name) == legal
    place = store.experiment("cse")
    assert store.client.create_logged_model(place, legal).name == legal


def test_mlflow_loads_it(store: Store, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sentence_transformers")
    from registry.encoders.transformer import TransformerEncoder
    from tests.tiny import tiny_bert

    TransformerEncoder(str(tiny_bert(tmp_path)), pooling="mean").export(tmp_path / "saved", 32)
    tracker = tracking.start("run", {}, {})
    tracker.model(tmp_path / "saved", "run", {})
    tracker.finish("FINISHED")
    mlflow.set_tracking_uri(store.uri)
    loaded = mlflow.sentence_transformers.load_model(details(tracker.run_id).models[0])
    assert loaded.encode(["a b"]).shape[0] == 1
