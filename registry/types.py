"""Base classes of components, and the types of their parameters and inputs.

This module is the interface for plug-ins: see docs/extend.md. `registry.testing` checks a new component.

Shapes: B sentences on this device, N = B × devices, L tokens, W token width, D sentence width, K queue entries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Literal

from torch import Tensor, nn

from registry.buffers import take_shape_from_checkpoint
from registry.component import Component
from registry.declarations import (
    AllDevices,
    Batch,
    DatasetName,
    Encode,
    FileName,
    FromColumn,
    Labels,
    ModelName,
    NamesAView,
    Negatives,
    Pooled,
    Reference,
    Resource,
    Sentences,
    Step,
    Tune,
    ViewName,
)
from registry.errors import CseError
from registry.generation import ColumnGenerator, Generator, RowGenerator
from registry.optimization import Optimizer, Schedule
from registry.prompts import Prompts
from registry.tokens import Embedded, Encoded, Pieces, Sample, Tokens, Vocabulary

__all__ = [
    "AllDevices", "Augmenter", "Batch", "ColumnGenerator", "Component", "DatasetName", "Encode", "Encoder",
    "Evaluator", "FileName", "FromColumn", "Generator", "Head", "Labels", "Loss", "ModelName", "NamesAView",
    "Negatives", "Optimizer", "Pooled", "Queue", "Reference", "Resource", "RowGenerator", "Schedule", "Sentences",
    "Step", "Tune", "ViewName", "take_shape_from_checkpoint",
]  # fmt: skip

# --- kinds of components ----------------------------------------------------------------------------------------------


class Augmenter(Component):
    """Base class of augmenters, which make views of one sentence differ.

    Override the method of one level: text, sub-words, token IDs or token embeddings. The others return their input.

    Examples:
        >>> class Lowercase(Augmenter):
        ...     '''Lower-case the sentence.'''
        ...
        ...     def on_text(self, samples, rng):
        ...         return [sample.changed(str.lower) for sample in samples]
        >>> Lowercase().on_text([Sample("A Dog")], Random(0))[0].text
        'a dog'
    """

    column: str | None = None
    """Second column of the data, whose tokens are in `tokens.side[column]`.

    It is the value of the parameter `column`, or an attribute of the class."""
    vocabulary: Vocabulary | None = None
    """Tokenizer of that column."""
    reads_whole_text: ClassVar[bool] = False
    """Whether `on_pieces` receives the whole text, which is truncated after the augmenters of the view."""
    draws_alike: ClassVar[bool] = False
    """Whether `on_text` and `on_pieces` receive the same random numbers in all views of a step."""

    def on_text(self, samples: list[Sample], rng: Random) -> list[Sample]:  # noqa: ARG002 - a hook
        """Return the samples of a batch with changed sentences."""
        return samples

    def on_pieces(self, pieces: list[Pieces], rng: Random) -> list[Pieces]:  # noqa: ARG002 - a hook
        """Return the sub-words of a batch, changed before special tokens are added."""
        return pieces

    def on_tokens(self, tokens: Tokens, step: Step) -> Tokens:  # noqa: ARG002 - a hook
        """Return the tokens of a batch with changed IDs, mask or positions."""
        return tokens

    def on_embeddings(self, embedded: Embedded, view: str, step: Step) -> Embedded:  # noqa: ARG002 - a hook
        """Return the token embeddings of a batch, changed before the embedding dropout."""
        return embedded


class Head(Component, nn.Module):
    """Base class of training heads, which transform the pooled embedding before the losses.

    Examples:
        >>> class Linear(Head):
        ...     '''One linear layer without bias.'''
        ...
        ...     def fit(self, width, encoder):
        ...         self.layer = nn.Linear(width, width, bias=False)
        ...         return width
        ...
        ...     def forward(self, pooled, groups):
        ...         return self.layer(pooled)
        >>> head = Linear()
        >>> head.fit(8, encoder=None), tuple(head(torch.ones(2, 8), groups=()).shape)
        (8, (2, 8))
    """

    def fit(self, width: int, encoder: Encoder) -> int:
        """Create the weights and return the output width.

        Args:
            width: D′, width of the input.
            encoder: Encoder that the head belongs to.

        Raises:
            CseError: If the encoder lacks a layer that the head copies.
        """
        raise NotImplementedError

    def forward(self, pooled: Tensor, groups: Sequence[tuple[str, int]]) -> Tensor:
        """Return (B, output width).

        Args:
            pooled: (B, width) embeddings. The rows of several views are concatenated.
            groups: View and number of rows, in order. Empty if all rows belong to one view.
        """
        raise NotImplementedError

    def dense(self) -> tuple[Tensor, Tensor, str] | None:
        """Return weight (out, width), bias (out,) and "Tanh" or "Identity" if the head is one such layer, else None."""
        return None


class Encoder(Component, nn.Module):
    """Base class of encoders, which map tokens to sentence embeddings.

    `embed` and `encode` are separate, so that augmenters can change token embeddings between them.

    Examples:
        >>> class MeanOfWords(Encoder):
        ...     '''Mean of trainable word embeddings.'''
        ...
        ...     def __init__(self, vocabulary, dim=8):
        ...         super().__init__()
        ...         self.vocabulary, self.dim, self.width = vocabulary, dim, dim
        ...         self.words = nn.Embedding(vocabulary.size, dim)
        ...
        ...     def embed(self, tokens):
        ...         return self.words(tokens.ids)
        ...
        ...     def encode(self, tokens, embeddings):
        ...         weights = tokens.mask[..., None].float()
        ...         mean = (embeddings * weights).sum(1) / weights.sum(1)
        ...         return Encoded(sentence=mean, embeddings=embeddings, hidden=embeddings, tokens=tokens)
        ...
        ...     def encode_for_eval(self, tokens, embeddings=None):
        ...         given = isinstance(embeddings, Tensor)
        ...         return self.encode(tokens, embeddings if given else self.embed(tokens)).sentence
    """

    dim: int
    """D: width of `Encoded.sentence`."""
    width: int
    """W: width of the token embeddings that `embed` returns."""
    max_length: int | None = None
    """Maximum input length in tokens, or None if there is no limit."""
    augment_at: str = "layer"
    """Output of `embed`: "layer" is that of the embedding layer before its dropout, "word" the word embeddings."""
    memory: float = 0.0
    """Average age of the weights in steps: 1/(1 − decay) for a momentum encoder."""
    fits: Literal["never", "once", "each"] = "never"
    """When evaluation calls `fit`: never, once for a state, or for each evaluator with its sentences."""
    continuous: bool = True
    """Whether small changes of the weights cause small changes of the embeddings. False for ranks."""
    vocabulary: Vocabulary
    """Tokenizer of the encoder."""
    prompts: Prompts = Prompts()
    """Text in front of sentences in evaluation."""
    normalizes: bool = False
    """Whether evaluation scales the embeddings to length 1."""

    def attach(self, heads: Mapping[str, Head]) -> None:
        """Add training heads after the pooling, in order.

        Raises:
            CseError: If the encoder supports no heads, or one of them is not compatible.
        """
        if heads:
            raise CseError(
                f"{type(self).__name__} does not support heads: {', '.join(heads)}",
                "move them to the encoder that it is made of",
                code="encoder.no_heads",
            )

    def fit(self, encode: Encode, target: Sequence[str]) -> None:
        """Fit the encoder to unlabeled sentences before evaluation.

        Args:
            encode: Function that returns embeddings of this encoder before any adjustment.
            target: Sentences of the evaluator if `fits` is "each", else empty.
        """

    def fingerprints(self) -> dict[str, str]:
        """Return "dataset/split" → digest of the data that the encoder is fitted to."""
        return {}

    def expect(self, *, hidden_read: bool, mini_batch_size: int | None) -> None:
        """Configure which outputs of `encode` training reads, so that no others are computed. Called once.

        Args:
            hidden_read: Whether a loss reads `Encoded.hidden`. Otherwise it can contain only the first token,
                (B, 1, D).
            mini_batch_size: Number of rows to process at a time, or None for the whole batch.
        """

    def keep_attentions(self, blocks: Sequence[int]) -> None:
        """Configure the blocks whose attention weights `Encoded.attentions` contains. Default: none. Called once.

        Args:
            blocks: Indices of transformer blocks, counted from 0.

        Raises:
            CseError: If the encoder has no attention weights, or no such block.
        """
        raise CseError(
            f"a loss reads attention weights of blocks {list(blocks)}, but {type(self).__name__} has none",
            'use a "transformer" encoder of the BERT family for this view',
            code="encoder.no_attentions",
        )

    def keep_layers(self) -> None:
        """Make `Encoded.layers` contain the pooled states of every block, or raise `CseError`. Called once."""
        raise CseError(
            f"a loss reads the states of all layers, but {type(self).__name__} returns only one",
            'use a "transformer" encoder for this view',
            code="encoder.no_layers",
        )

    def embed(self, tokens: Tokens) -> Tensor:
        """Return (B, L, W) token embeddings before any dropout."""
        raise NotImplementedError

    def encode(self, tokens: Tokens, embeddings: Tensor) -> Encoded:
        """Apply dropout, the transformer blocks, pooling and the training heads to token embeddings (B, L, W)."""
        raise NotImplementedError

    def project(self, pooled: Tensor) -> Tensor:
        """Return the output (B, D) of the training heads for vectors (B, D′). Without heads, return the vectors."""
        return pooled

    def encode_for_eval(self, tokens: Tokens, embeddings: Tensor | None = None) -> Tensor:
        """Return (B, D') embeddings for evaluation: without dropout and training heads.

        Args:
            tokens: Tokens of B sentences.
            embeddings: (B, L, W) token embeddings instead of those of `embed`.
        """
        raise NotImplementedError

    @property
    def foundation(self) -> Encoder:
        """Encoder whose embeddings `finished` adjusts, or this encoder itself.

        Only one of several processes calls `fit`, but all of them can run the foundation.
        """
        return self

    def finished(self, vectors: Tensor) -> Tensor:
        """Return the adjusted embeddings for float32 embeddings of `foundation`."""
        return vectors

    def export(self, folder: Path, max_length: int) -> None:
        """Write a directory that transformers and sentence-transformers load unchanged.

        Args:
            folder: Directory, which is created if it does not exist.
            max_length: Maximum number of tokens, including special tokens, in the exported settings.
        """
        raise NotImplementedError

    @classmethod
    def open(cls, folder: Path, settings: Mapping[str, Any]) -> Encoder:  # noqa: ARG003 - the hook's form
        """Return the encoder of a directory that `export` wrote with `registry.saving.save_encoder`.

        Args:
            folder: Directory.
            settings: Settings that `export` gave to `save_encoder`.

        Raises:
            CseError: If the encoder cannot be opened again.
        """
        raise CseError(
            f"{folder}: {cls.__name__} cannot be opened again",
            "override its class method `open`",
            code="encoder.cannot_be_opened",
        )


class Loss(Component, nn.Module):
    """Base class of losses. `forward` returns a scalar to minimize.

    The annotations of `forward` declare its inputs: `Sentences`, `Pooled` and `Encoded` are views, `Negatives` are the
    entries of a queue, and `Labels` are the numbers of a column of the data.

    Examples:
        >>> class Contrast(Loss):
        ...     '''Cross-entropy over the cosine similarities of two views.'''
        ...
        ...     def forward(self, anchor: Sentences, positive: Sentences) -> Tensor:
        ...         anchor, positive = nn.functional.normalize(anchor), nn.functional.normalize(positive)
        ...         return nn.functional.cross_entropy(anchor @ positive.T / 0.05, torch.arange(len(anchor)))
        >>> vectors = torch.eye(4)
        >>> Contrast()(vectors, vectors).item() < 1e-6
        True
    """

    steering: frozenset[str] = frozenset()
    """Inputs without gradient, such as those that only weight or select, or a teacher's."""
    targets: frozenset[str] = frozenset()
    """Those of `steering` that other inputs are compared with, so that their width is the same."""
    reads_hidden: bool = True
    """Whether the loss reads `hidden` of its `Encoded` inputs. False saves the states of all tokens after the first."""
    reads_attentions: Sequence[int] = ()
    """Indices of the blocks whose attention weights the loss reads from its `Encoded` inputs, counted from 0."""
    reads_layers: bool = False
    """Whether `forward` has an argument `layers`: its other inputs for each block of the encoder except the last."""
    column: str = "score"
    """Column of its `Labels`. It is the value of the parameter `column`, or an attribute of the class."""


class Queue(Component, nn.Module):
    """Base class of queues, which provide additional negatives, for example sentences of earlier steps.

    Examples:
        >>> class LastBatch(Queue):
        ...     '''Sentence embeddings of the previous step.'''
        ...
        ...     def __init__(self, view: ViewName) -> None:
        ...         super().__init__()
        ...         self.view, self.stored = view, torch.zeros(0, 8)
        ...
        ...     def after_step(self, step):
        ...         self.stored = step.sentences(self.view)
        ...
        ...     def negatives(self):
        ...         return Negatives(self.stored, self.stored.new_zeros(len(self.stored)))
        >>> tuple(LastBatch("online").negatives().vectors.shape)
        (0, 8)
    """

    view: str
    """View whose embeddings it contains or imitates."""
    length: int | None = None
    """Maximum number of entries that are kept between steps, or None if it keeps none."""

    def observe(self, step: Step) -> None:
        """Read the encoded views of a step before the losses are computed."""

    def negatives(self) -> Negatives:
        """Return the entries without gradient."""
        raise NotImplementedError


class Evaluator(Component):
    """Base class of evaluators, which score models.

    A parameter with the name `split` distinguishes the dev split from the test split. Only dev scores can select a
    checkpoint.

    Examples:
        >>> class Spread(Evaluator):
        ...     '''Standard deviation of the embeddings of two sentences.'''
        ...
        ...     metric = "spread"
        ...     metrics = ("spread",)
        ...
        ...     def __call__(self, encode):
        ...         return {"spread": encode(["A dog.", "A cat."]).std().item()}
        >>> Spread()(lambda sentences: torch.zeros(len(sentences), 8))
        {'spread': 0.0}
    """

    metric: ClassVar[str]
    """Metric that the leaderboard shows."""
    metrics: ClassVar[tuple[str, ...]]
    """Keys of the dictionary that `__call__` returns."""
    suites: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Name of a suite for `cse evaluate --tasks` → its tasks that this evaluator scores, in order. Tasks are names that
    `parameters_for` supports, or the name of the evaluator. Several evaluators can share a suite."""

    @classmethod
    def parameters_for(cls, name: str) -> dict[str, Any] | None:  # noqa: ARG003 - the hook's form
        """Return the parameters for a task, or None if the evaluator does not support it.

        Args:
            name: Name of the task in `cse evaluate --tasks`.

        Raises:
            CseError: If the task exists, but cannot be scored under this name.
        """
        return None

    @classmethod
    def tasks_of(cls, suite: str) -> Mapping[str, dict[str, Any]]:  # noqa: ARG003 - the hook's form
        """Return name → parameters of the tasks of a suite that is not in `suites`, or nothing if it does not exist."""
        return {}

    limit: int | None = None
    """Maximum number of pairs or rows to read, which `evaluate.limit` sets. None reads all."""

    def shown_metrics(self) -> tuple[str, ...]:
        """Return the metrics for a table with only this evaluator."""
        return self.metrics

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Return metric → value."""
        raise NotImplementedError

    def series(self) -> Mapping[str, Sequence[float]]:
        """Return name → values for a figure of the last call. Empty before the first call."""
        return {}

    def save(self, folder: Path, about: Mapping[str, Any]) -> bool:  # noqa: ARG002 - the hook's form
        """Write the result of the last call in the format of another program. Return whether there is such a format.

        `about` contains "name", "revision" and "settings" of the model, the settings that a user changed.
        """
        return False

    def texts(self) -> Sequence[str]:
        """Return the sentences of all splits, on which transductive methods are fitted."""
        return ()

    def fingerprints(self) -> dict[str, str]:
        """Return "dataset/split" → digest of the data."""
        return {}

    def word_overlap(self) -> dict[str, float]:
        """Return metric → value with the word overlap of pairs instead of an encoder. Empty if this is not defined."""
        return {}
