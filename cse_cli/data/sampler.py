"""Rows of each batch of an epoch: the order, and batches without repeated texts.

The batches of an epoch depend only on seed and epoch. A checkpoint contains the step, which is therefore the complete
position of the sampler, and each process of several takes its part of the same batches.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from registry.errors import CseError


@dataclass
class Sampler:
    """Sampler of the rows of a text, without replacement and in a new order each epoch.

    An epoch has as many batches as the rows fill. An incomplete last batch is dropped.

    Args:
        rows: Number of rows.
        batch_size: Number of rows per batch, over all processes.
        seed: Seed of the order.
        texts: (rows, columns) numbers of the texts of each row. A text then occurs in at most one row of a batch. None
            means that batches may contain copies.

    Raises:
        CseError: If the data has fewer rows than a batch.
    """

    rows: int
    batch_size: int
    seed: int
    texts: np.ndarray | None = None
    repacked: int = field(default=0, init=False)
    """Number of batches of the last epoch that were filled with rows of its other batches."""

    def __post_init__(self) -> None:
        if self.batch_size > self.rows:
            raise CseError(
                f"train.batch_size {self.batch_size} is larger than the data, which has {self.rows} sentences",
                "use a smaller train.batch_size, or more data",
                code="data.too_few_sentences",
            )

    @property
    def steps_per_epoch(self) -> int:
        """Number of batches of an epoch."""
        return self.rows // self.batch_size

    def epoch(self, number: int) -> Tensor:
        """Return the rows of the batches of an epoch: (steps, batch size) int64.

        If the rows do not fill them without a repeated text, the last batches are filled with the same rows, reordered.
        """
        self.repacked, count = 0, self.steps_per_epoch
        order = random_order(self.rows, self.seed, number)
        if self.texts is None:
            return order[: count * self.batch_size].view(count, self.batch_size)
        found: list[list[int]] = []
        while len(found) < count:
            more = list(unique_batches(order.tolist(), self.texts[order].tolist(), self.batch_size)) or list(found)
            if not more:
                raise CseError(
                    f"data.unique_in_batch: there is no batch of {self.batch_size} rows without a repeated text",
                    "use a smaller train.batch_size, more distinct data, or remove the key",
                    code="data.too_few_distinct",
                )
            self.repacked += min(count - len(found), len(more)) if found else 0
            found += more
            order = order[random_order(len(order), self.seed, number, len(found), 1)]
        return torch.tensor(found[:count])


def unique_batches(rows: Sequence[int], texts: Sequence[Sequence[int]], size: int) -> Iterator[list[int]]:
    """Yield full batches of rows in their order, in which no text occurs in two rows.

    A row with a text of the batch waits for the next batch. One row for each such text comes first in it, so the work
    is proportional to the number of rows, however often a text occurs.

    Args:
        rows: Rows.
        texts: Texts of each of these rows.
        size: Number of rows of a batch.
    """
    waiting: dict[int, deque[int]] = {}
    fresh = iter(range(len(rows)))
    while True:
        batch: list[int] = []
        seen: set[int] = set()
        first = (waiting[text].popleft() for text in list(waiting))
        for place in chain(first, fresh):
            known = next((text for text in texts[place] if text in seen), None)
            if known is not None:
                waiting.setdefault(known, deque()).append(place)
                continue
            batch.append(place)
            seen.update(texts[place])
            if len(batch) == size:
                break
        else:
            return
        yield [rows[place] for place in batch]
        waiting = {text: kept for text, kept in waiting.items() if kept}


def random_order(rows: int, *key: int) -> Tensor:
    """Return a random permutation of 0 … rows - 1, which depends only on the key: (rows,) int64."""
    seed = int.from_bytes(hashlib.sha256(":".join(map(str, key)).encode()).digest()[:7])
    return torch.randperm(rows, generator=torch.Generator().manual_seed(seed))
