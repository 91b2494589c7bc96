"""Stores for tests, and one that fails at will."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cse_cli.tracking.store import Store, open_store
from cse_cli.tracking.tracker import Tracker
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from cse_cli.core.results import Result


def fresh_store(home: Path) -> Store:
    """Make a store where `CSE_HOME` points, and open it."""
    assert not (home / "mlflow.db").exists()
    return open_store()


def killed(tracker: Tracker) -> str:
    """Leave a run as `kill -9` of its process does: recorded as RUNNING, its lock free; return its id."""
    tracker._lock.release()  # type: ignore[attr-defined]
    return tracker.run_id


def points(client: MlflowClient, run_id: str, key: str) -> list[tuple[int, float]]:
    """Return the recorded points of a metric in the order of their steps, doubles included."""
    return sorted((metric.step, metric.value) for metric in client.get_metric_history(run_id, key))


class Flaky:
    """A client whose server is away while `down`; `answers_lost` carries requests out and then fails."""

    def __init__(self, client: MlflowClient) -> None:
        self.client = client
        self.down = False
        self.answers_lost = False
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        real: Callable[..., Any] = getattr(self.client, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append(name)
            if self.down:
                raise MlflowException("connection refused")
            answer = real(*args, **kwargs)
            if self.answers_lost:
                raise MlflowException("read timed out")
            return answer

        return call


def result(
    recipe_hash: str = "0123456789abcdef",
    text: str = "",
    weights: Mapping[str, str] | None = None,
    code: Mapping[str, str] | None = None,
    **changes: Any,
) -> Result:
    """Return a finished run's result with some fields and parts of the identity of your own."""
    plain: dict[str, Any] = {
        "recipe": "mini/simcse_en",
        "title": "SimCSE",
        "identity": {"settings": recipe_hash, "text": text, "weights": weights or {}, "code": code or {}},
        "started": "2026-11-21T04:59:00Z",
        "language": "en",
        "seed": 1,
        "model": "mini_en",
        "scores": {"stsb_dev": {"spearman": 70.0}, "stsb": {"spearman": 61.004}, "sickr": {"spearman": 63.0}},
        "curve": {125: 65.5, 250: 70.0},
        "selected_step": 250,
        "select": "stsb_dev.spearman",
        "steps": 250,
        "versions": {"cse": "0.1.0", "python": "3.11.7", "torch": "2.13.0", "transformers": "5.23.0"},
        "device": "cpu",
        "precision": "fp32",
        "seconds": 12.5,
        "finished": "2026-11-21T05:00:00Z",
    }
    return Result.model_validate({**plain, **changes})
