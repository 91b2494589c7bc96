"""Costs of a run from the records of earlier runs of the same experiment on the same device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from cse_cli.core.results import Result
from cse_cli.data.identity import Known
from cse_cli.planning.disk_space import DiskSpace
from cse_cli.runs.events import read_history
from cse_cli.runs.index import RecordedRun
from cse_cli.runs.record import MODEL, folder_of

MOST = 5
"""Number of runs that are read, the newest ones."""
CHECKPOINT = 3
"""Size of a checkpoint in weights: AdamW keeps two values for each."""


@dataclass(frozen=True)
class Earlier:
    """Medians over earlier runs.

    Args:
        runs: Number of runs.
        training: Seconds of training without evaluation.
        evaluation: Seconds of all evaluations, the last one with figures and the saved model.
        memory: Largest peak memory in bytes, or None without training.
        space: Disk space, from the size of the saved model.
    """

    runs: int
    training: float
    evaluation: float
    memory: int | None
    space: DiskSpace


def earlier_runs(known: Known, device: str, precision: str, recorded: Iterable[RecordedRun]) -> Earlier | None:
    """Return the costs of finished runs of an experiment with any seed and code, or None without such runs.

    A run that was interrupted does not count, because the time after its training is unknown.
    """
    found: list[tuple[RecordedRun, Result]] = []
    for run, result in _same(known, device, precision, recorded):
        if len(found) == MOST:
            break
        if len(read_history(folder_of(run.run_id), without=("metrics", "system")).starts) == 1:
            found.append((run, result))
    if not found:
        return None
    size = max(_size(run.about.path / MODEL) for run, _ in found)
    return Earlier(
        runs=len(found),
        training=median(result.seconds - _scoring(result) for _, result in found),
        evaluation=median(_wall(run) - result.seconds + _scoring(result) for run, result in found),
        memory=max((result.speed.peak_memory for _, result in found if result.speed is not None), default=None),
        space=DiskSpace(CHECKPOINT * size, size),
    )


def _scoring(result: Result) -> float:
    """Return the seconds of the evaluations during training."""
    return 0.0 if result.speed is None else result.speed.seconds.get("evaluation", 0.0)


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _same(
    known: Known, device: str, precision: str, recorded: Iterable[RecordedRun]
) -> Iterator[tuple[RecordedRun, Result]]:
    """Yield the finished runs of an experiment on a device, newest first."""
    for run in recorded:
        identity = run.about.identity
        if identity is None or not run.about.is_result or run.about.pulled or run.end != "finished":
            continue
        result = run.result if known.matches(identity, code=False) else None
        if result is not None and (result.device, result.precision) == (device, precision):
            yield run, result


def _wall(run: RecordedRun) -> float:
    """Return the seconds between the start and the end of a finished run."""
    return (run.ended - run.started).total_seconds() if run.started and run.ended else 0.0
