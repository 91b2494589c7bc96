"""Disk space of a run: an estimate before it starts, and one message if the disk fills later."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from cse_cli.core.paths import require_home
from cse_cli.recipe.train_parts import entry_of
from cse_cli.runs.record import folder_of
from cse_cli.training.build import Prepared
from cse_cli.training.checkpoint import FILE, PREVIOUS, method_state
from registry.errors import DiskError
from registry.paths import no_room

RECORDS = 8_000_000
"""Bytes of everything except tensors. A run of mini/simcse_en writes 1.2 MB."""


@dataclass(frozen=True)
class DiskSpace:
    """Largest disk space of a run, in bytes.

    Args:
        checkpoint: Size of a checkpoint. Two exist at a time.
        state: Size of a best state. Two exist at a time, and the saved model is as large.
    """

    checkpoint: int
    state: int

    @property
    def total(self) -> int:
        """Sum of all files."""
        return 2 * self.checkpoint + 3 * self.state + RECORDS

    def missing(self, directory: Path) -> int:
        """Return the bytes that a run still has to write if `directory` contains its earlier files."""
        return max(0, self.total - sum(file.stat().st_size for file in directory.glob("*.pt")))


def needed(prepared: Prepared) -> DiskSpace:
    """Return the disk space of a job, from the sizes of its tensors."""
    experiment = prepared.experiment
    state = _size(experiment.scored.state_dict().values())
    if prepared.batches is None:
        return DiskSpace(0, state)
    trained = _size(weights for weights in experiment.method.parameters() if weights.requires_grad)
    copies = entry_of(experiment.recipe.train, "optimizer").cls.copies
    return DiskSpace(_size(method_state(experiment.method).values()) + copies * trained, state)


def check_disk_space(prepared: Prepared) -> None:
    """Check the free disk space before the job writes anything.

    Raises:
        DiskError: If the disk is too small. The message names the free and the needed space.
    """
    resume, space, home = prepared.job.resume, needed(prepared), require_home()
    missing = space.total if resume is None else space.missing(folder_of(resume))
    free = shutil.disk_usage(home).free
    if missing > free:
        raise DiskError(
            f"not enough disk space for {prepared.job.name}: {home} has {_megabytes(free)} free, about "
            f"{_megabytes(missing)} needed",
            "free space, or set CSE_HOME to a directory on another disk",
            code="training.disk_too_small",
        )


@contextmanager
def explain_full_disk(run_id: str, space: DiskSpace) -> Iterator[None]:
    """Turn the error of a full disk into one message, and free space to record the end of the run.

    Raises:
        DiskError: If the disk is full.
    """
    try:
        yield
    except Exception as error:
        if (reason := no_room(error)) is None:
            raise
        directory = folder_of(run_id)
        for file in (directory / FILE).with_suffix(".partial"), directory / PREVIOUS:
            with suppress(OSError):
                file.unlink()
        target = getattr(error, "filename", None) or directory
        raise DiskError(
            f"run {run_id[:8]} stopped because {target} could not be written: {reason}. It needs about "
            f"{_megabytes(space.missing(directory))} more",
            f"free space, then resume it: cse run --resume {run_id[:8]}",
            code="training.disk_full",
        ) from error


def _size(tensors: Iterable[Tensor]) -> int:
    """Return the bytes of tensors. Weights that are used twice count once."""
    return sum({each.data_ptr(): each.numel() * each.element_size() for each in tensors}.values())


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"
