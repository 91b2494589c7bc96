"""Training batches: what they are made of, which rows a step has, and a thread that makes them ahead for a GPU.

Which rows a step has is a function of seed and step alone, so that a resumed run sees what an unbroken one does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, fields, replace
from random import Random
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cse_cli.data.sources import Text
from cse_cli.data.tokens import Column, Progress
from registry.errors import CseError
from registry.tokens import Pieces, Sample, Tokens, Vocabulary
from registry.types import Augmenter, Batch

UNCUT = 2**31
"""A length that no text has."""

T = TypeVar("T")
TextT = TypeVar("TextT")


@dataclass(frozen=True)
class ViewPlan:
    """How a view's tokens are made from the data.

    Args:
        column: Column it reads.
        vocabulary: What tokenises it.
        side: Other columns its augmenters read → what tokenises those.
        augmenters: Its augmenters, in order; those that change text or sub-words act here.
        dropout: Rate of its encoder's dropout for this view; None for the encoder's own rates.
    """

    column: str
    vocabulary: Vocabulary
    side: Mapping[str, Vocabulary] = field(default_factory=dict)
    augmenters: Sequence[Augmenter] = ()
    dropout: float | None = None

    @property
    def changes_text(self) -> bool:
        """Whether an augmenter acts before special tokens are added, so that tokens cannot come from the cache."""
        return any(
            type(a).on_text is not Augmenter.on_text or type(a).on_pieces is not Augmenter.on_pieces
            for a in self.augmenters
        )

    @property
    def reads_whole_text(self) -> bool:
        """Whether an augmenter chooses from the whole text, which may be longer than what the encoder reads."""
        return any(augmenter.reads_whole_text for augmenter in self.augmenters)

    def pieces(self, sentences: Sequence[str], own: Random, alike: Random, max_length: int) -> list[Pieces]:
        """Return sentences as sub-words, changed by the augmenters.

        Args:
            sentences: Of one batch.
            own: What is drawn for this view alone.
            alike: Numbers that are the same for every view of the batch.
            max_length: Tokens a sentence is cut to, specials included.
        """
        drawn = [(augmenter, alike if augmenter.draws_alike else own) for augmenter in self.augmenters]
        samples = [Sample(sentence) for sentence in sentences]
        for augmenter, rng in drawn:
            samples = augmenter.on_text(samples, rng)
        pieces = self.vocabulary.pieces(samples, UNCUT if self.reads_whole_text else max_length)
        for augmenter, rng in drawn:
            pieces = augmenter.on_pieces(pieces, rng)
        if self.reads_whole_text:
            room = self.vocabulary.room(max_length)
            pieces = [replace(row, first=row.first[:room], second=row.second and row.second[:room]) for row in pieces]
        return pieces


@dataclass
class BatchSource(Generic[TextT]):
    """The training batches of one process: `Batches` of a text on the disk, or a `Stream`.

    Args:
        text: Training text.
        plans: View name → how its tokens are made.
        batch_size: Sentences a step, over all processes together.
        max_length: Tokens a sentence is cut to, specials included.
        seed: Seed of order and text augmentation.
        rank: Number of this process.
        world: Number of processes.

    Raises:
        CseError: The batch is not a multiple of `world`.
    """

    text: TextT
    plans: Mapping[str, ViewPlan]
    batch_size: int
    max_length: int
    seed: int
    rank: int = 0
    world: int = 1

    def __post_init__(self) -> None:
        if self.batch_size % self.world:
            raise CseError(
                f"batch_size {self.batch_size} cannot be shared evenly by {self.world} processes",
                f"use a multiple of {self.world}",
            )

    @property
    def share(self) -> int:
        """Sentences of this process in a step."""
        return self.batch_size // self.world

    def batch(self, step: int) -> Batch:
        """Return view → tokens of step `step`, counted from 0 over all epochs."""
        raise NotImplementedError

    def state(self) -> Any:
        """Return what a checkpoint keeps beside the step: nothing, where seed and step say which batch it is."""

    def load_state(self, step: int, states: Sequence[Any]) -> None:
        """Go on after `step` steps.

        Args:
            step: Steps done.
            states: What `state` returned in each process, by rank.
        """

    def _views(
        self, tokens: Callable[[str, Vocabulary], Tokens], changed: Callable[[str, ViewPlan], Tokens]
    ) -> dict[str, Tokens]:
        """Return view → tokens.

        Args:
            tokens: A column as it is, and what tokenises it → its tokens in this batch.
            changed: A view that changes text, by name and plan → its tokens.
        """
        views = {}
        for name, plan in self.plans.items():
            own = changed(name, plan) if plan.changes_text else tokens(plan.column, plan.vocabulary)
            side = {column: tokens(column, vocabulary) for column, vocabulary in plan.side.items()}
            views[name] = replace(own, side=side) if side else own
        return views


@dataclass
class Batches(BatchSource[Text]):
    """The batches of a text that lies tokenised on the disk.

    Rows are drawn without replacement, in a new order each epoch; what does not fill a last batch is left out of that
    epoch.

    Args:
        progress: Called while a column is tokenised that the cache does not have.

    Raises:
        CseError: The batch is larger than the data.
    """

    progress: Progress | None = None
    _epoch: tuple[int, Order] | None = field(default=None, init=False)
    _tokens: dict[tuple[str, str], Column[list[int]]] = field(default_factory=dict, init=False)
    _sentences: dict[str, Column[str]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        if self.batch_size > self.text.rows:
            raise CseError(
                f"batch_size {self.batch_size} is larger than the data: {self.text.rows} sentences",
                "lower train.batch_size, or use more data",
            )
        super().__post_init__()
        for plan in self.plans.values():
            if plan.changes_text:
                self._sentences[plan.column] = self.text.sentences(plan.column)
            else:
                self._tokenise(plan.column, plan.vocabulary)
            for column, vocabulary in plan.side.items():
                self._tokenise(column, vocabulary)

    @property
    def steps_per_epoch(self) -> int:
        """Full batches in the data."""
        return self.text.rows // self.batch_size

    def indices(self, step: int) -> list[int]:
        """Return the rows of the data that all processes together see in a step."""
        epoch, place = divmod(step, self.steps_per_epoch)
        if self._epoch is None or self._epoch[0] != epoch:
            self._epoch = epoch, epoch_order(self.text.rows, self.seed, epoch)
        return self._epoch[1](place * self.batch_size, (place + 1) * self.batch_size)

    def batch(self, step: int) -> Batch:
        """Return view → tokens of step `step`, counted from 0 over all epochs."""
        indices = self.indices(step)
        own = self._own(indices)

        def tokens(column: str, vocabulary: Vocabulary) -> Tokens:
            return vocabulary.pad(self._tokens[column, vocabulary.fingerprint].take(own))

        def changed(name: str, plan: ViewPlan) -> Tokens:
            # Every process changes the whole batch, so that what is drawn does not depend on their number.
            own, alike = (Random(f"{self.seed}:{step}:{part}") for part in (name, ""))
            pieces = plan.pieces(self._sentences[plan.column].take(indices), own, alike, self.max_length)
            return plan.vocabulary.assemble(self._own(pieces))

        return self._views(tokens, changed)

    def _own(self, rows: list[T]) -> list[T]:
        """Return this process's share of a batch."""
        return rows[self.rank * self.share : (self.rank + 1) * self.share]

    def _tokenise(self, column: str, vocabulary: Vocabulary) -> None:
        key = (column, vocabulary.fingerprint)
        if key not in self._tokens:
            self._tokens[key] = self.text.tokens(column, vocabulary, self.max_length, self.progress)


# --- the order of rows ------------------------------------------------------------------------------------------------

Positions = npt.NDArray[np.int64]

Order = Callable[[int, int], list[int]]
"""First position and the one after the last → rows."""

SMALL = 2**24
"""Most rows whose order is `torch.randperm`, 8 bytes a row; above, `permuted` needs no memory."""


def epoch_order(rows: int, seed: int, epoch: int) -> Order:
    """Return the order of an epoch's rows."""
    key = derive_seed(seed, epoch)
    if rows > SMALL:
        return lambda start, stop: permuted(np.arange(start, stop), rows, key).tolist()
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(key))
    return lambda start, stop: order[start:stop].tolist()


def permuted(positions: Positions, rows: int, key: int) -> Positions:
    """Return what a keyed permutation of 0 … rows - 1 has at some positions; nothing of its length is held.

    A Feistel network of six rounds permutes the numbers of b bits, where 2^b is the least power not below `rows`;
    numbers beyond `rows` are sent through it again until they are below (cycle walking, at most twice on average).
    Black and Rogaway, Ciphers with arbitrary finite domains, CT-RSA 2002.

    Args:
        positions: (n,) int64, each from 0 to rows - 1.
        rows: Length of the permutation.
        key: Which one of them.

    Returns:
        (n,) int64, distinct where the positions are.
    """
    bits = max(2, (rows - 1).bit_length())
    widths = np.uint64(bits // 2), np.uint64(bits - bits // 2)  # left and right, which change places every round
    masks = [(np.uint64(1) << width) - np.uint64(1) for width in widths]
    keys = [np.uint64(derive_seed(key, number)) for number in range(6)]
    found = np.asarray(positions).astype(np.uint64)
    outside = np.ones(found.shape, dtype=bool)
    while outside.any():
        left, right = found[outside] >> widths[1], found[outside] & masks[1]
        for number, round_key in enumerate(keys):
            left, right = right, left ^ (_mix(right + round_key) & masks[number % 2])
        found[outside] = left << widths[1] | right
        outside = found >= rows
    return found.astype(np.int64)


def _mix(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return numbers in which each bit depends on all bits given: the finaliser of SplitMix64."""
    numbers = (numbers ^ numbers >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ numbers >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return numbers ^ numbers >> np.uint64(31)


def derive_seed(*parts: int) -> int:
    """Return a seed made of several numbers, unlike any neighbour's."""
    return int.from_bytes(hashlib.sha256(":".join(map(str, parts)).encode()).digest()[:7])


# --- made ahead -------------------------------------------------------------------------------------------------------

AHEAD = 2
"""Batches made in advance: one being copied, one being made."""


@dataclass(frozen=True)
class Size:
    """What one view of a batch holds.

    Args:
        places: Rows times the length they are padded to.
        tokens: Real ones among them.
        squares: Σ over rows of the square of their tokens: what attention grows with.
    """

    places: int
    tokens: int
    squares: int

    @staticmethod
    def of(mask: torch.Tensor) -> Size:
        """Return that of a mask (B, L), on the CPU."""
        lengths = mask.sum(dim=1)
        return Size(mask.numel(), int(lengths.sum()), int((lengths * lengths).sum()))


@dataclass(frozen=True)
class Ready:
    """One step's batch.

    Args:
        batch: View → tokens, on the CPU; in pinned memory where they go to a GPU.
        sizes: View → what it holds.
        state: Of the `BatchSource` after it, for a checkpoint.
    """

    batch: Batch
    sizes: Mapping[str, Size]
    state: Any = None


class Feed:
    """Gives batches by step, and makes the next ones in a thread where that pays.

    On a GPU it does: the host only queues kernels there, and copies from pinned memory do not make it wait. On a CPU a
    thread takes time from the step itself, and there is little to gain: of a SimCSE step with mini_en (64 sentences,
    computed by one thread) batches are 0.5 of 263 ms, of an ESimCSE step, which repeats words and tokenises anew, 3 of
    332 ms; made ahead, the two took 265 and 342 ms of processor time. So there they are made when they are asked for.

    Args:
        make: Step → its batch; called in one thread only.
        total: Steps of the whole training: none beyond is made.
        device: Where the batches go.
        ahead: Whether to make the next ones in a thread; None is where it pays.
        state: Returns the state of what makes them; called after `make`, in the same thread.
    """

    def __init__(
        self,
        make: Callable[[int], Batch],
        total: int,
        device: torch.device,
        ahead: bool | None = None,
        state: Callable[[], Any] = lambda: None,
    ) -> None:
        self._make = make
        self._state = state
        self._total = total
        self._device = device
        threaded = device.type == "cuda" if ahead is None else ahead
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="batches") if threaded else None
        self._coming: dict[int, Future[Ready]] = {}

    def take(self, step: int) -> Ready:
        """Return a step's batch, and have the next ones made. What fails in the thread fails here, at its step."""
        if self._thread is None:
            return self._ready(step)
        if step not in self._coming:  # the first one, or after a jump
            self._cancel()
        for wanted in range(step, max(step + 1, min(step + AHEAD + 1, self._total))):
            if wanted not in self._coming:
                self._coming[wanted] = self._thread.submit(self._ready, wanted)
        return self._coming.pop(step).result()

    def close(self) -> None:
        """End the thread, once it has finished the batch in hand."""
        self._cancel()
        if self._thread is not None:
            self._thread.shutdown(wait=True, cancel_futures=True)

    def _cancel(self) -> None:
        for future in self._coming.values():
            future.cancel()
        self._coming.clear()

    def _ready(self, step: int) -> Ready:
        batch, state = self._make(step), self._state()
        sizes = {view: Size.of(tokens.mask) for view, tokens in batch.items()}
        if self._device.type == "cuda":
            if self._device.index is not None:
                torch.cuda.set_device(self._device)  # a thread begins with the first one
            batch = {view: each_tensor(tokens, Tensor.pin_memory) for view, tokens in batch.items()}
        return Ready(batch, sizes, state)


def each_tensor(tokens: Tokens, act: Callable[[Tensor], Tensor]) -> Tokens:
    """Return tokens with `act` applied to all their tensors, those of other columns included."""
    named = {each.name: getattr(tokens, each.name) for each in fields(tokens)}
    changed: dict[str, Any] = {name: act(value) for name, value in named.items() if isinstance(value, Tensor)}
    side = {column: each_tensor(other, act) for column, other in tokens.side.items()}
    return replace(tokens, **changed, side=side)
