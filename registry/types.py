"""Base classes of components, and the types of their parameters and inputs.

This module is the interface for plug-ins: see docs/extend.md. `registry.testing` checks a new component.

Shapes: B sentences on this device, N = B × devices, L tokens, W token width, D sentence width, K queue entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Annotated, Any, ClassVar, Literal, Protocol, get_args

import torch
from pydantic import Field
from torch import Tensor, nn

from registry.errors import CseError
from registry.prompts import Prompts, Side
from registry.tokens import Embedded, Encoded, Pieces, Sample, Tokens, Vocabulary

# --- parameters and inputs --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AllDevices:
    """Mark of a tensor that is gathered from all devices, with gradient.

    Args:
        before_heads: Whether the tensor is the input of the training heads.
    """

    before_heads: bool = False


@dataclass(frozen=True)
class FromColumn:
    """Mark of a tensor with the numbers of a column of the data, gathered from all devices."""


@dataclass(frozen=True)
class NamesAView:
    """Mark of a parameter that contains the name of a view in the recipe."""


@dataclass(frozen=True)
class Resource:
    """Mark of a parameter that names a model, a data set or a file, which a run downloads before it starts.

    Args:
        kind: Kind of resource. The parameter `split` of the same component names the split of a data set. Without such
            a parameter, all splits are read.
        evaluated: Value that means all splits of the evaluators' data sets.
    """

    kind: Literal["model", "dataset", "file"]
    evaluated: str | None = None


@dataclass(frozen=True)
class Package:
    """Mark of a parameter that requires an optional package if it is set. `cse check` names packages that are missing.

    Args:
        name: Name for `import` and for `pip install`.
    """

    name: str


@dataclass(frozen=True)
class Tune:
    """Default search range of a parameter for `cse tune`.

    Args:
        low: Smallest value.
        high: Largest value.
        log: Whether to search on a logarithmic scale.
        step: Distance between values.

    Examples:
        >>> Temperature = Annotated[float, Tune(0.01, 0.5, log=True)]
    """

    low: float
    high: float
    log: bool = False
    step: float | None = None


Sentences = Annotated[Tensor, AllDevices()]
"""(N, D): sentence embeddings of a view from all devices, with gradient.

`tuple[Sentences, ...]` takes several views, which the recipe lists. The same holds for `Pooled` and `Encoded`."""

Labels = Annotated[Tensor, FromColumn()]
"""(N,): numbers of the column of the data that the parameter `column` of the loss names, from all devices."""

Pooled = Annotated[Tensor, AllDevices(before_heads=True)]
"""(N, D′): sentence embeddings before the training heads. `encoder.project` applies the heads to other vectors."""

ViewName = Annotated[str, NamesAView()]
"""Name of a view in the recipe."""

ModelName = Annotated[str, Resource("model")]
"""Model: directory, name in $CSE_MODELS, or ID on the Hub."""

DatasetName = Annotated[str, Resource("dataset")]
"""Data set of the catalog, or of the Hub as "hf:owner/name"."""

FileName = Annotated[str, Resource("file")]
"""Path of a file, absolute or relative to the current directory or to $CSE_DATA."""


BuiltIn = Literal["cls", "mean", "last2", "first_last", "mask", "last_mask", "last", "weighted_mean", "text"]
"""Poolings of this package: see `registry.poolings`."""

BUILT_IN: frozenset[str] = frozenset(get_args(BuiltIn))


@dataclass(frozen=True)
class Reference:
    """A parameter that names another part of the recipe."""

    parameter: str
    kind: str = field(metadata={"values": ("encoder", "view", "loss")})


Batch = Mapping[str, Tokens]
"""View name → tokens. Row i of all views comes from the same sentence."""


class Encode(Protocol):
    """Function from sentences to embeddings: the only access of an evaluator to a model."""

    def __call__(self, sentences: Sequence[str], side: Side | None = None, prompts: Sequence[str] = ()) -> Tensor:
        """Return (n, D) float32 embeddings on the CPU, row i for sentence i.

        Args:
            sentences: Sentences without prompts.
            side: Side of the sentences in retrieval, "query" or "document".
            prompts: Names of prompts that have priority over those of the side, best first.
        """

    def encode_view(self, view: str, columns: Mapping[str, Sequence[str]], training: bool = False) -> Tensor:
        """Return the embeddings of sentences after the augmenters of a view.

        Args:
            view: View of the recipe.
            columns: Column of the data → cells. Contains the column of the view and those that its augmenters read.
            training: Whether to return the (n, D') embeddings that losses compare, with dropout, the pooling and the
                heads of training. Random numbers differ between views, but not between calls.

        Raises:
            CseError: If the view does not exist, or a column is missing.
        """


@dataclass(frozen=True)
class Negatives:
    """Entries of a queue, without gradient.

    Args:
        vectors: (K, D) embeddings. K is 0 if there is no queue or it is empty.
        log_weights: (K,) natural logarithm of the weight of each entry in a softmax. −inf disables an entry.
    """

    vectors: Tensor
    log_weights: Tensor

    @staticmethod
    def none(like: Tensor) -> Negatives:
        """Return an empty queue with the width, type and device of `like` (…, D)."""
        return Negatives(like.new_zeros((0, like.shape[-1])), like.new_zeros(0))


class Step(Protocol):
    """A training step, as its components see it."""

    index: int
    """Number of finished steps. 0 in the first step."""
    total: int
    """Number of steps of the run."""
    generator: torch.Generator
    """Random generator with the same state on all devices."""

    @property
    def embedded(self) -> Mapping[str, Embedded]:
        """View → token embeddings, for the views that were embedded so far."""

    @property
    def views(self) -> Mapping[str, Encoded]:
        """View → output of its encoder. Complete after all encoders ran."""

    def gradient(self, view: str) -> Tensor:
        """Return (B, L, W): gradient of the whole batch's loss with respect to the unperturbed token embeddings."""

    def sentences(self, view: str) -> Tensor:
        """Return (N, D): sentence embeddings of a view from all devices, without gradient, for a queue."""


# --- kinds of components ----------------------------------------------------------------------------------------------


class Component:
    """Base class of all components. By default, its hooks do nothing."""

    version: ClassVar[int] = 1
    """Version of a component of this package, raised when its numbers change. Files identify the code of plug-ins."""
    stateful: ClassVar[bool] = True
    """Whether checkpoints contain the weights. False for frozen modules that are loaded by name."""

    @classmethod
    def check_settings(cls, given: Mapping[str, Any]) -> None:
        """Check that parameters fit together, by their values only: `cse check` builds nothing.

        Raises:
            CseError: If they do not.
        """

    def bind(self, encoder: Encoder) -> None:
        """Store the encoder of the view of an augmenter or a queue. Called once.

        Raises:
            CseError: If the two are not compatible, for example because their widths differ.
        """

    def after_step(self, step: Step) -> None:
        """Update the state after a step of the optimizer, for example of a queue or a momentum encoder."""

    def report(self) -> dict[str, float]:
        """Return metric → value for the run's record, such as the number of unchanged sentences."""
        return {}

    def notices(self) -> list[str]:
        """Return warnings for the user. Each is shown once."""
        return []


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
    """Text in front of sentences in evaluation. An encoder with a template has none."""
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
        """Encoder whose embeddings this one adjusts, or this encoder itself."""
        return self

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

    def returned_metrics(self) -> tuple[str, ...]:
        """Return those of `metrics` that `__call__` returns with these parameters."""
        return self.metrics

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


class Generator(Component):
    """Base class of generators, which make training text: the rows of a data set, or a column of one."""


class RowGenerator(Generator):
    """Base class of generators of the rows of a data set. The same parameters give the same rows.

    Examples:
        >>> class Counting(RowGenerator):
        ...     '''Sentences with a number.'''
        ...
        ...     def rows(self, split):
        ...         return ({"text": f"Number {number}."} for number in range(3))
        >>> next(Counting().rows("train"))
        {'text': 'Number 0.'}
    """

    def rows(self, split: str) -> Iterator[dict[str, str]]:
        """Yield rows as column → cell: `text` for training, or `subset`, `score`, `sentence1` and `sentence2`."""
        raise NotImplementedError


class ColumnGenerator(Generator):
    """Base class of generators of a column from another one. Equal cells get equal results, in any order.

    Examples:
        >>> class Backwards(ColumnGenerator):
        ...     '''The words of each sentence in reverse order.'''
        ...
        ...     def make(self, cells, count=None):
        ...         return [" ".join(reversed(cell.split())) for cell in cells]
        >>> Backwards().make(["a red house"])
        ['house red a']
    """

    column: str = "text"
    """Column that is read."""
    warning: str = ""
    """Warning for the user about the parameters, or ""."""

    @property
    def action(self) -> str:
        """Description for the progress line, such as "translating text to de"."""
        return f"reading {self.column}"

    def identity(self) -> str | None:
        """Return everything that decides a cell apart from the code, or None if that is only the parameters."""
        return None

    def use(self, device: torch.device, dtype: torch.dtype, batch_tokens: int | None = None) -> None:
        """Move to a device.

        Args:
            device: Device.
            dtype: Data type of weights and activations.
            batch_tokens: Maximum number of tokens in a batch. None chooses a size for the device.
        """

    def make(self, cells: Sequence[str], count: Callable[[int], None] | None = None) -> list[str]:
        """Return one cell for each cell, on one line. `count` gets the number of cells finished since then."""
        raise NotImplementedError


# --- optimizers and schedules, which `train.optimizer` and `train.schedule` name --------------------------------------

# A parameter with the name of a key of [train], such as `betas`, has the value of this key. The keys
# `optimizer_settings` and `schedule_settings` of [train] set the others.

Decay = Annotated[float, Field(ge=0, lt=1)]
Betas = Annotated[list[Decay], Field(min_length=2, max_length=2)]
Positive = Annotated[float, Field(gt=0)]


class Optimizer(Component):
    """Base class of optimizers.

    Examples:
        >>> class Momentum(Optimizer):
        ...     '''Gradient descent with momentum.'''
        ...
        ...     copies = 1
        ...
        ...     def __init__(self, momentum: Decay = 0.9) -> None:
        ...         self.momentum = momentum
        ...
        ...     def build(self, groups, learning_rate):
        ...         return torch.optim.SGD(groups, lr=learning_rate, momentum=self.momentum)
        >>> weight = torch.nn.Parameter(torch.ones(1))
        >>> Momentum().build([{"params": [weight], "weight_decay": 0.0}], 0.1).param_groups[0]["momentum"]
        0.9
    """

    copies: ClassVar[int] = 2
    """Number of values that it keeps for each trained weight, to estimate the size of a checkpoint."""

    def build(self, groups: list[dict[str, Any]], learning_rate: float) -> torch.optim.Optimizer:
        """Return the optimizer of torch.

        Args:
            groups: Groups of weights with their "weight_decay", as torch takes them.
            learning_rate: Peak learning rate. Each step sets the one of the schedule.
        """
        raise NotImplementedError


class Schedule(Component):
    """Base class of schedules of the learning rate after the warm-up.

    Examples:
        >>> class Halved(Schedule):
        ...     '''Half of the learning rate in the second half of the training.'''
        ...
        ...     def rate(self, peak, step, total, warmup):
        ...         return peak if step < total / 2 else peak / 2
        >>> [Halved().rate(1.0, step, 4, 0) for step in range(4)]
        [1.0, 1.0, 0.5, 0.5]
    """

    def rate(self, peak: float, step: int, total: int, warmup: int) -> float:
        """Return the learning rate of a step.

        Args:
            peak: Peak learning rate.
            step: Number of finished steps, at least `warmup`.
            total: Number of steps of the training.
            warmup: Number of steps of the warm-up, in which the learning rate rises linearly to the peak.
        """
        raise NotImplementedError


def take_shape_from_checkpoint(module: nn.Module, buffer: str, *, only_if_empty: bool) -> None:
    """Resize a buffer to its shape in a checkpoint before the checkpoint is loaded.

    Args:
        module: Module with the buffer.
        buffer: Name of the buffer.
        only_if_empty: Whether to resize only an empty buffer. For others, torch rejects a different shape.
    """

    def resize(owner: Any, state: Mapping[str, Tensor], prefix: str, *_: Any) -> None:
        present, stored = getattr(owner, buffer), state.get(prefix + buffer)
        if stored is not None and not (only_if_empty and present.numel()):
            setattr(owner, buffer, present.new_zeros(stored.shape))

    module.register_load_state_dict_pre_hook(resize)  # type: ignore[no-untyped-call]
