"""Model of a run as a logged model of MLflow, which the Models tab shows with its scores, files and run.

MLflow's loaders expect the files in `model.sentence_transformer`. `mlflow.sentence_transformers.log_model` would load
the model and save it again, which takes 1.1 s and needs a second copy.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import LoggedModel, LoggedModelOutput, Metric, Run
from mlflow.models import Model

from cse_cli.mirrors.files import hard_link, link_folder
from cse_cli.mirrors.location import local_folder

DATA = "model.sentence_transformer"
"""Directory in a logged model's artifacts, as MLflow's flavor names it."""
_KIND = "sentence encoder"


def send_model(
    client: MlflowClient,
    run: Run,
    source: Path,
    data: Mapping[str, Any],
    files: Path | None,
    scores: Sequence[Metric],
) -> None:
    """Create the logged model of a run, or complete one that an interrupted call left.

    Args:
        client: Client of the store.
        run: The run in MLflow.
        source: Directory of the model.
        data: Fields "title" and "about" of the event: name and params of the logged model.
        files: Directory for links to the files that MLflow shows, or None for a server, which receives copies.
        scores: Final scores. They must equal the run's, because MLflow keeps one of two equal points.
    """
    run_id, place = run.info.run_id, run.info.experiment_id
    found = next(iter(client.search_logged_models([place], f"source_run_id = '{run_id}'")), None)
    made = found or client.create_logged_model(
        place, legal_model_name(data["title"]), run_id, params=dict(data["about"]), model_type=_KIND
    )
    _send_files(client, source, run_id, made, files)
    points = [Metric(one.key, one.value, one.timestamp, one.step, made.model_id) for one in scores]
    if points:
        client.log_batch(run_id, metrics=points)
    if not run.outputs.model_outputs:
        client.log_outputs(run_id, [LoggedModelOutput(made.model_id, max((one.step for one in points), default=0))])
    client.finalize_logged_model(made.model_id, "READY")


def _send_files(client: MlflowClient, source: Path, run_id: str, made: LoggedModel, files: Path | None) -> None:
    if files is not None:
        link_folder(local_folder(made.artifact_location), files)
        hard_link(source, files / DATA)
    else:
        client.log_model_artifacts(made.model_id, str(source), DATA)
    if not (source / "modules.json").exists():
        return  # sentence-transformers cannot load the model
    with TemporaryDirectory() as temporary:
        description = (files or Path(temporary)) / "MLmodel"
        description.write_text(_description(run_id, made.model_id), encoding="utf-8")
        if files is None:
            client.log_model_artifact(made.model_id, str(description))


def legal_model_name(name: str) -> str:
    """Return the nearest name that MLflow accepts for a model: "mini/ifcl_en seed 0" → "mini-ifcl_en seed 0"."""
    return re.sub(r"[/:.%\"']", "-", name) or "model"


def _description(run_id: str, model_id: str) -> str:
    described = Model(run_id=run_id, model_id=model_id)
    described.add_flavor("sentence_transformers", code=None)
    described.add_flavor("python_function", loader_module="mlflow.sentence_transformers", data=DATA)
    text: str = described.to_yaml()
    return text
