"""Poolings: functions from the states of a sentence's tokens to its embedding, registered by name.

A plug-in adds one with the entry point `cse.poolings`, or in a Python file:

    @POOLINGS.register("max")
    def maximum(states: Sequence[Tensor], mask: Tensor) -> Tensor:
        '''Return the largest value of each dimension over the real tokens.'''
        return states[0].masked_fill(mask[..., None] == 0, -torch.inf).amax(1)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, get_args

from pydantic import AfterValidator, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema
from torch import Tensor

from registry.core import Names, check_name
from registry.encoders.pooling import Pooling as BuiltIn
from registry.encoders.pooling import pool_tokens
from registry.errors import RegistrationError

Pool = Callable[[Sequence[Tensor], Tensor], Tensor]
"""Function of the states (B, L, D) of the pooling's `layers`, in their order, and the mask (B, L), 1 for real tokens.

It returns (B, D)."""


@dataclass(frozen=True)
class Pooling:
    """A registered pooling.

    Args:
        layers: Layers whose states it receives: 0 is the input of the first block, k the output of the k-th block, −1
            that of the last one.
    """

    name: str
    function: Pool
    layers: tuple[int, ...]

    def __call__(self, states: Sequence[Tensor], mask: Tensor) -> Tensor:
        """Return (B, D) for the states of all layers, or only the last one if `layers` has no other."""
        return self.function([states[layer] for layer in self.layers], mask)


@dataclass
class Poolings(Names[Pooling]):
    """The registered poolings."""

    kind: str = "poolings"

    def register(self, name: str, layers: Sequence[int] = (-1,)) -> Callable[[Pool], Pool]:
        """Return a decorator that registers a function.

        Args:
            name: Name in recipes, in lower case.
            layers: Layers whose states the function receives.

        Raises:
            RegistrationError: If the name is not valid or used, or the function has no docstring.
        """
        check_name(self.singular, name)

        def add(function: Pool) -> Pool:
            if not (function.__doc__ or "").strip():
                raise RegistrationError(f"pooling '{name}' has no docstring", code="component.no_docstring")
            known = self._entries.get(name)
            if known is not None and known.function.__module__ != function.__module__:
                raise RegistrationError(
                    f"two poolings have the name '{name}': of {known.function.__module__} and {function.__module__}",
                    "rename or remove one of them",
                    code="component.same_name",
                )
            self._entries[name] = Pooling(name, function, tuple(layers))
            return function

        return add


POOLINGS = Poolings()
"""Poolings of a transformer that do not read a template."""


@POOLINGS.register("cls")
def first(states: Sequence[Tensor], mask: Tensor) -> Tensor:
    """Return the state of the first real token."""
    return pool_tokens("cls", states[0], mask)


@POOLINGS.register("last")
def last(states: Sequence[Tensor], mask: Tensor) -> Tensor:
    """Return the state of the last real token."""
    return pool_tokens("last", states[0], mask)


@POOLINGS.register("mean")
def mean(states: Sequence[Tensor], mask: Tensor) -> Tensor:
    """Return the mean of the states of real tokens."""
    return pool_tokens("mean", states[0], mask)


@POOLINGS.register("weighted_mean")
def weighted_mean(states: Sequence[Tensor], mask: Tensor) -> Tensor:
    """Return the mean in which the t-th real token has the weight t."""
    return pool_tokens("weighted_mean", states[0], mask)


@POOLINGS.register("last2", layers=(-2, -1))
def last_two(states: Sequence[Tensor], mask: Tensor) -> Tensor:
    """Return the mean of real tokens over the last two layers."""
    return pool_tokens("mean", (states[0] + states[1]) / 2, mask)


@POOLINGS.register("first_last", layers=(0, -1))
def first_and_last(states: Sequence[Tensor], mask: Tensor) -> Tensor:
    """Return the mean of real tokens over the embedding layer's output and the last layer."""
    return pool_tokens("mean", (states[0] + states[1]) / 2, mask)


BUILT_IN = frozenset(get_args(BuiltIn))


def _registered(name: str) -> str:
    if name not in BUILT_IN and name not in POOLINGS.names():
        own = [repr(each) for each in POOLINGS.names() if each not in BUILT_IN]
        raise ValueError(f"Input should be {' or '.join(own) or 'your own pooling (`--plugin FILE`)'}")
    return name


@dataclass(frozen=True)
class _Names:
    """Mark of a parameter that names a pooling."""

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Return the schema with all names."""
        return {**handler(core), "enum": sorted({*BUILT_IN, *POOLINGS.names()})}


PoolingName = Annotated[str, AfterValidator(_registered), _Names()]
"""Name of a pooling of a plug-in."""
