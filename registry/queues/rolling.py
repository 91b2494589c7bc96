"""Shared base of queues of embeddings: rows are appended, the oldest are removed, and each has an age."""

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
"""Seed of random initial entries, equal on every device and independent of the global generators."""


class RollingQueue(Queue):
    """Store the latest `length` embeddings of a view with unit length, in single precision, oldest first.

    The buffers have their final size after `bind`, so that a checkpoint fits regardless of the number of entries.

    Args:
        view: View whose embeddings are stored.
        length: Maximum number of entries.
        initial: Number of random unit vectors at the start, which are removed first.
    """

    length: int
    vectors: Tensor
    """(length, D), with zero rows after the first `filled` rows."""
    ages: Tensor
    """(length,) steps since a row was stored, 1 for the newest. 0 marks a free place."""

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
                f"queue: initial = {initial} exceeds length = {length}",
                f"set initial to at most {length}",
                code="queues.initial_exceeds_length",
            )
        _require_memory(length, 0)
        self.view, self.length, self.initial = view, length, initial
        self.filled = 0
        self.register_buffer("vectors", torch.zeros(length, 0))
        self.register_buffer("ages", torch.zeros(length, dtype=torch.int64))
        take_shape_from_checkpoint(self, "vectors", only_if_empty=True)  # not bound yet: the checkpoint has the width
        self.register_load_state_dict_post_hook(_count_filled)  # type: ignore[no-untyped-call]

    def bind(self, encoder: Encoder) -> None:
        """Create the buffers for the width of the encoder's embeddings, and store the initial entries."""
        _require_memory(self.length, encoder.dim)
        self.vectors = torch.zeros(self.length, encoder.dim, device=self.ages.device)
        if self.initial:
            random = torch.randn(self.initial, encoder.dim, generator=torch.Generator().manual_seed(SEED))
            self.push(random.to(self.ages.device))

    def after_step(self, step: Step) -> None:
        """Store the view's embeddings of this step, and remove the oldest entries."""
        self.push(step.sentences(self.view))

    def push(self, rows: Tensor) -> None:
        """Increase all ages by one, append `rows` (n, D), and remove the oldest beyond `length`."""
        unit = F.normalize(rows.detach().float(), dim=-1, eps=1e-8)
        vectors = torch.cat([self.vectors[: self.filled], unit])[-self.length :]
        ages = torch.cat([self.ages[: self.filled] + 1, self.ages.new_ones(len(rows))])[-self.length :]
        self.filled = len(ages)
        free = self.length - self.filled
        # New tensors, as the step's graph may still hold the tensors that `negatives` returned.
        self.vectors = F.pad(vectors, (0, 0, 0, free))
        self.ages = F.pad(ages, (0, free))

    def negatives(self) -> Negatives:
        """Return the selected entries of the filled part, oldest first."""
        ages = self.ages[: self.filled]
        return Negatives(self.chosen(self.vectors[: self.filled]), self.chosen(self.log_weights(ages)))

    def chosen(self, rows: Tensor) -> Tensor:
        """Return the selected rows of (K, …), ordered from the oldest to the newest. Default: all rows."""
        return rows

    def log_weights(self, ages: Tensor) -> Tensor:
        """Return (K,) log-weights of entries of these ages. Default: 0."""
        return torch.zeros(len(ages), device=ages.device)


def _require_memory(length: int, width: int) -> None:
    needed, available = length * (8 + 4 * width), psutil.virtual_memory().total
    if needed > available:
        raise CseError(
            f"queue: length = {length:,} requires {needed / 2**30:,.0f} GB of memory, but this machine has "
            f"{available / 2**30:,.0f} GB",
            "decrease queue.length",
            code="queues.not_enough_memory",
        )


def _count_filled(queue: Any, _: Any) -> None:
    queue.filled = int(torch.count_nonzero(queue.ages))
