"""What components receive: marks that say where a value comes from, and what a step and a model tell them.

Shapes as in `registry.types`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal, Protocol

import torch
from torch import Tensor

from registry.tokens import Embedded, Encoded, Tokens

Batch = Mapping[str, Tokens]
"""View name → its tokens; row i of every view is the same sentence."""


class Encode(Protocol):
    """All an evaluator knows of a model."""

    def __call__(self, sentences: Sequence[str]) -> Tensor:
        """Return (n, D) float32 vectors on the CPU, row i for sentence i."""

    def through(self, view: str, columns: Mapping[str, Sequence[str]], training: bool = False) -> Tensor:
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
class AllDevices:
    """Marks a tensor gathered from every device, with gradient."""


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
"""(N, D): a view's sentence vectors from every device, with gradient."""

ViewName = Annotated[str, NamesAView()]
"""The name of a view declared in the recipe."""

ModelName = Annotated[str, Resource("model")]
"""A model: directory, name below $CSE_MODELS, hub id."""

DatasetName = Annotated[str, Resource("dataset")]
"""A data set of the catalogue, or of the hub as "hf:owner/name"."""

FileName = Annotated[str, Resource("file")]
"""A file of the user's; a relative path counts from the current folder, then from $CSE_DATA."""


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
        """Return (B, L, W): ∂loss/∂token vectors of `view` at the unperturbed point, of the whole batch's loss."""

    def sentences(self, view: str) -> Tensor:
        """Return (N, D): the view's sentence vectors from every device, detached: what a queue stores."""


@dataclass(frozen=True)
class Reference:
    """A parameter of a component that names another part of the recipe."""

    parameter: str
    kind: str = field(metadata={"values": ("encoder", "view")})
