"""Parameters and inputs for contract checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from registry import ENCODERS, LOSSES
from registry.machinery.core import Entry
from registry.prompts import Side
from registry.tokens import Embedded, Encoded, Tokens
from registry.types import Encoder

MODELS = ("model", "generator", "discriminator")
"""Names of parameters whose value is a checkpoint."""

WRAPPED = "info_nce"
"""Loss that a wrapper computes."""

NOTHING: Mapping[str, Any] = MappingProxyType({})
SENTENCES = (
    "the cat sees a dog .",
    "a woman sings",
    "three small red cats run in the house",
    "dog",
    "not on the street",
)


class ContractError(AssertionError):
    """A component that violates the contract of its kind."""


def require(entry: Entry[Any], kept: bool, promise: str) -> None:
    """Raise `ContractError` with component, file and promise, if the promise is not kept.

    Args:
        entry: Component.
        kept: Whether it keeps the promise.
        promise: Required behavior, as a verb phrase.
    """
    if not kept:
        raise ContractError(f"{entry.kind}/{entry.name} ({entry.file}:{entry.line}): {promise}")


@dataclass(frozen=True)
class Materials:
    """Values of parameters for contract checks.

    Args:
        model: Directory of a small transformers checkpoint, the value of the parameters `model`, `generator` and
            `discriminator`.
        values: "kind/name" → values of a component's parameters instead of its defaults.
        identity: "augmenters/name" → values with which the augmenter changes nothing.

    Examples:
        >>> Materials(values={"losses/my_loss": {"size": 3}}).values["losses/my_loss"]["size"]
        3
    """

    model: Path | None = None
    values: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    identity: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @cached_property
    def encoder(self) -> Encoder:
        """Encoder for components that require one: the "transformer" with `model`."""
        if self.model is None:
            raise ContractError("the component requires an encoder: set the `model` directory of Materials")
        return ENCODERS["transformer"].build({"model": str(self.model)})

    def arguments(self, entry: Entry[Any], more: Mapping[str, Any] = NOTHING) -> dict[str, Any]:
        """Return values of the parameters of `entry`.

        Raises:
            ContractError: If a parameter without default has no value.
        """
        fields = entry.parameters.model_fields
        named = {"encoder": "online", "loss": WRAPPED, "view": "anchor"}
        values: dict[str, Any] = {r.parameter: named[r.kind] for r in entry.references}
        if self.model is not None:
            values |= {name: str(self.model) for name in MODELS if name in fields}
        values |= {**self.values.get(f"{entry.kind}/{entry.name}", NOTHING), **more}
        missing = [name for name, about in fields.items() if about.is_required() and name not in values]
        require(entry, not missing, f"has a value for each parameter: add {', '.join(missing)} to Materials")
        return values

    def build(self, entry: Entry[Any], more: Mapping[str, Any] = NOTHING) -> Any:
        """Return the component, built from `arguments`, the encoder and the loss "info_nce"."""
        kinds = {r.kind for r in entry.references}
        encoders = {"online": self.encoder} if "encoder" in kinds else {}
        losses = {WRAPPED: LOSSES[WRAPPED].build({})} if "loss" in kinds else {}
        return entry.build(self.arguments(entry, more), encoders, losses)


class OneStep:
    """A training step whose views have the given sentence embeddings.

    Args:
        vectors: (N, D) sentence embeddings of every view.
        index: Number of finished steps.
    """

    def __init__(self, vectors: Tensor, index: int = 0) -> None:
        self.vectors = vectors
        self.index = index
        self.total = 10
        self.generator = torch.Generator().manual_seed(index)
        self.embedded: dict[str, Embedded] = {}
        self.views: dict[str, Encoded] = {"anchor": self._encoded(index)}

    def _encoded(self, index: int) -> Encoded:
        """Return the encoded view with two random tokens per sentence."""
        ids = 5 + draw(index, len(self.vectors), 2).abs().mul(10).long()
        ones = torch.ones_like(ids)
        tokens = Tokens(ids, ones, torch.zeros_like(ids), torch.arange(2).expand_as(ids))
        states = self.vectors.detach().unsqueeze(1).expand(-1, 2, -1)
        return Encoded(self.vectors, states, states, tokens)

    def gradient(self, view: str) -> Tensor:
        """Return ones with the shape of the view's token embeddings."""
        return torch.ones_like(self.embedded[view].vectors)

    def sentences(self, view: str) -> Tensor:  # noqa: ARG002 - every view is the same
        """Return the given embeddings."""
        return self.vectors


class WidthOnly(Encoder):
    """An encoder without weights, whose embeddings are a fixed function of the token IDs."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = self.width = dim

    def embed(self, tokens: Tokens) -> Tensor:
        """Return a sine wave for each ID."""
        return torch.sin(tokens.ids.unsqueeze(-1) * torch.arange(1.0, self.width + 1))

    def encode(self, tokens: Tokens, embeddings: Tensor) -> Encoded:
        """Return the sum over tokens without padding."""
        return Encoded((embeddings * tokens.mask.unsqueeze(-1)).sum(dim=1), embeddings, embeddings, tokens)


def draw(seed: int, *shape: int) -> Tensor:
    """Return normal random numbers for a seed."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@dataclass(frozen=True)
class PlainEncode:
    """An `Encode` without views.

    Args:
        vectors: Function that returns (n, D) embeddings of n sentences.
    """

    vectors: Callable[[Sequence[str]], Tensor]

    def __call__(self, sentences: Sequence[str], side: Side | None = None, prompts: Sequence[str] = ()) -> Tensor:  # noqa: ARG002 - a protocol
        """Return the embeddings."""
        return self.vectors(sentences)

    def encode_view(self, view: str, columns: Mapping[str, Sequence[str]], training: bool = False) -> Tensor:  # noqa: ARG002 - a protocol
        """Return the embeddings of the first column."""
        return self(next(iter(columns.values())))
