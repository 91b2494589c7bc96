"""What training tells whoever records it, without MLflow: `cse_cli.tracking.mlflow_tracker` records in MLflow."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

Status = Literal["FINISHED", "FAILED", "KILLED"]


class Tracker:
    """One run being recorded; this class records nothing. No method fails because a tracking server is away."""

    run_id = ""

    def metrics(self, values: Mapping[str, float], step: int) -> None:
        """Record values of a step; at most one value for a name and a step."""

    def tags(self, values: Mapping[str, str]) -> None:
        """Set or replace tags."""

    def text(self, name: str, text: str) -> None:
        """Keep a text as the artifact `name`, which may contain folders."""

    def folder(self, path: Path, name: str) -> None:
        """Keep the files of a folder as artifacts below `name`."""

    def model(self, path: Path, name: str, about: Mapping[str, str]) -> None:
        """Keep a model that lies in a folder, as the run's outcome: with its name, what it is, and the run's scores."""

    def dataset(self, name: str, digest: str, context: str, source: str) -> None:
        """Record a data set the run read, e.g. context "training" or "test"."""

    def flush(self) -> None:
        """Wait until all metrics are written; call it before a checkpoint, so that a resumed run has no gap."""

    def finish(self, status: Status) -> None:
        """Write everything and close the run; later calls do nothing."""


class NullTracker(Tracker):
    """Records nothing: for tests and for all processes but the first."""
