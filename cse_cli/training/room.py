"""Room on the disk: what a run needs is estimated before it begins, and where it runs out on the way is one message."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from cse_cli.core.paths import require_home
from cse_cli.runs.record import folder_of
from cse_cli.training.build import Prepared
from cse_cli.training.checkpoint import FILE, PREVIOUS, method_state
from registry.errors import DiskError
from registry.paths import no_room

RECORDS = 8_000_000
"""Bytes beside tensors: a new store takes 1.0 MB, figures and the numbers behind the scores of mini/simcse_en 1.2."""

_KEPT = {"sgd": 0, "rmsprop": 1}
"""Numbers that an optimiser keeps of each weight that it trains; Adam and AdamW keep two."""


@dataclass(frozen=True)
class Room:
    """What a run needs on the disk at its fullest, in bytes.

    Args:
        checkpoint: One of the two that are there at a time.
        state: One best state; two may be there, and the model as it is saved.
    """

    checkpoint: int
    state: int

    @property
    def total(self) -> int:
        """All of it."""
        return 2 * self.checkpoint + 3 * self.state + RECORDS

    def lacking(self, folder: Path) -> int:
        """Return what is still to be written by a run, where its folder has files of an earlier part."""
        return max(0, self.total - sum(file.stat().st_size for file in folder.glob("*.pt")))

    def __str__(self) -> str:
        if not self.checkpoint:
            return f"a model of {_megabytes(self.state)}"
        return f"two checkpoints of {_megabytes(self.checkpoint)}, best states and a model of {_megabytes(self.state)}"


def needed(prepared: Prepared) -> Room:
    """Return what a job needs, by the sizes of its tensors."""
    experiment = prepared.experiment
    state = _size(experiment.scored.state_dict().values())
    if prepared.batches is None:
        return Room(0, state)
    trained = _size(weights for weights in experiment.method.parameters() if weights.requires_grad)
    copies = _KEPT.get(experiment.recipe.train.optimizer or "adamw", 2)
    return Room(_size(method_state(experiment.method).values()) + copies * trained, state)


def demand(prepared: Prepared) -> None:
    """Refuse a job that the disk has no room for, before anything of it is written.

    Raises:
        DiskError: It says what is needed, and what is free.
    """
    resume, room, home = prepared.job.resume, needed(prepared), require_home()
    lacking = room.total if resume is None else room.lacking(folder_of(resume))
    free = shutil.disk_usage(home).free
    if lacking > free:
        raise DiskError(
            f"no room on the disk for a run of {prepared.job.name}: below {home} {_megabytes(free)} are free, and it "
            f"needs about {_megabytes(lacking)} ({room})",
            "free some, or set CSE_HOME to another disk",
        )


@contextmanager
def told_where_full(run_id: str, room: Room) -> Iterator[None]:
    """Turn what a full disk answers into one message, and make room for the record of the run's end.

    Raises:
        DiskError: There was no room on the way.
    """
    try:
        yield
    except Exception as error:
        if (said := no_room(error)) is None:
            raise
        folder = folder_of(run_id)
        for file in (folder / FILE).with_suffix(".partial"), folder / PREVIOUS:
            with suppress(OSError):
                file.unlink()
        what, run = getattr(error, "filename", None) or folder, run_id[:8]
        raise DiskError(
            f"run {run}: no room on the disk for {what}: {said}; it needs about "
            f"{_megabytes(room.lacking(folder))} more ({room})",
            f"free some, then go on with: cse run --resume {run}",
        ) from error


def _size(tensors: Iterable[Tensor]) -> int:
    """Return the bytes of tensors; weights that are used in two places are written once."""
    return sum({each.data_ptr(): each.numel() * each.element_size() for each in tensors}.values())


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"
