"""The values that travel through a training step, and the base classes of components.

Shapes: B sentences on this device, N = B × devices, L tokens, W token width, D sentence width, K queue entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Annotated, ClassVar, Protocol

import torch
from torch import Tensor, nn

from registry.tokens import Embedded, Encoded, Sample, Tokens, Vocabulary

Batch = Mapping[str, Tokens]
"""View name → its tokens; row i of every view is the same sentence."""

Encode = Callable[[Sequence[str]], Tensor]
"""Sentences → (n, D) float32 vectors on the CPU, row i for sentence i: all an evaluator knows of a model."""


@dataclass(frozen=True)
class AllDevices:
    """Marks a tensor gathered from every device, with gradient."""


@dataclass(frozen=True)
class NamesAView:
    """Marks a parameter whose value is the name of one of the recipe's views."""


@dataclass(frozen=True)
class Tune:
    """The range `cse tune` searches for a parameter, declared beside its bounds.

    Args:
        low: Smallest value tried.
        high: Largest value tried.
        log: Whether to search on a logarithmic scale.
        step: Spacing of the values, for integers mostly.
    """

    low: float
    high: float
    log: bool = False
    step: float | None = None


Sentences = Annotated[Tensor, AllDevices()]
"""(N, D): a view's sentence vectors from every device, with gradient."""

ViewName = Annotated[str, NamesAView()]
"""The name of a view declared in the recipe."""


@dataclass(frozen=True)
class Negatives:
    """What the queue holds, detached.

    Args:
        vectors: (K, D); K is 0 where there is no queue or it is empty.
        log_weights: (K,) natural logarithm of each entry's weight in a softmax; −inf switches an entry off.
    """

    vectors: Tensor
    log_weights: Tensor

    @staticmethod
    def none(like: Tensor) -> Negatives:
        """Return zero entries of the width, type and device of `like` (…, D)."""
        return Negatives(like.new_zeros((0, like.shape[-1])), like.new_zeros(0))


class Step(Protocol):
    """What one training step tells its components."""

    index: int
    """Steps done before this one: 0 at the first."""
    total: int
    generator: torch.Generator
    """The same stream on every device."""

    @property
    def embedded(self) -> Mapping[str, Embedded]:
        """Token vectors of the views perturbed so far."""

    @property
    def views(self) -> Mapping[str, Encoded]:
        """View → what its encoder made of it; complete once all encoders ran."""

    def gradient(self, view: str) -> Tensor:
        """Return (B, L, W): ∂loss/∂token vectors of `view` at the unperturbed point."""

    def sentences(self, view: str) -> Tensor:
        """Return (N, D): the view's sentence vectors from every device, detached: what a queue stores."""


class Component:
    """A registered part. Every hook does nothing unless overridden."""

    stateful: ClassVar[bool] = True
    """Whether a module's weights belong in checkpoints; False for frozen parts that are loaded by name."""

    def bind(self, encoder: Encoder) -> None:
        """See, once, the encoder of the view an augmenter or a queue works on.

        Raises:
            CseError: The two do not fit, for example because their widths differ.
        """

    def after_step(self, step: Step) -> None:
        """Act after the optimiser's step: a queue fills, a momentum encoder follows."""


class Augmenter(Component):
    """Makes one view differ from another. Override the level it acts on; the others pass through."""

    column: str | None = None
    """A second column of the data that it reads, found tokenised at `tokens.side[column]`."""
    vocabulary: Vocabulary | None = None
    """What tokenises that column."""

    def on_text(self, samples: list[Sample], rng: Random) -> list[Sample]:  # noqa: ARG002 - a hook
        """Change sentences before the tokeniser."""
        return samples

    def on_tokens(self, tokens: Tokens, step: Step) -> Tokens:  # noqa: ARG002 - a hook
        """Change token ids, mask or positions."""
        return tokens

    def on_embeddings(self, embedded: Embedded, view: str, step: Step) -> Embedded:  # noqa: ARG002 - a hook
        """Change token vectors, before the embedding dropout."""
        return embedded


class Encoder(Component, nn.Module):
    """Turns tokens into sentence vectors, in two calls so that augmenters can act between them."""

    dim: int
    """D: width of `Encoded.sentence`."""
    width: int
    """W: width of the token vectors `embed` returns."""
    max_length: int | None = None
    """Tokens it can take at most; None where there is no limit."""
    augment_at: str = "layer"
    """Where `embed` stops: "layer" after the embedding layer (before its dropout), "word" at the word vectors."""
    vocabulary: Vocabulary

    def embed(self, tokens: Tokens) -> Tensor:
        """Return (B, L, W) token vectors, before any dropout."""
        raise NotImplementedError

    def encode(self, tokens: Tokens, embeddings: Tensor) -> Encoded:
        """Drop, contextualise, pool and apply the training heads."""
        raise NotImplementedError

    def represent(self, tokens: Tokens) -> Tensor:
        """Return (B, D') the vectors evaluation uses, in eval mode: no dropout, no training-only head."""
        raise NotImplementedError

    def export(self, folder: Path, max_length: int) -> None:
        """Write a directory that transformers and sentence-transformers load unchanged.

        Args:
            folder: Made if missing.
            max_length: Tokens, specials included, that a loader truncates at.
        """
        raise NotImplementedError


class Loss(Component, nn.Module):
    """A scalar to minimise. `forward` declares its inputs by type: views, `Encoded` views, queue negatives."""


class Queue(Component, nn.Module):
    """Sentence vectors of earlier steps, served as extra negatives."""

    def negatives(self) -> Negatives:
        """Return the filled part, detached."""
        raise NotImplementedError


class Evaluator(Component):
    """Scores a model. A parameter called `split` tells dev from test; only dev scores may select a state."""

    metric: ClassVar[str]
    """The metric a leaderboard shows."""
    metrics: ClassVar[tuple[str, ...]]
    """Every key that `__call__` returns."""

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Return metric → value."""
        raise NotImplementedError

    def fingerprints(self) -> dict[str, str]:
        """Return "dataset/split" → content digest of the data read."""
        return {}


class Generator(Component):
    """Makes a data set instead of reading one; deterministic."""

    def rows(self, split: str) -> Iterator[dict[str, str]]:
        """Yield rows: `text` (and more columns) to train on, `subset score sentence1 sentence2` to evaluate on."""
        raise NotImplementedError


@dataclass(frozen=True)
class Reference:
    """A parameter of a component that names another part of the recipe."""

    parameter: str
    kind: str = field(metadata={"values": ("encoder", "view")})


__all__ = [
    "AllDevices", "Augmenter", "Batch", "Component", "Embedded", "Encode", "Encoded", "Encoder", "Evaluator",
    "Generator", "Loss", "NamesAView", "Negatives", "Queue", "Reference", "Sample", "Sentences", "Step", "Tokens",
    "Tune", "ViewName", "Vocabulary",
]  # fmt: skip
