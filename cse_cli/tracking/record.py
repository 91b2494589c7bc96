"""What the tracking store has of a run beside metrics, kept in the run's folder too: a lost database loses no run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from mlflow import MlflowClient
from mlflow.entities import Param
from mlflow.entities.logged_model_status import LoggedModelStatus
from mlflow.exceptions import MlflowException
from mlflow.store.tracking.dbmodels.models import SqlLoggedModel, SqlLoggedModelParam, SqlRun
from pydantic import ConfigDict, Field, ValidationError

from cse_cli.core import run_folder
from cse_cli.core.checksums import Checked
from cse_cli.core.paths import runs
from cse_cli.core.results import Result
from cse_cli.tracking import location, tags
from cse_cli.tracking.logged_model import KIND, SavedModel, legal_model_name
from cse_cli.tracking.store import Store
from cse_cli.tracking.unsent import Change, Unsent
from registry.errors import CseError
from registry.paths import write_atomically

FILE = "record.json"
"""Of a run's folder."""
_MODEL_OF = re.compile(r"^run_id: (\w+)$", re.MULTILINE)


class RunRecord(Checked):
    """A run as its folder has it; `metrics.jsonl` beside it has the metrics.

    Args:
        store: Name of the tracking store that has it (`location.kept`), without a password.
        experiment: Name of the experiment that it is in.
        name: Of the run.
        started: When, in milliseconds.
        params: As the store has them.
        change: All that was recorded since. Folders below the run's own are relative to that.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = 1
    store: str
    experiment: str
    name: str
    started: int
    params: dict[str, str] = Field(default_factory=dict)
    change: Change = Change()

    def write(self, run_id: str) -> None:
        """Write it into the folder of its run."""
        write_atomically(runs() / run_id / FILE, self.to_json())

    def put_back(self, store: Store, run_id: str, model_id: str | None) -> None:
        """Make the run in a store that lacks it, or complete one that was cut off; what is there already stays."""
        place = store.experiment(self.experiment)
        if _status(store.client, run_id) is None:
            _insert_run(store, run_id, self, place)
        values = [Param(key, value) for key, value in self.params.items()]
        if values:
            store.client.log_batch(run_id, params=values)
        Unsent(run_id).send_metrics(store.client)
        change = self._with_folders(run_id)
        if change.model is not None and model_id is not None:
            _insert_model(store, run_id, model_id, change.model, place, self.started)
        change.send(store.client, run_id)

    def is_in(self, client: MlflowClient, run_id: str) -> bool:
        """Tell whether a store has the run, ended as it has."""
        status = _status(client, run_id)
        return status is not None and self.change.status in (None, status)

    def _with_folders(self, run_id: str) -> Change:
        """Return the changes with absolute folders, without those that are no longer there."""
        own, model = runs() / run_id, self.change.model
        folders = {name: path for name, each in self.change.folders.items() if (path := own / each).is_dir()}
        if model is not None:
            model = model.model_copy(update={"folder": own / model.folder})
        kept = model if model is not None and model.folder.is_dir() else None
        return self.change.model_copy(update={"folders": folders, "model": kept})


def add(run_id: str, change: Change) -> None:
    """Keep a change in the run's folder too, where its record has been begun: 1 ms of a processor for one of 21 kB."""
    if (record := read(run_id)) is None:
        return
    own, model = runs() / run_id, change.model
    folders = {name: _relative(path, own) for name, path in change.folders.items()}
    if model is not None:
        model = model.model_copy(update={"folder": _relative(model.folder, own)})
    new = record.change.then(change.model_copy(update={"folders": folders, "model": model}))
    record.model_copy(update={"change": new}).write(run_id)


def read(run_id: str) -> RunRecord | None:
    """Return what a run's folder says; None where it says nothing that this version reads."""
    try:
        return RunRecord.model_validate_json((runs() / run_id / FILE).read_bytes())
    except (OSError, ValidationError):
        return None


def all_records() -> Iterator[tuple[str, RunRecord]]:
    """Yield the id and the record of every run that has a folder, those of earlier versions included, oldest first."""
    found = [(path.name, read(path.name) or _of_earlier_version(path.name)) for path in runs().glob("*")]
    known = [(run_id, record) for run_id, record in found if record is not None]
    yield from sorted(known, key=lambda each: each[1].started)


def known_models() -> dict[str, str]:
    """Return run → the logged model that it has made, by the models' own files."""
    files = location.artifacts().glob("models/*/artifacts/MLmodel")
    texts = ((file.read_text(encoding="utf-8", errors="replace"), file) for file in files if file.is_file())
    found = ((_MODEL_OF.search(text), file.parent.parent.name) for text, file in texts)
    return {match.group(1): model_id for match, model_id in found if match is not None}


def _of_earlier_version(run_id: str) -> RunRecord | None:
    """Return what a folder without a record tells; None of a search's trial, which was to be no result."""
    try:
        folder = run_folder.find(run_id)
    except (CseError, OSError, ValueError, KeyError):
        return None
    own, name = runs() / run_id, f"{folder.recipe} seed {folder.seed}"
    about = {tags.RECIPE: folder.recipe, tags.SEED: str(folder.seed), "recipe": folder.recipe, "seed": str(folder.seed)}
    started = Unsent(run_id).first_time() or int((own / "run.json").stat().st_mtime * 1000)
    change = Change(tags=about, status="KILLED", ended=started)
    file = location.artifacts() / run_id / "artifacts" / "result.json"
    if (own / run_folder.FINISHED).exists():
        if not file.is_file() or not (own / "model").is_dir():
            return None
        text = file.read_text(encoding="utf-8")
        try:
            result = Result.model_validate_json(text)
        except ValidationError:
            return None
        ended = int(result.finished.timestamp() * 1000)
        average = {} if (mean := result.average()) is None else {tags.AVERAGE: f"{mean:.2f}"}
        of_model = {"recipe": result.recipe, "seed": str(result.seed), "encoder": result.model}
        change = Change(
            tags={**about, tags.RECIPE_HASH: result.recipe_hash, **average},
            texts={"result.json": text},
            folders={name: Path(name) for name in ("series", "figures")},
            model=SavedModel(name=name, folder=Path("model"), about=of_model),
            status="FINISHED",
            ended=ended,
        )
    return RunRecord(store=folder.store, experiment=location.EXPERIMENT, name=name, started=started, change=change)


def _status(client: MlflowClient, run_id: str) -> str | None:
    """Return how a run ended as a store has it; None where it has no such run."""
    try:
        return str(client.get_run(run_id).info.status)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return None


def _insert_run(store: Store, run_id: str, record: RunRecord, experiment: str) -> None:
    """Make a run under the id that it had, as `SqlAlchemyStore.create_run` does under one of its own."""
    made = SqlRun(
        run_uuid=run_id,
        name=record.name,
        experiment_id=int(experiment),
        artifact_uri=f"{_address(store, experiment)}/{run_id}/artifacts",
        user_id=record.change.tags.get("mlflow.user", ""),
        source_type="UNKNOWN",
        source_name="",
        entry_point_name="",
        source_version="",
        status="RUNNING",
        start_time=record.started,
        lifecycle_stage="active",
    )
    with store.client._tracking_client.store.ManagedSessionMaker(read_only=False) as session:
        session.add(made)
    store.client.set_tag(run_id, "mlflow.runName", record.name)


def _insert_model(store: Store, run_id: str, model_id: str, model: SavedModel, experiment: str, made: int) -> None:
    """Make a run's logged model under the id that it had; `SavedModel.send` completes it."""
    key = {"model_id": model_id, "experiment_id": int(experiment)}
    row = SqlLoggedModel(
        **key,
        name=legal_model_name(model.name),
        artifact_location=f"{_address(store, experiment)}/models/{model_id}/artifacts",
        creation_timestamp_ms=made,
        last_updated_timestamp_ms=made,
        status=LoggedModelStatus.PENDING.to_int(),
        lifecycle_stage="active",
        model_type=KIND,
        source_run_id=run_id,
    )
    about = [SqlLoggedModelParam(**key, param_key=name, param_value=value) for name, value in model.about.items()]
    with store.client._tracking_client.store.ManagedSessionMaker(read_only=False) as session:
        if session.get(SqlLoggedModel, model_id) is None:
            session.add(row)
            session.flush()
            session.add_all(about)


def _address(store: Store, experiment: str) -> str:
    return str(store.client.get_experiment(experiment).artifact_location)


def _relative(path: Path, own: Path) -> Path:
    return path.relative_to(own) if path.is_relative_to(own) else path
