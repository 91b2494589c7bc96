"""The folder through which a process is given its run and gives back what became of it."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from cse_cli.job import Job
from cse_cli.processes.lost import LostRankError
from cse_cli.results import Result
from registry.errors import CseError


@dataclass(frozen=True)
class Failure:
    """Why a process ended before its run did.

    Args:
        lost: Whether the cause is in another process.
    """

    message: str
    next_action: str | None
    exit_code: int
    lost: bool

    def error(self) -> CseError:
        """Return it as it was raised, for whoever shows it."""
        error = CseError(self.message, self.next_action)
        error.exit_code = self.exit_code
        return error


@dataclass(frozen=True)
class Handover:
    """One run given to one process, or to several together. The folder is readable by its owner alone."""

    path: Path

    @staticmethod
    @contextmanager
    def of(job: Job) -> Iterator[Handover]:
        """Give a job; the folder is deleted after the block."""
        with TemporaryDirectory(prefix="cse-run-") as folder:
            made = Handover(Path(folder))
            made._job.write_bytes(pickle.dumps(job))
            yield made

    def job(self) -> Job:
        """Return what is to be run."""
        job: Job = pickle.loads(self._job.read_bytes())
        return job

    def begun(self, run_id: str) -> None:
        """Keep which run it is, for a message after a death."""
        self._run.write_text(run_id)

    def run_id(self) -> str | None:
        """Return which run has begun."""
        return self._run.read_text() if self._run.exists() else None

    def finish(self, result: Result) -> None:
        """Give the result back."""
        self._result.write_text(result.model_dump_json(), encoding="utf-8")

    def result(self) -> Result | None:
        """Return the result, if the run came to its end."""
        return Result.model_validate_json(self._result.read_bytes()) if self._result.exists() else None

    def fail(self, rank: int, error: CseError) -> None:
        """Give back why a process ends."""
        failure = Failure(error.message, error.next_action, error.exit_code, isinstance(error, LostRankError))
        self._failure(rank).write_text(json.dumps(asdict(failure)), encoding="utf-8")

    def failure(self, rank: int) -> Failure | None:
        """Return what a process said before it ended."""
        file = self._failure(rank)
        return Failure(**json.loads(file.read_bytes())) if file.exists() else None

    @property
    def _job(self) -> Path:
        return self.path / "job.pickle"

    @property
    def _run(self) -> Path:
        return self.path / "run"

    @property
    def _result(self) -> Path:
        return self.path / "result.json"

    def _failure(self, rank: int) -> Path:
        return self.path / f"failure-{rank}.json"
