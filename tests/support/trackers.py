"""Trackers for tests: one in memory that fails at will, and what MLflow has of a run."""

import threading
from collections.abc import Sequence
from typing import Any, ClassVar

from mlflow import MlflowClient
from mlflow.entities import Run

from cse_cli.mirrors.mirror import Mirror, State
from cse_cli.mirrors.mlflow import uri
from cse_cli.runs.events import Event


class Memory(Mirror):
    """Keeps events in memory. The class is the tracker."""

    name = "memory"
    down: ClassVar[bool] = False
    answers_lost: ClassVar[bool] = False
    hangs: ClassVar[threading.Event | None] = None
    deleted: ClassVar[set[str]] = set()
    events: ClassVar[dict[str, list[Event]]] = {}
    parents: ClassVar[dict[str, str]] = {}
    calls: ClassVar[int] = 0

    @classmethod
    def reset(cls) -> None:
        cls.down = cls.answers_lost = False
        cls.hangs, cls.deleted, cls.events, cls.parents, cls.calls = None, set(), {}, {}, 0

    @classmethod
    def connect(cls) -> str:
        cls._answer()
        return "memory://"

    @classmethod
    def _answer(cls) -> None:
        cls.calls += 1
        if cls.hangs is not None:
            cls.hangs.wait(60)
        if cls.down:
            raise OSError("connection refused")

    def open(self, parent: str) -> str:
        self._answer()
        self.parents[self.about.run_id] = parent
        return "" if self.about.run_id in self.deleted else f"there-{self.about.run_id}"

    def send(self, events: Sequence[Event]) -> None:
        self._answer()
        if self.about.run_id in self.deleted:
            raise OSError("it was deleted")
        known = self.events.setdefault(self.about.run_id, [])
        known += [event for event in events if event not in known]
        if self.answers_lost:
            raise OSError("read timed out")

    @classmethod
    def kinds(cls, run_id: str) -> list[str]:
        return [event.kind for event in cls.events.get(run_id, [])]


def client() -> MlflowClient:
    return MlflowClient(uri())


def there(run_id: str) -> Run:
    """Return what MLflow has of a run."""
    state = State.read(run_id, "mlflow")
    assert state is not None
    return client().get_run(state.id)


def points(run_id: str, key: str) -> list[tuple[int, float]]:
    """Return the points of a metric in MLflow in the order of their steps, doubles included."""
    history = client().get_metric_history(there(run_id).info.run_id, key)
    return sorted((metric.step, metric.value) for metric in history)


def all_there() -> list[tuple[Any, ...]]:
    """Return run, name, status, metrics, params and data sets of all runs in MLflow, doubles included."""
    places = [one.experiment_id for one in client().search_experiments()]
    return sorted(
        (
            run.data.tags["cse.run_id"],
            run.info.run_name,
            run.info.status,
            run.data.metrics,
            run.data.params,
            sorted(one.dataset.name for one in run.inputs.dataset_inputs),
        )
        for run in client().search_runs(places)
    )
