"""Batches as a pure function of seed and step, so that a resumed run sees what an unbroken one does."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import TypeVar

import torch

from cse_cli.data.sources import Text
from cse_cli.data.tokens import Progress, TextColumn, TokenColumn
from registry.errors import CseError
from registry.types import Augmenter, Sample, Tokens, Vocabulary

T = TypeVar("T")


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
    _epoch: tuple[int, torch.Tensor] | None = field(default=None, init=False)
    _tokens: dict[tuple[str, str], TokenColumn] = field(default_factory=dict, init=False)
    _sentences: dict[str, TextColumn] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        if self.batch_size > self.text.rows:
            raise CseError(
                f"batch_size {self.batch_size} is larger than the data: {self.text.rows} sentences",
                "lower train.batch_size, or use more data",
            )
        if self.batch_size % self.world:
            raise CseError(
                f"batch_size {self.batch_size} cannot be shared evenly by {self.world} processes",
                f"use a multiple of {self.world}",
            )
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
            generator = torch.Generator().manual_seed(_derived(self.seed, epoch))
            self._epoch = epoch, torch.randperm(self.text.rows, generator=generator)
        rows: list[int] = self._epoch[1][place * self.batch_size : (place + 1) * self.batch_size].tolist()
        return rows

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
        rng = Random(f"{self.seed}:{step}:{name}")
        for augmenter in plan.augmenters:
            samples = augmenter.on_text(samples, rng)
        pieces = plan.vocabulary.pieces(samples, self.max_length)
        for augmenter in plan.augmenters:
            pieces = augmenter.on_pieces(pieces, rng)
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


def _derived(*parts: int) -> int:
    """Return a seed made of several numbers, unlike any neighbour's."""
    return int.from_bytes(hashlib.sha256(":".join(map(str, parts)).encode()).digest()[:7])
