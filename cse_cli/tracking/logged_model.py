"""A run's model as a "logged model" of MLflow 3: in the pages' Models tab, with its scores, files and run.

Its files are those that the run saved, below `model.sentence_transformer`, where MLflow's loaders look for them.
`mlflow.sentence_transformers.log_model` would load the model to save it again: 1.1 s, and a second copy.
"""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory

from mlflow import MlflowClient
from mlflow.entities import LoggedModel, LoggedModelOutput, Metric, Run
from mlflow.exceptions import MlflowException
from mlflow.models import Model
from pydantic import BaseModel, ConfigDict

from cse_cli.tracking.files import link_folder, local_folder

DATA = "model.sentence_transformer"
"""Folder of a logged model's artifacts, as MLflow's flavour calls it."""
KIND = "sentence encoder"
SCORES = "eval/"
"""How the names of those metrics of a run begin that are its model's too."""
_OLD_FOLDER = "model"


class SavedModel(BaseModel):
    """A model that a run has saved.

    Args:
        name: What lists call it.
        folder: Where it lies on this machine.
        about: Shown as its parameters.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    folder: Path
    about: dict[str, str]

    def send(self, client: MlflowClient, run_id: str) -> None:
        """Make the logged model, with the scores that the run has; what an interrupted call has left is completed.

        A server older than MLflow 3 gets the files as the run's artifact "model".
        """
        run = client.get_run(run_id)
        try:
            made = next(iter(models_of(client, run)), None) or client.create_logged_model(
                run.info.experiment_id, legal_model_name(self.name), run_id, params=self.about, model_type=KIND
            )
        except MlflowException as error:
            if error.error_code != "ENDPOINT_NOT_FOUND":
                raise
            client.log_artifacts(run_id, str(self.folder), _OLD_FOLDER)
            return
        self._put_files(client, run_id, made)
        # The run's own, to the millisecond: they are written for the run as well, which keeps one of each.
        scores = [one for one in run.data._metric_objs if one.key.startswith(SCORES)]
        points = [Metric(one.key, one.value, one.timestamp, one.step, made.model_id) for one in scores]
        if points:
            client.log_batch(run_id, metrics=points)
        if run.outputs is None or not run.outputs.model_outputs:
            client.log_outputs(run_id, [LoggedModelOutput(made.model_id, max((p.step for p in points), default=0))])
        client.finalize_logged_model(made.model_id, "READY")

    def _put_files(self, client: MlflowClient, run_id: str, made: LoggedModel) -> None:
        with TemporaryDirectory() as temporary:
            folder = local_folder(made.artifact_location) or Path(temporary)
            if folder == Path(temporary):
                client.log_model_artifacts(made.model_id, str(self.folder), DATA)
            else:
                link_folder(self.folder, folder / DATA)
            if (self.folder / "modules.json").exists():  # sentence-transformers can read it
                text = _describe(run_id, made.model_id)
                (folder / "MLmodel").write_text(text, encoding="utf-8")
                if folder == Path(temporary):
                    client.log_model_artifact(made.model_id, str(folder / "MLmodel"))


def models_of(client: MlflowClient, run: Run) -> list[LoggedModel]:
    """Return the logged models that a run has made; a server older than MLflow 3 has none."""
    try:
        return list(client.search_logged_models([run.info.experiment_id], f"source_run_id = '{run.info.run_id}'"))
    except MlflowException as error:
        if error.error_code != "ENDPOINT_NOT_FOUND":
            raise
        return []


def legal_model_name(name: str) -> str:
    """Return the nearest name that MLflow takes for a model: "mini/ifcl_en seed 0" → "mini-ifcl_en seed 0"."""
    return re.sub(r"[/:.%\"']", "-", name) or "model"


def _describe(run_id: str, model_id: str) -> str:
    """Return the file by which MLflow's loaders know how to read a model."""
    described = Model(run_id=run_id, model_id=model_id)
    described.add_flavor("sentence_transformers", code=None)
    described.add_flavor("python_function", loader_module="mlflow.sentence_transformers", data=DATA)
    text: str = described.to_yaml()
    return text
