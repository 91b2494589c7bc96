"""Components: how their parameters are declared, what a step and a model give them, and the base class of each kind.

Shapes: B sentences on this device, N = B × devices, L tokens, W token width, D sentence width, K queue entries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Annotated, Any, ClassVar, Literal, Protocol

import torch
from torch import Tensor, nn

from registry.errors import CseError
from registry.tokens import Embedded, Encoded, Pieces, Sample, Tokens, Vocabulary

# --- declarations -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AllDevices:
    """Marks a tensor gathered from every device, with gradient.

    Args:
        before_heads: Whether it is read before the training heads.
    """

    before_heads: bool = False


@dataclass(frozen=True)
class NamesAView:
    """Marks a parameter whose value is the name of one of the recipe's views."""


@dataclass(frozen=True)
class Resource:
    """Marks a parameter that names what must be on the machine before a run: a model, a data set or a file.

    Args:
        kind: What it names. The split of a data set is the parameter `split` of the same component; without such a
            parameter every split is read.
        evaluated: A value that stands for the evaluators' own data sets, of all their splits.
    """

    kind: Literal["model", "dataset", "file"]
    evaluated: str | None = None


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
"""(N, D): a view's sentence vectors from every device, with gradient.

`tuple[Sentences, ...]` takes several views, which the recipe lists; so do tuples of the other two kinds of views."""

Pooled = Annotated[Tensor, AllDevices(before_heads=True)]
"""(N, D′): the same before the training heads; what they make of other vectors is `encoder.project`."""

ViewName = Annotated[str, NamesAView()]
"""The name of a view declared in the recipe."""

ModelName = Annotated[str, Resource("model")]
"""A model: directory, name below $CSE_MODELS, hub id."""

DatasetName = Annotated[str, Resource("dataset")]
"""A data set of the catalogue, or of the hub as "hf:owner/name"."""

FileName = Annotated[str, Resource("file")]
"""A file of the user's; a relative path counts from the current folder, then from $CSE_DATA."""


@dataclass(frozen=True)
class Reference:
    """A parameter of a component that names another part of the recipe."""

    parameter: str
    kind: str = field(metadata={"values": ("encoder", "view")})


# --- what components are given ----------------------------------------------------------------------------------------

Batch = Mapping[str, Tokens]
"""View name → its tokens; row i of every view is the same sentence."""


class Encode(Protocol):
    """All an evaluator knows of a model."""

    def __call__(self, sentences: Sequence[str]) -> Tensor:
        """Return (n, D) float32 vectors on the CPU, row i for sentence i."""

    def encode_view(self, view: str, columns: Mapping[str, Sequence[str]], training: bool = False) -> Tensor:
        """Return the same for sentences changed as a view's augmenters change them in training.

        Args:
            view: A view of the recipe.
            columns: Column of the data → its cells: the view's own column, and those its augmenters read.
            training: Give what losses compare, (n, D'): dropout on, the pooling and the heads of training. What is
                drawn differs from view to view, and is the same in every call.

        Raises:
            CseError: There is no such view, or a column is missing.
        """


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
    """What a training step gives its components."""

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
        """Return (B, L, W): ∂loss/∂token vectors of `view` at the unperturbed point, of the whole batch's loss."""

    def sentences(self, view: str) -> Tensor:
        """Return (N, D): the view's sentence vectors from every device, detached: what a queue stores."""


# --- kinds of components ----------------------------------------------------------------------------------------------


class Component:
    """A registered part. Every hook does nothing unless overridden."""

    stateful: ClassVar[bool] = True
    """Whether a module's weights belong in checkpoints; False for frozen parts that are loaded by name."""

    def bind(self, encoder: Encoder) -> None:
        """Receive, once, the encoder of the view that an augmenter or a queue works on.

        Raises:
            CseError: The two do not fit, for example because their widths differ.
        """

    def after_step(self, step: Step) -> None:
        """Act after the optimiser's step: a queue fills, a momentum encoder follows."""

    def report(self) -> dict[str, float]:
        """Return figures about itself for the run's record, such as how often it had to fall back."""
        return {}

    def notices(self) -> list[str]:
        """Return warnings for the user, each once."""
        return []


class Augmenter(Component):
    """Makes one view differ from another. Override the level it acts on; the others pass through."""

    column: str | None = None
    """A second column of the data that it reads, found tokenised at `tokens.side[column]`.

    A recipe names it by the parameter `column`; a component without that parameter sets it in the class."""
    vocabulary: Vocabulary | None = None
    """What tokenises that column."""
    reads_whole_text: ClassVar[bool] = False
    """Whether `on_pieces` is given uncut text; what the view's augmenters then leave is cut to the length limit."""
    draws_alike: ClassVar[bool] = False
    """Whether `on_text` and `on_pieces` draw the same numbers in every view of a step: for views that must agree."""

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
    continuous: bool = True
    """Whether vectors change as little as what they are made of: ranks do not, which jump where two change places."""
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
        """Note, once, what training reads from `encode`, so that no more is computed.

        Args:
            hidden_read: Whether a loss reads `Encoded.hidden`; else it may hold the first token alone, (B, 1, D).
            rows_at_once: Rows of a batch to hold in memory at a time; None is all.
        """

    def keep_attentions(self, blocks: Sequence[int]) -> None:
        """Note, once, whose weights `Encoded.attentions` must hold; without this call it holds none.

        Args:
            blocks: Blocks, counted from 0.

        Raises:
            CseError: It gives none, or has no such block.
        """
        raise CseError(
            f"a loss reads attention weights of blocks {list(blocks)}, and {type(self).__name__} gives none",
            'let the view go through a "transformer" encoder of the BERT family',
        )

    def embed(self, tokens: Tokens) -> Tensor:
        """Return (B, L, W) token vectors, before any dropout."""
        raise NotImplementedError

    def encode(self, tokens: Tokens, embeddings: Tensor) -> Encoded:
        """Drop, contextualise, pool and apply the training heads."""
        raise NotImplementedError

    def project(self, pooled: Tensor) -> Tensor:
        """Return (B, D) what the training heads make of (B, D′) vectors; the same vectors where there are no heads."""
        return pooled

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


@contextmanager
def dropout_rate(encoder: Encoder, rate: float | None) -> Iterator[None]:
    """Give all dropout of an encoder another rate within this block; None leaves it alone."""
    parts = [] if rate is None else [part for part in encoder.modules() if isinstance(part, nn.Dropout)]
    own = [part.p for part in parts]
    try:
        for part in parts:
            part.p = rate or 0.0
        yield
    finally:
        for part, p in zip(parts, own, strict=True):
            part.p = p


class Loss(Component, nn.Module):
    """A scalar to minimise. `forward` declares its inputs by type: views, `Encoded` views, queue negatives."""

    steering: ClassVar[frozenset[str]] = frozenset()
    """Inputs that only weigh or choose: no gradient goes into them."""
    reads_hidden: bool = True
    """Of its `Encoded` inputs, whether it reads `hidden`; False spares the states of all tokens but the first."""
    reads_attentions: Sequence[int] = ()
    """Of its `Encoded` inputs, the blocks, counted from 0, whose attention weights it reads."""


class Queue(Component, nn.Module):
    """Vectors served as extra negatives: sentences of earlier steps, or made for the step."""

    view: str
    """The view whose vectors it holds or resembles."""
    length: int | None = None
    """Most entries kept over steps; None where nothing is kept."""

    def observe(self, step: Step) -> None:
        """Read the step's encoded views before the losses are computed."""

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
        """Return the parameters with which it scores what a user calls `name`; None if it does not score that.

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


def take_shape_from_checkpoint(module: nn.Module, buffer: str, *, only_if_empty: bool) -> None:
    """Let a buffer of `module` take the shape that a checkpoint has for it before that is loaded.

    Args:
        module: Owner of the buffer.
        buffer: Its name.
        only_if_empty: Leave a buffer alone that has values: torch then refuses another shape.
    """

    def resize(owner: Any, state: Mapping[str, Tensor], prefix: str, *_: Any) -> None:
        present, stored = getattr(owner, buffer), state.get(prefix + buffer)
        if stored is not None and not (only_if_empty and present.numel()):
            setattr(owner, buffer, present.new_zeros(stored.shape))

    module.register_load_state_dict_pre_hook(resize)  # type: ignore[no-untyped-call]
