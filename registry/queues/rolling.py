"""What queues of sentence vectors share: rows come in, the oldest go out, each knows its age. Registers nothing."""

from __future__ import annotations

from typing import Annotated, Any

import psutil
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from registry.errors import CseError
from registry.types import Encoder, Negatives, Queue, Step, Tune, ViewName, take_shape_from_checkpoint

SEED = 20230720
"""Seed of random initial entries: the same on every device whatever state the global generators are in."""


class RollingQueue(Queue):
    """Keep the latest `length` sentence vectors of a view, unit length, single precision, oldest first.

    The buffers have their final size from `bind` on, so that a checkpoint fits whatever it holds.

    Args:
        view: The view whose vectors are stored.
        length: Most entries kept.
        initial: Random unit vectors that the queue starts with and that leave first.
    """

    length: int
    vectors: Tensor
    """(length, D); rows from `filled` on are zero."""
    ages: Tensor
    """(length,) steps since a row was stored, 1 right after; 0 marks a free place."""

    def __init__(
        self,
        view: ViewName,
        *,
        length: Annotated[int, Field(gt=0), Tune(64, 4096, log=True)] = 512,
        initial: Annotated[int, Field(ge=0)] = 0,
    ) -> None:
        super().__init__()
        if initial > length:
            raise CseError(
                f"queue: initial = {initial} is more than length = {length}", "start with at most `length` entries"
            )
        _demand_memory(length, 0)
        self.view, self.length, self.initial = view, length, initial
        self.filled = 0
        self.register_buffer("vectors", torch.zeros(length, 0))
        self.register_buffer("ages", torch.zeros(length, dtype=torch.int64))
        take_shape_from_checkpoint(self, "vectors", only_if_empty=True)  # not bound yet: the checkpoint has the width
        self.register_load_state_dict_post_hook(_count_filled)  # type: ignore[no-untyped-call]

    def bind(self, encoder: Encoder) -> None:
        """Take the width of the encoder's sentence vectors and store the initial entries."""
        _demand_memory(self.length, encoder.dim)
        self.vectors = torch.zeros(self.length, encoder.dim, device=self.ages.device)
        if self.initial:
            random = torch.randn(self.initial, encoder.dim, generator=torch.Generator().manual_seed(SEED))
            self.push(random.to(self.ages.device))

    def after_step(self, step: Step) -> None:
        """Store the view's vectors of this step; the oldest make room."""
        self.push(step.sentences(self.view))

    def push(self, rows: Tensor) -> None:
        """Age what is held by one step, append `rows` (n, D), and drop the oldest beyond `length`."""
        unit = F.normalize(rows.detach().float(), dim=-1, eps=1e-8)
        vectors = torch.cat([self.vectors[: self.filled], unit])[-self.length :]
        ages = torch.cat([self.ages[: self.filled] + 1, self.ages.new_ones(len(rows))])[-self.length :]
        self.filled = len(ages)
        free = self.length - self.filled
        # New tensors instead of writes into the old ones: the step's graph may still hold what `negatives` returned.
        self.vectors = F.pad(vectors, (0, 0, 0, free))
        self.ages = F.pad(ages, (0, free))

    def negatives(self) -> Negatives:
        """Return what is served of the filled part, oldest first."""
        ages = self.ages[: self.filled]
        return Negatives(self.chosen(self.vectors[: self.filled]), self.chosen(self.log_weights(ages)))

    def chosen(self, rows: Tensor) -> Tensor:
        """Return the rows served, of (K, …) ordered from the oldest to the newest: all unless overridden."""
        return rows

    def log_weights(self, ages: Tensor) -> Tensor:
        """Return (K,) the logarithm of the weight of entries of these ages: 0 for all unless overridden."""
        return torch.zeros(len(ages), device=ages.device)


def _demand_memory(length: int, width: int) -> None:
    needed, there = length * (8 + 4 * width), psutil.virtual_memory().total
    if needed > there:
        size = f"{needed / 2**30:,.0f} GB, and this machine has {there / 2**30:,.0f} GB"
        raise CseError(f"queue: length = {length:,} would need {size} of memory", "lower queue.length")


def _count_filled(queue: Any, _: Any) -> None:
    queue.filled = int(torch.count_nonzero(queue.ages))
