"""Batches as a pure function of seed and step, so that a resumed run sees what an unbroken one does."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from cse_cli.data.sources import Text
from cse_cli.data.tokens import Progress, TextColumn, TokenColumn
from registry.errors import CseError
from registry.types import Augmenter, Pieces, Sample, Tokens, Vocabulary

T = TypeVar("T")
Positions = npt.NDArray[np.int64]

SMALL = 2**24
"""Most rows whose order is `torch.randperm`, 8 bytes a row: the order of all runs so far; above, it needs no memory."""


@dataclass(frozen=True)
class ViewPlan:
    """How a view's tokens are made from the data.

    Args:
        column: Column it reads.
        vocabulary: What tokenises it.
        side: Other columns its augmenters read → what tokenises those.
        augmenters: Its augmenters, in order; those that change text or sub-words act here.
    """

    column: str
    vocabulary: Vocabulary
    side: Mapping[str, Vocabulary] = field(default_factory=dict)
    augmenters: Sequence[Augmenter] = ()

    @property
    def changes_text(self) -> bool:
        """Whether an augmenter acts before special tokens are added, so that tokens cannot come from the cache."""
        return any(
            type(a).on_text is not Augmenter.on_text or type(a).on_pieces is not Augmenter.on_pieces
            for a in self.augmenters
        )


@dataclass
class Batches:
    """The training batches of one process.

    Rows are drawn without replacement, in a new order each epoch; what does not fill a last batch is left out of that
    epoch.

    Args:
        text: Training text.
        plans: View name → how its tokens are made.
        batch_size: Sentences a step, over all processes together.
        max_length: Tokens a sentence is cut to, specials included.
        seed: Seed of order and text augmentation.
        rank: Number of this process.
        world: Number of processes.
        progress: Told how far tokenising is, where the cache has nothing yet.

    Raises:
        CseError: The batch is larger than the data, or not a multiple of `world`.
    """

    text: Text
    plans: Mapping[str, ViewPlan]
    batch_size: int
    max_length: int
    seed: int
    rank: int = 0
    world: int = 1
    progress: Progress | None = None
    _epoch: tuple[int, Order] | None = field(default=None, init=False)
    _tokens: dict[tuple[str, str], TokenColumn] = field(default_factory=dict, init=False)
    _sentences: dict[str, TextColumn] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        if self.batch_size > self.text.rows:
            raise CseError(
                f"batch_size {self.batch_size} is larger than the data: {self.text.rows} sentences",
                "lower train.batch_size, or use more data",
            )
        check_share(self.batch_size, self.world)
        for plan in self.plans.values():
            if plan.changes_text:
                self._sentences[plan.column] = self.text.sentences(plan.column)
            else:
                self._prepare(plan.column, plan.vocabulary)
            for column, vocabulary in plan.side.items():
                self._prepare(column, vocabulary)

    @property
    def steps_per_epoch(self) -> int:
        """Full batches in the data."""
        return self.text.rows // self.batch_size

    def batch(self, step: int) -> dict[str, Tokens]:
        """Return view → tokens of step `step`, counted from 0 over all epochs."""
        indices = self.indices(step)
        return {name: self._view(name, plan, step, indices) for name, plan in self.plans.items()}

    def indices(self, step: int) -> list[int]:
        """Return the rows of the data that all processes together see in a step."""
        epoch, place = divmod(step, self.steps_per_epoch)
        if self._epoch is None or self._epoch[0] != epoch:
            self._epoch = epoch, epoch_order(self.text.rows, self.seed, epoch)
        return self._epoch[1](place * self.batch_size, (place + 1) * self.batch_size)

    def state(self) -> None:
        """Return nothing: seed and step say which batch it is."""

    def load_state(self, step: int, states: Sequence[Any]) -> None:
        """Do nothing."""

    def _view(self, name: str, plan: ViewPlan, step: int, indices: list[int]) -> Tokens:
        own = self._own(indices)
        if plan.changes_text:
            tokens = self._augmented(name, plan, step, indices)
        else:
            tokens = self._cached(plan.column, plan.vocabulary, own)
        side = {column: self._cached(column, vocabulary, own) for column, vocabulary in plan.side.items()}
        return replace(tokens, side=side) if side else tokens

    def _augmented(self, name: str, plan: ViewPlan, step: int, indices: list[int]) -> Tokens:
        """Return tokens of changed text: every process changes the whole batch, so their number does not matter."""
        samples = [Sample(sentence) for sentence in self._sentences[plan.column].take(indices)]
        pieces = pieces_of(plan, samples, Random(f"{self.seed}:{step}:{name}"), self.max_length)
        return plan.vocabulary.assemble(self._own(pieces))

    def _own(self, rows: list[T]) -> list[T]:
        """Return this process's share of a batch."""
        share = self.batch_size // self.world
        return rows[self.rank * share : (self.rank + 1) * share]

    def _prepare(self, column: str, vocabulary: Vocabulary) -> None:
        key = (column, vocabulary.fingerprint)
        if key not in self._tokens:
            self._tokens[key] = self.text.tokens(column, vocabulary, self.max_length, self.progress)

    def _cached(self, column: str, vocabulary: Vocabulary, rows: list[int]) -> Tokens:
        return vocabulary.pad(self._tokens[column, vocabulary.fingerprint].take(rows))


def check_share(batch_size: int, world: int) -> None:
    """Check that processes can share a batch evenly.

    Raises:
        CseError: They cannot.
    """
    if batch_size % world:
        raise CseError(
            f"batch_size {batch_size} cannot be shared evenly by {world} processes", f"use a multiple of {world}"
        )


def pieces_of(plan: ViewPlan, samples: list[Sample], rng: Random, max_length: int) -> list[Pieces]:
    """Return sentences as sub-words, changed by the view's augmenters."""
    for augmenter in plan.augmenters:
        samples = augmenter.on_text(samples, rng)
    pieces = plan.vocabulary.pieces(samples, max_length)
    for augmenter in plan.augmenters:
        pieces = augmenter.on_pieces(pieces, rng)
    return pieces


Order = Callable[[int, int], list[int]]
"""First position and the one after the last → rows."""


def epoch_order(rows: int, seed: int, epoch: int) -> Order:
    """Return the order of an epoch's rows."""
    key = derived(seed, epoch)
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
    keys = [np.uint64(derived(key, number)) for number in range(6)]
    found = np.asarray(positions).astype(np.uint64)
    outside = np.ones(found.shape, dtype=bool)
    while outside.any():
        left, right = found[outside] >> widths[1], found[outside] & masks[1]
        for number, round_key in enumerate(keys):
            left, right = right, left ^ (_mixed(right + round_key) & masks[number % 2])
        found[outside] = left << widths[1] | right
        outside = found >= rows
    return found.astype(np.int64)


def _mixed(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return numbers in which each bit depends on all bits given: the finaliser of SplitMix64."""
    numbers = (numbers ^ numbers >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ numbers >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return numbers ^ numbers >> np.uint64(31)


def derived(*parts: int) -> int:
    """Return a seed made of several numbers, unlike any neighbour's."""
    return int.from_bytes(hashlib.sha256(":".join(map(str, parts)).encode()).digest()[:7])
