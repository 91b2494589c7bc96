"""Values of a component's parameters: a pydantic model that is read like a table."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from pydantic import BaseModel, ConfigDict


class Parameters(BaseModel):
    """Values of every parameter of a component, validated once: when a recipe is read.

    `registry.machinery.signature` makes a subclass of each component's signature. Iteration yields pairs of name and
    value.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False, protected_namespaces=())

    def __getitem__(self, name: str) -> Any:
        """Return the value of a parameter. `KeyError` if the component does not have it."""
        if name in self:
            return getattr(self, name)
        raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        return name in type(self).model_fields or name in (self.model_extra or ())

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of a parameter, or a default if the component does not have it."""
        return getattr(self, name) if name in self else default

    def __reduce__(self) -> tuple[Callable[..., Parameters], tuple[()]]:
        """Pickle only the values: another process validates them again, because it makes its own subclasses."""
        return partial(UnvalidatedParameters, **dict(self)), ()


class UnvalidatedParameters(Parameters):
    """Values of parameters that are not validated: of an unknown component, only some of them, or from a process."""

    model_config = ConfigDict(extra="allow")
