"""The base classes of components, and by re-export the values that travel through a training step.

Shapes: B sentences on this device, N = B × devices, L tokens, W token width, D sentence width, K queue entries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Literal

from torch import Tensor, nn

from registry.errors import CseError
from registry.tokens import Embedded, Encoded, Pieces, Sample, Tokens, Vocabulary
from registry.values import (
    AllDevices,
    Batch,
    DatasetName,
    Encode,
    FileName,
    ModelName,
    NamesAView,
    Negatives,
    Reference,
    Resource,
    Sentences,
    Step,
    Tune,
    ViewName,
)  # fmt: skip


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

    def report(self) -> dict[str, float]:
        """Return figures about itself for the run's record, such as how often it had to fall back."""
        return {}

    def notices(self) -> list[str]:
        """Return what the user should be told, each sentence once."""
        return []


class Augmenter(Component):
    """Makes one view differ from another. Override the level it acts on; the others pass through."""

    column: str | None = None
    """A second column of the data that it reads, found tokenised at `tokens.side[column]`."""
    vocabulary: Vocabulary | None = None
    """What tokenises that column."""

    def on_text(self, samples: list[Sample], rng: Random) -> list[Sample]:  # noqa: ARG002 - a hook
        """Change sentences before the tokeniser."""
        return samples

    def on_pieces(self, pieces: list[Pieces], rng: Random) -> list[Pieces]:  # noqa: ARG002 - a hook
        """Change sub-words of the whole batch, after the tokeniser and before special tokens are added."""
        return pieces

    def on_tokens(self, tokens: Tokens, step: Step) -> Tokens:  # noqa: ARG002 - a hook
        """Change token ids, mask or positions."""
        return tokens

    def on_embeddings(self, embedded: Embedded, view: str, step: Step) -> Embedded:  # noqa: ARG002 - a hook
        """Change token vectors, before the embedding dropout."""
        return embedded


class Head(Component, nn.Module):
    """Stands between the pooled vector and the losses; part of the encoder that the recipe puts it under."""

    def fit(self, width: int, encoder: Encoder) -> int:
        """Make the weights for vectors `width` wide; return the width of what comes out.

        Raises:
            CseError: `encoder` lacks what the head starts from.
        """
        raise NotImplementedError

    def forward(self, pooled: Tensor, groups: Sequence[tuple[str, int]]) -> Tensor:
        """Return (B, out).

        Args:
            pooled: (B, width), the rows of several views below each other.
            groups: View and its rows, in order; empty where all rows are of one view.
        """
        raise NotImplementedError

    def dense(self) -> tuple[Tensor, Tensor, str] | None:
        """Return weight (out, width), bias (out,) and "Tanh" or "Identity" if one such layer is all the head does."""
        return None


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
    memory: float = 0.0
    """Steps its weights look back on average: 1/(1 − decay) for a momentum encoder."""
    fits: Literal["never", "once", "each"] = "never"
    """When evaluation calls `fit`: for each state scored, or for each evaluator with that one's own sentences."""
    vocabulary: Vocabulary

    def attach(self, heads: Mapping[str, Head]) -> None:
        """Put training heads behind the pooling, in order.

        Raises:
            CseError: It takes none, or one of them does not fit.
        """
        if heads:
            raise CseError(
                f"{type(self).__name__} takes no heads: {', '.join(heads)}", "put them under the encoder it is made of"
            )

    def fit(self, encode: Encode, target: Sequence[str]) -> None:
        """Adjust to unlabelled sentences before it is scored.

        Args:
            encode: Gives this encoder's vectors before any adjustment while `fit` runs.
            target: The evaluator's own sentences where `fits` is "each", else none.
        """

    def fingerprints(self) -> dict[str, str]:
        """Return "dataset/split" → content digest of the data it is fitted to."""
        return {}

    def expect(self, *, hidden_read: bool, rows_at_once: int | None) -> None:
        """Hear, once, what training will ask of `encode`, so that no more is computed.

        Args:
            hidden_read: Whether a loss reads `Encoded.hidden`; else it may hold the first token alone, (B, 1, D).
            rows_at_once: Rows of a batch to hold in memory at a time; None is all.
        """

    def embed(self, tokens: Tokens) -> Tensor:
        """Return (B, L, W) token vectors, before any dropout."""
        raise NotImplementedError

    def encode(self, tokens: Tokens, embeddings: Tensor) -> Encoded:
        """Drop, contextualise, pool and apply the training heads."""
        raise NotImplementedError

    def represent(self, tokens: Tokens, embeddings: Tensor | None = None) -> Tensor:
        """Return (B, D') the vectors evaluation uses, in eval mode: no dropout, no training-only head.

        Args:
            tokens: What is read.
            embeddings: (B, L, W) token vectors instead of those `embed` returns.
        """
        raise NotImplementedError

    @property
    def foundation(self) -> Encoder:
        """Whose `represent` this one's comes from by `finished`, where it is fitted to finished vectors; else itself.

        Only one process of several fits; all of them can run what lies below.
        """
        return self

    def finished(self, vectors: Tensor) -> Tensor:
        """Return what `represent` makes of the float32 vectors of `foundation`."""
        return vectors

    def export(self, folder: Path, max_length: int) -> None:
        """Write a directory that transformers and sentence-transformers load unchanged.

        Args:
            folder: Made if missing.
            max_length: Tokens, specials included, that a loader truncates at.
        """
        raise NotImplementedError


class Loss(Component, nn.Module):
    """A scalar to minimise. `forward` declares its inputs by type: views, `Encoded` views, queue negatives."""

    steering: ClassVar[frozenset[str]] = frozenset()
    """Inputs that only weigh or choose: no gradient goes into them."""
    reads_hidden: bool = True
    """Of its `Encoded` inputs, whether it reads `hidden`; False spares the states of all tokens but the first."""


class Queue(Component, nn.Module):
    """Vectors served as extra negatives: sentences of earlier steps, or made for the step."""

    view: str
    """The view whose vectors it holds or resembles."""
    length: int | None = None
    """Most entries kept over steps; None where nothing is kept."""

    def observe(self, step: Step) -> None:
        """See the step's encoded views before the losses are computed."""

    def negatives(self) -> Negatives:
        """Return the filled part, detached."""
        raise NotImplementedError


class Evaluator(Component):
    """Scores a model. A parameter called `split` tells dev from test; only dev scores may select a state."""

    metric: ClassVar[str]
    """The metric a leaderboard shows."""
    metrics: ClassVar[tuple[str, ...]]
    """Every key that `__call__` returns."""
    suites: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Word that `cse evaluate --tasks` takes → the tasks of it that this evaluator scores, in order: names that
    `parameters_for` knows, or its own. Several evaluators may share a word."""

    @classmethod
    def parameters_for(cls, name: str) -> dict[str, Any] | None:  # noqa: ARG003 - the hook's form
        """Return the parameters with which it scores what a user calls `name`; None where that is not its business.

        Raises:
            CseError: It is, but cannot be scored so.
        """
        return None

    def shown_metrics(self) -> tuple[str, ...]:
        """Return the metrics that a table shows of it where it stands alone."""
        return self.metrics

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Return metric → value."""
        raise NotImplementedError

    def series(self) -> Mapping[str, Sequence[float]]:
        """Return name → the numbers behind a figure, of the last call; nothing before it."""
        return {}

    def texts(self) -> Sequence[str]:
        """Return the sentences of its whole data set, all splits, without labels: what transductive methods fit on."""
        return ()

    def fingerprints(self) -> dict[str, str]:
        """Return "dataset/split" → content digest of the data read."""
        return {}


class Generator(Component):
    """Makes a data set instead of reading one; deterministic."""

    def rows(self, split: str) -> Iterator[dict[str, str]]:
        """Yield rows: `text` (and more columns) to train on, `subset score sentence1 sentence2` to evaluate on."""
        raise NotImplementedError


__all__ = [
    "AllDevices", "Augmenter", "Batch", "Component", "DatasetName", "Embedded", "Encode", "Encoded", "Encoder",
    "Evaluator", "FileName", "Generator", "Head", "Loss", "ModelName", "NamesAView", "Negatives", "Pieces", "Queue",
    "Reference", "Resource", "Sample", "Sentences", "Step", "Tokens",
    "Tune", "ViewName", "Vocabulary",
]  # fmt: skip
