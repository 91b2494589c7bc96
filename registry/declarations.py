"""Types of parameters and inputs. Import them from `registry.types`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal, Protocol

import torch
from torch import Tensor

from registry.prompts import Side
from registry.tokens import Embedded, Encoded, Tokens


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
