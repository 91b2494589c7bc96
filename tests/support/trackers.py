"""Trackers for tests: one in memory that fails at will, and what MLflow has of a run."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, ClassVar

from mlflow import MlflowClient
from mlflow.entities import Run

from cse_cli.mirrors.mirror import GoneError, Mirror, RefusedError, State, Target
from cse_cli.mirrors.store import open_store
from cse_cli.runs.events import Event


class Memory(Mirror):
    """Keeps events in memory. The class is the tracker."""

    name = "memory"
    down: ClassVar[bool] = False
    deleted: ClassVar[set[str]] = set()
    refuses: ClassVar[str] = ""
    hangs: ClassVar[threading.Event | None] = None
    database: ClassVar[str] = "first"
    answers_lost: ClassVar[bool] = False
    complete: ClassVar[bool] = True
    events: ClassVar[dict[str, list[Event]]] = {}
    parents: ClassVar[dict[str, str]] = {}
    calls: ClassVar[int] = 0

    @classmethod
    def reset(cls) -> None:
        cls.down, cls.deleted, cls.refuses, cls.hangs, cls.database = False, set(), "", None, "first"
        cls.answers_lost, cls.complete, cls.events, cls.parents, cls.calls = False, True, {}, {}, 0

    @classmethod
    def connect(cls) -> Target:
        cls._answer()
        return Target("memory://", cls.database, cls.complete)

    @classmethod
    def discard(cls) -> None:
        cls.database, cls.events = "another", {}

    @classmethod
    def _answer(cls) -> None:
        cls.calls += 1
        if cls.hangs is not None:
            cls.hangs.wait(60)
        if cls.down:
            raise OSError("connection refused")

    def open(self, run_id: str, parent: str) -> str:
        self._answer()
        self.id = run_id or f"{self.database}-{self.about.run_id}"
        self.parents.setdefault(self.id, parent)
        return self.id

    def send(self, events: Sequence[Event]) -> None:
        self._answer()
        if self.id in self.deleted:
            raise GoneError("it was deleted there")
        if any(event.kind == self.refuses for event in events):
            raise RefusedError("too long")
        known = self.events.setdefault(self.id, [])
        known += [event for event in events if event not in known]
        if self.answers_lost:
            raise OSError("read timed out")

    @classmethod
    def kinds(cls, run_id: str) -> list[str]:
        return [event.kind for event in cls.events.get(f"{cls.database}-{run_id}", [])]


def client() -> MlflowClient:
    return open_store().client


def there(run_id: str) -> Run:
    """Return what MLflow has of a run."""
    state = State.read(run_id, "mlflow")
    assert state is not None
    return client().get_run(state.id)


def points(run_id: str, key: str) -> list[tuple[int, float]]:
    """Return the points of a metric in MLflow in the order of their steps, doubles included."""
    history = client().get_metric_history(there(run_id).info.run_id, key)
    return sorted((metric.step, metric.value) for metric in history)


def all_there() -> dict[str, Any]:
    """Return run → name, status, metrics, params and data sets in MLflow."""
    places = [one.experiment_id for one in client().search_experiments()]
    return {
        run.data.tags["cse.run_id"]: (
            run.info.run_name,
            run.info.status,
            run.data.metrics,
            run.data.params,
            sorted(one.dataset.name for one in run.inputs.dataset_inputs),
        )
        for run in client().search_runs(places)
    }
