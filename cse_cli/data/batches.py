"""Training batches: their rows and tokens, and a thread that prepares them for a GPU.

The rows of a step depend only on seed and step, so a resumed run has the same batches as an uninterrupted one.
"""

from __future__ import annotations

import hashlib
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import chain
from random import Random
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from cse_cli.data.cache import Progress
from cse_cli.data.sources import Text
from cse_cli.data.tokens import Column
from registry.errors import CseError
from registry.machinery import returned
from registry.tokens import PINNED, Pieces, Sample, Tokens, Vocabulary
from registry.types import Augmenter, Batch


@dataclass
class Sampler:
    """Sampler of the rows of a text, without replacement and in a new order each epoch.

    An epoch has as many batches as the rows fill. An incomplete last batch is dropped.

    With `texts`, the numbers of the texts of each row (rows, columns), a text occurs in at most one row of a batch.
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
    is proportional to the number of rows, however often a text occurs. `texts` are those of each row.
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


UNCUT = 2**31
"""Length that is larger than that of every text."""

T = TypeVar("T")


@dataclass(frozen=True)
class ViewSpec:
    """Plan of the tokens of a view.

    `side` are tokenizers of other columns that the augmenters read. `dropout` None means the encoder's own rates. A
    loss of the view reads the columns in `numbers` as labels.
    """

    column: str
    vocabulary: Vocabulary
    side: Mapping[str, Vocabulary] = field(default_factory=dict)
    augmenters: Sequence[Augmenter] = ()
    dropout: float | None = None
    numbers: Sequence[str] = ()

    @property
    def changes_text(self) -> bool:
        """Whether an augmenter changes text or sub-words, so that tokens cannot be cached."""
        return any(
            type(a).on_text is not Augmenter.on_text or type(a).on_pieces is not Augmenter.on_pieces
            for a in self.augmenters
        )

    @property
    def reads_whole_text(self) -> bool:
        """Whether an augmenter reads the whole text, which may be longer than the encoder's input."""
        return any(augmenter.reads_whole_text for augmenter in self.augmenters)

    def pieces(self, sentences: Sequence[str], own: Random, shared: Random, max_length: int) -> list[Pieces]:
        """Return the sub-words of the sentences of a batch after the augmenters.

        `own` are random numbers of this view, `shared` those that are the same for all views of the batch.
        """
        drawn = [(augmenter, shared if augmenter.draws_alike else own) for augmenter in self.augmenters]
        samples = [Sample(sentence) for sentence in sentences]
        for augmenter, rng in drawn:
            samples = augmenter.on_text(samples, rng)
            returned.items(augmenter, "on_text", samples, Sample, len(sentences))
        pieces = self.vocabulary.pieces(samples, UNCUT if self.reads_whole_text else max_length)
        for augmenter, rng in drawn:
            pieces = augmenter.on_pieces(pieces, rng)
            returned.items(augmenter, "on_pieces", pieces, Pieces, len(sentences))
        if self.reads_whole_text:
            room = self.vocabulary.room(max_length)
            pieces = [replace(row, first=row.first[:room], second=row.second and row.second[:room]) for row in pieces]
        return pieces


@dataclass
class Batches:
    """Training batches of one process, from a tokenized text on disk.

    `batch_size` is summed over all processes. With `unique`, a text occurs in at most one row of a batch.
    """

    text: Text
    specs: Mapping[str, ViewSpec]
    batch_size: int
    max_length: int
    seed: int
    rank: int = 0
    world: int = 1
    progress: Progress | None = None
    unique: bool = False
    _epoch: tuple[int, Tensor] | None = field(default=None, init=False)
    _tokens: dict[tuple[str, str], Column[list[int]]] = field(default_factory=dict, init=False)
    _sentences: dict[str, Column[str]] = field(default_factory=dict, init=False)
    _numbers: dict[str, Tensor] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        texts = self.text.numbered() if self.unique else None
        self._sampler = Sampler(self.text.rows, self.batch_size, self.seed, texts)
        if self.batch_size % self.world:
            raise CseError(
                f"train.batch_size {self.batch_size} is not a multiple of the number of processes, {self.world}",
                f"use a multiple of {self.world}",
                code="data.uneven_batch",
            )
        for spec in self.specs.values():
            tokenized = list(spec.side.items())
            if spec.changes_text:
                self._sentences[spec.column] = self.text.sentences(spec.column)
            else:
                tokenized.insert(0, (spec.column, spec.vocabulary))
            for column, vocabulary in tokenized:
                if (key := (column, vocabulary.fingerprint)) not in self._tokens:
                    self._tokens[key] = self.text.tokens(column, vocabulary, self.max_length, self.progress)
            for column in spec.numbers:
                self._numbers[column] = as_numbers(column, self.text.sentences(column).take(range(self.text.rows)))

    @property
    def steps_per_epoch(self) -> int:
        """Number of batches of an epoch."""
        return self._sampler.steps_per_epoch

    @property
    def notices(self) -> tuple[str, ...]:
        """Remarks about the first epoch for the user."""
        if self._sampler.texts is None:
            return ()
        self.indices(0)
        if not self._sampler.repacked:
            return ()
        return (
            f"data.unique_in_batch: repeated texts leave {self.steps_per_epoch - self._sampler.repacked:,} of the "
            f"{self.steps_per_epoch:,} batches of an epoch. The others use rows of these again",
        )

    def indices(self, step: int) -> list[int]:
        """Return the rows of a step, over all processes."""
        epoch, place = divmod(step, self.steps_per_epoch)
        if self._epoch is None or self._epoch[0] != epoch:
            self._epoch = epoch, self._sampler.epoch(epoch)
        indices: list[int] = self._epoch[1][place].tolist()
        return indices

    def batch(self, step: int) -> Batch:
        """Return the tokens of each view for a step, counted from 0 over all epochs."""
        indices = self.indices(step)
        own = self._own(indices)

        def tokens(column: str, vocabulary: Vocabulary) -> Tokens:
            return vocabulary.pad(self._tokens[column, vocabulary.fingerprint].take(own))

        views = {}
        for name, spec in self.specs.items():
            if spec.changes_text:
                # Every process changes the whole batch, so that the result does not depend on the number of processes.
                alone, shared = (Random(f"{self.seed}:{step}:{part}") for part in (name, ""))
                pieces = spec.pieces(self._sentences[spec.column].take(indices), alone, shared, self.max_length)
                view = spec.vocabulary.assemble(self._own(pieces))
            else:
                view = tokens(spec.column, spec.vocabulary)
            side = {column: tokens(column, vocabulary) for column, vocabulary in spec.side.items()}
            numbers = {column: self._numbers[column][own] for column in spec.numbers}
            views[name] = replace(view, side=side, numbers=numbers) if side or numbers else view
        return views

    def _own(self, rows: list[T]) -> list[T]:
        share = self.batch_size // self.world
        return rows[self.rank * share : (self.rank + 1) * share]


def as_numbers(column: str, cells: Sequence[str]) -> Tensor:
    """Return the cells of a column as numbers: (rows,) float32."""
    numbers = []
    for row, cell in enumerate(cells, start=1):
        try:
            number = float(cell)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise CseError(
                f"column '{column}' contains {cell!r} in row {row}, but a loss reads it as a number",
                "correct the data, or set `column` of the loss to another column",
                code="data.not_a_number",
            )
        numbers.append(number)
    return torch.tensor(numbers)


AHEAD = 2
"""Number of batches made in advance: one is copied, one is made."""


class Ready(NamedTuple):
    """Batch of one step, in pinned memory if it goes to a GPU, and its number of tokens without and with padding."""

    batch: Batch
    tokens: int
    places: int


class Feed:
    """Source of batches by step, which prepares the next ones in a thread for a GPU.

    On a CPU a thread costs more than it saves. A step of 64 sentences with mini_en takes 263 ms, of which the batch
    takes 0.5 ms.

    `make` is called in one thread only.
    """

    def __init__(
        self, make: Callable[[int], Batch], total: int, device: torch.device, ahead: bool | None = None
    ) -> None:
        self._make = make
        self._total = total
        self._device = device
        threaded = device.type in PINNED if ahead is None else ahead
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="batches") if threaded else None
        self._coming: dict[int, Future[Ready]] = {}

    def take(self, step: int) -> Ready:
        """Return the batch of a step and start the next ones. An error in the thread is raised at its step."""
        if self._thread is None:
            return self._ready(step)
        if step not in self._coming:  # the first step, or a resumed run
            self._cancel()
        for wanted in range(step, max(step + 1, min(step + AHEAD + 1, self._total))):
            if wanted not in self._coming:
                self._coming[wanted] = self._thread.submit(self._ready, wanted)
        return self._coming.pop(step).result()

    def close(self) -> None:
        """End the thread after its current batch."""
        self._cancel()
        if self._thread is not None:
            self._thread.shutdown(wait=True, cancel_futures=True)

    def _cancel(self) -> None:
        for future in self._coming.values():
            future.cancel()
        self._coming.clear()

    def _ready(self, step: int) -> Ready:
        batch = self._make(step)
        masks = [tokens.mask for tokens in batch.values()]
        counted = sum(int(mask.sum()) for mask in masks), sum(mask.numel() for mask in masks)
        if self._device.type in PINNED:
            if self._device.index is not None:
                torch.accelerator.set_device_index(self._device)  # a new thread uses the first device
            batch = {view: each_tensor(tokens, Tensor.pin_memory) for view, tokens in batch.items()}
        return Ready(batch, *counted)


def each_tensor(tokens: Tokens, act: Callable[[Tensor], Tensor]) -> Tokens:
    """Return tokens with `act` applied to all tensors, including those of other columns."""
    changed: dict[str, Any] = {name: act(value) for name, value in vars(tokens).items() if isinstance(value, Tensor)}
    side = {column: each_tensor(other, act) for column, other in tokens.side.items()}
    numbers = {column: act(values) for column, values in tokens.numbers.items()}
    return replace(tokens, **changed, side=side, numbers=numbers)
