"""A run's model as a "logged model" of MLflow: in the Models tab of its pages, with scores, files and run.

Its files are those that the run saved, in `model.sentence_transformer`, where MLflow's loaders look for them.
`mlflow.sentence_transformers.log_model` would load the model to save it again: 1.1 s, and a second copy.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from mlflow import MlflowClient
from mlflow.entities import LoggedModel, LoggedModelOutput, Metric
from mlflow.exceptions import MlflowException
from mlflow.models import Model

from cse_cli.mirrors.files import hard_link, link_folder
from cse_cli.mirrors.location import local_folder

DATA = "model.sentence_transformer"
"""Directory in a logged model's artifacts, as MLflow's flavor names it."""
_KIND = "sentence encoder"


@dataclass(frozen=True)
class SavedModel:
    """A model that a run has saved.

    Args:
        folder: Directory of the model.
        title: Name of the logged model.
        about: Its params.
    """

    folder: Path
    title: str
    about: Mapping[str, str]

    def send(self, client: MlflowClient, run: tuple[str, str], files: Path | None, scores: Sequence[Metric]) -> None:
        """Create the logged model of a run, or complete one that an interrupted call left.

        Args:
            client: Client of the store.
            run: ID of the run, and of its experiment.
            files: Directory for links to the files that MLflow shows, or None for a server, which gets copies.
            scores: Final scores, equal to the run's: for the run, MLflow keeps one of two equal points.
        """
        run_id, place = run
        try:
            found = next(iter(client.search_logged_models([place], f"source_run_id = '{run_id}'")), None)
            made = found or client.create_logged_model(
                place, legal_model_name(self.title), run_id, params=dict(self.about), model_type=_KIND
            )
        except MlflowException as error:
            if error.error_code != "ENDPOINT_NOT_FOUND":
                raise
            client.log_artifacts(run_id, str(self.folder), "model")  # a server older than MLflow 3
            return
        self._send_files(client, run_id, made, files)
        points = [Metric(one.key, one.value, one.timestamp, one.step, made.model_id) for one in scores]
        if points:
            client.log_batch(run_id, metrics=points)
        if found is None or not client.get_run(run_id).outputs.model_outputs:
            client.log_outputs(run_id, [LoggedModelOutput(made.model_id, max((one.step for one in points), default=0))])
        client.finalize_logged_model(made.model_id, "READY")

    def _send_files(self, client: MlflowClient, run_id: str, made: LoggedModel, files: Path | None) -> None:
        readable = (self.folder / "modules.json").exists()  # sentence-transformers can read it
        if files is not None:
            link_folder(local_folder(made.artifact_location), files)
            hard_link(self.folder, files / DATA)
            if readable:
                (files / "MLmodel").write_text(_description(run_id, made.model_id), encoding="utf-8")
            return
        client.log_model_artifacts(made.model_id, str(self.folder), DATA)
        if readable:
            with TemporaryDirectory() as temporary:
                (file := Path(temporary, "MLmodel")).write_text(_description(run_id, made.model_id), encoding="utf-8")
                client.log_model_artifact(made.model_id, str(file))


def legal_model_name(name: str) -> str:
    """Return the nearest name that MLflow accepts for a model: "mini/ifcl_en seed 0" → "mini-ifcl_en seed 0"."""
    return re.sub(r"[/:.%\"']", "-", name) or "model"


def _description(run_id: str, model_id: str) -> str:
    """Return the file that MLflow's loaders read first."""
    described = Model(run_id=run_id, model_id=model_id)
    described.add_flavor("sentence_transformers", code=None)
    described.add_flavor("python_function", loader_module="mlflow.sentence_transformers", data=DATA)
    text: str = described.to_yaml()
    return text
