"""Disk space of a run, from the sizes of its tensors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor

from cse_cli.recipe.train_parts import entry_of
from cse_cli.training.build import Prepared
from cse_cli.training.checkpoint import method_state

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


def needed(prepared: Prepared) -> DiskSpace:
    """Return the disk space of a job, from the sizes of its tensors."""
    experiment = prepared.experiment
    state = _size(experiment.scored.state_dict().values())
    if prepared.batches is None:
        return DiskSpace(0, state)
    trained = _size(weights for weights in experiment.method.parameters() if weights.requires_grad)
    copies = entry_of(experiment.recipe.train, "optimizer").cls.copies
    return DiskSpace(_size(method_state(experiment.method).values()) + copies * trained, state)


def _size(tensors: Iterable[Tensor]) -> int:
    """Return the bytes of tensors. Weights that are used twice count once."""
    return sum({each.data_ptr(): each.numel() * each.element_size() for each in tensors}.values())
