"""Rows of each batch of an epoch: the order, the mixture of sources, and batches without repeated texts.

The batches of an epoch depend only on seed and epoch. A checkpoint contains the step, which is therefore the complete
position of the sampler, and each process of several takes its part of the same batches.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from cse_cli.data.sources import Text
from cse_cli.recipe.schema import Data
from registry.errors import CseError


@dataclass
class Sampler:
    """Sampler of the rows of a text, without replacement and in a new order each epoch.

    An epoch has as many batches as the rows fill. An incomplete last batch is dropped.

    Args:
        rows: Number of rows.
        batch_size: Number of rows per batch, over all processes.
        seed: Seed of the order.
        sources: Name → rows of each data set of a mixture. They are together all rows.
        proportions: Share of each source in an epoch. A source with fewer rows repeats them in new orders, one with
            more continues in the next epoch. None means the shares in the data.
        one_source: Whether each batch has rows of only one source.
        texts: (rows, columns) numbers of the texts of each row. A text then occurs in at most one row of a batch. None
            means that batches may contain copies.

    Raises:
        CseError: If the data, or a source, has fewer rows than a batch.
    """

    rows: int
    batch_size: int
    seed: int
    sources: Mapping[str, range] = field(default_factory=dict)
    proportions: Sequence[float] | None = None
    one_source: bool = False
    texts: np.ndarray | None = None
    repacked: int = field(default=0, init=False)
    """Number of batches of the last epoch that were filled with rows of its other batches."""

    @classmethod
    def of(cls, data: Data, text: Text, batch_size: int, seed: int) -> Sampler:
        """Return the sampler that a recipe describes.

        Args:
            data: Section of the recipe.
            text: Its text, with the columns of all views.
            batch_size: Number of rows per batch, over all processes.
            seed: Seed of the order.
        """
        texts = text.numbered() if data.unique_in_batch else None
        return cls(text.rows, batch_size, seed, text.sources, data.proportions, data.batches == "one_source", texts)

    def __post_init__(self) -> None:
        if self.batch_size > self.rows:
            raise CseError(
                f"train.batch_size {self.batch_size} is larger than the data, which has {self.rows} sentences",
                "use a smaller train.batch_size, or more data",
                code="data.too_few_sentences",
            )
        smallest = self.batch_size if self.one_source else 1
        for name, rows in self.sources.items() if self.one_source or self.proportions else ():
            if len(rows) < smallest:
                raise CseError(
                    f"'{name}' has {len(rows)} of the sentences that are used, fewer than the {smallest} of a batch",
                    "use a smaller train.batch_size, remove this data set, or raise data.limit",
                    code="data.too_few_sentences",
                )

    @property
    def steps_per_epoch(self) -> int:
        """Number of batches of an epoch."""
        return sum(self._batches_of_sources) if self.one_source else self.rows // self.batch_size

    @property
    def _batches_of_sources(self) -> list[int]:
        """Number of batches of each source if a batch has one source."""
        if self.proportions is None:
            return [len(rows) // self.batch_size for rows in self.sources.values()]
        return shares(self.rows // self.batch_size, self.proportions)

    def epoch(self, number: int) -> Tensor:
        """Return the rows of the batches of an epoch: (steps, batch size) int64."""
        self.repacked = 0
        if self.one_source:
            counts = self._batches_of_sources
            drawn = [self._drawn(place, count * self.batch_size, number) for place, count in enumerate(counts)]
            each = [self._packed(rows, count, number) for rows, count in zip(drawn, counts, strict=True)]
            return torch.cat(each)[random_order(self.steps_per_epoch, self.seed, number, 0)]
        order = random_order(self.rows, self.seed, number)
        if self.proportions is not None:
            counts = shares(self.rows, self.proportions)
            order = torch.cat([self._drawn(place, count, number) for place, count in enumerate(counts)])[order]
        return self._packed(order, self.steps_per_epoch, number)

    def _drawn(self, place: int, count: int, epoch: int) -> Tensor:
        """Return the rows of a source in an epoch, which continues its rows of the last epoch.

        With one source per batch, each pass over the source has only full batches, so that no batch repeats a row.
        """
        rows = list(self.sources.values())[place]
        used = len(rows) - (len(rows) % self.batch_size if self.one_source else 0)
        first, last = epoch * count // used, -((epoch + 1) * count // -used)
        passes = [random_order(len(rows), self.seed, place, each, 0)[:used] for each in range(first, last)]
        start = epoch * count - first * used
        return torch.cat([torch.zeros(0, dtype=torch.int64), *passes])[start : start + count] + rows.start

    def _packed(self, order: Tensor, count: int, epoch: int) -> Tensor:
        """Return `count` batches of rows in this order: (count, batch size).

        If the rows do not fill them without a repeated text, the last batches are filled with the same rows, reordered.
        """
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
            order = order[random_order(len(order), self.seed, epoch, len(found), 1)]
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


def shares(total: int, proportions: Sequence[float]) -> list[int]:
    """Divide a number by proportions, rounded by the largest remainder."""
    exact = [total * share / sum(proportions) for share in proportions]
    found = [int(share) for share in exact]
    largest = sorted(range(len(exact)), key=lambda place: found[place] - exact[place])
    for place in largest[: total - sum(found)]:
        found[place] += 1
    return found


def random_order(rows: int, *key: int) -> Tensor:
    """Return a random permutation of 0 … rows - 1, which depends only on the key: (rows,) int64."""
    seed = int.from_bytes(hashlib.sha256(":".join(map(str, key)).encode()).digest()[:7])
    return torch.randperm(rows, generator=torch.Generator().manual_seed(seed))
