"""Registries of components, one for each kind. They are filled by a scan of modules and by entry points.

torch is imported by the first scan, not by this module.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydantic import ValidationError

from registry.errors import CseError, RegistrationError, UnknownNameError, suggestion
from registry.machinery import plugins
from registry.machinery.parameters import Parameters
from registry.machinery.validation import describe

if TYPE_CHECKING:
    from torch import Tensor

    from registry.machinery.signature import Input
    from registry.types import (
        Augmenter,
        Component,
        Encoder,
        Evaluator,
        Generator,
        Head,
        Loss,
        Optimizer,
        Package,
        Queue,
        Reference,
        Resource,
        Schedule,
    )

E = TypeVar("E")
T = TypeVar("T", bound="Component")


@dataclass(frozen=True)
class Entry(Generic[T]):
    """A registered component and its declaration."""

    kind: str
    name: str
    cls: type[T]
    parameters: type[Parameters]
    references: tuple[Reference, ...]
    inputs: tuple[Input, ...]
    file: str
    line: int
    distribution: str

    @property
    def summary(self) -> str:
        """First line of the docstring."""
        return (inspect.getdoc(self.cls) or "").partition("\n")[0]

    @property
    def docstring(self) -> str:
        """Docstring, including the parameters of base classes."""
        from registry.machinery.signature import docstring

        return docstring(self.cls)

    @cached_property
    def resources(self) -> dict[str, Resource]:
        """Parameter → resource, for parameters that name a model, a data set or a file."""
        from registry.machinery.signature import marked
        from registry.types import Resource

        return marked(self.parameters, Resource)

    @cached_property
    def packages(self) -> dict[str, Package]:
        """Parameter → package, for parameters that require an optional package."""
        from registry.machinery.signature import marked
        from registry.types import Package

        return marked(self.parameters, Package)

    def build(
        self,
        values: Parameters | Mapping[str, Any],
        encoders: Mapping[str, Encoder] | None = None,
        losses: Mapping[str, Loss] | None = None,
    ) -> T:
        """Build the component from parameter values.

        Args:
            values: Validated parameters, or parameter → value, where other parameters have their defaults.
            encoders: Name → encoder, for parameters that name one.
            losses: Name → loss, for parameters that name one.
        """
        try:
            arguments = values if isinstance(values, self.parameters) else self.parameters(**dict(values))
        except ValidationError as error:
            raise CseError(
                f"{self.kind} '{self.name}': {describe(error)}",
                f"run `cse show {self.name}` to see its parameters",
                code="component.invalid_value",
            ) from error
        keywords = dict(arguments)
        known: dict[str, Mapping[str, Component]] = {"encoder": encoders or {}, "loss": losses or {}}
        for reference in self.references:
            if (parts := known.get(reference.kind)) is None:  # the name of a view is a value
                continue
            if (name := keywords[reference.parameter]) not in parts:
                raise UnknownNameError(
                    f"unknown {reference.kind} '{name}'.{suggestion(name, parts)}",
                    f"use one that the recipe has: {', '.join(list(parts)[:5])}",
                    code="component.unknown_reference",
                )
            keywords[reference.parameter] = parts[name]
        return self.cls(**keywords)


@dataclass
class Names(Generic[E]):
    """Names of one kind and what they stand for, of this package and of plug-ins.

    Args:
        kind: Plural name. The entry-point group `cse.<kind>` is scanned.
        base: Name of the base class in `registry.types`. Empty for functions.
    """

    kind: str
    base: str = ""
    broken: dict[str, str] = field(default_factory=dict)
    """Distribution and module of a plug-in → error of its import."""
    _entries: dict[str, E] = field(default_factory=dict)
    _disputed: dict[str, RegistrationError] = field(default_factory=dict)
    _scanned: bool = False

    @property
    def registered(self) -> Mapping[str, E]:
        """Name → entry of what is registered so far, without a search for others."""
        return self._entries

    @property
    def singular(self) -> str:
        """Kind of one entry, for messages."""
        return self.kind.removesuffix("s") if not self.kind.endswith("ses") else self.kind.removesuffix("es")

    def __getitem__(self, name: str) -> E:
        """Return an entry."""
        if name not in self:
            known = f"use one of {', '.join(sorted(self._entries))}"
            failed = "".join(f"\n  cannot import plug-in {plugin}: {why}" for plugin, why in self.broken.items())
            raise UnknownNameError(
                f"unknown {self.singular} '{name}'.{suggestion(name, self._entries)}{failed}",
                f"run `cse list {self.kind}` to see all {self.kind}" if self.base else known,
                code="component.unknown",
            )
        if name in self._disputed:
            raise self._disputed[name]
        return self._entries[name]

    def __contains__(self, name: str) -> bool:
        self.scan()
        return name in self._entries

    def __iter__(self) -> Iterator[E]:
        self.scan()
        return iter([self._entries[name] for name in sorted(self._entries)])

    def __len__(self) -> int:
        self.scan()
        return len(self._entries)

    def names(self) -> list[str]:
        """Return all registered names, sorted."""
        self.scan()
        return sorted(self._entries)

    def scan(self) -> None:
        """Import all modules of this kind and all plug-ins, once."""
        global _loading
        if not self._scanned:
            self._import_package()
            self._scanned = True  # before the plug-ins, whose import can look up a component
            for point in self._points:
                distribution = point.dist.name if point.dist else "unknown"
                outer, _loading = _loading, distribution
                try:
                    point.load()
                except (Exception, SystemExit) as error:  # the other plug-ins are loaded
                    why = error.message if isinstance(error, CseError) else f"{type(error).__name__}: {error}"
                    self.broken[f"{distribution} ({point.value})"] = why
                finally:
                    _loading = outer
        plugins.load_new()

    def _import_package(self) -> None:
        """Import the entries of this package, if they are not in the module of the registry."""

    @cached_property
    def _points(self) -> tuple[importlib.metadata.EntryPoint, ...]:
        return tuple(importlib.metadata.entry_points(group=f"cse.{self.kind}"))


class Registry(Names[Entry[T]], Generic[T]):
    """The components of one kind. The package `registry.<kind>` is scanned, too."""

    def register(self, name: str) -> Callable[[type[T]], type[T]]:
        """Return a decorator that registers a class.

        Args:
            name: Name in recipes, in lower case.
        """
        check_name(self.singular, name)

        def add(cls: type[T]) -> type[T]:
            self._entries[name] = self._describe(name, cls)
            return cls

        return add

    def _describe(self, name: str, cls: type[T]) -> Entry[T]:
        from registry import types
        from registry.machinery.signature import forward_inputs, owner, parameter_model

        if not (inspect.isclass(cls) and issubclass(cls, getattr(types, self.base))):
            raise RegistrationError(
                f"{owner(cls)} must extend {self.base} to be a {self.singular}", code="component.wrong_base"
            )
        if not (cls.__doc__ or "").strip():
            raise RegistrationError(
                f"{owner(cls)} has no docstring",
                "add one: `cse list` shows its first line",
                code="component.no_docstring",
            )
        if cls.__module__.startswith(f"registry.{self.kind}.") and not cls.__module__.endswith(f".{name}"):
            raise RegistrationError(
                f"{owner(cls)} has the name '{name}' in recipes, but its file has another one",
                f"rename the file to {name}.py: a component is imported by its name",
                code="component.wrong_file",
            )
        self._refuse_second_owner(name, cls)
        parameters, references = parameter_model(cls)
        try:
            file, line = inspect.getsourcefile(cls) or "", inspect.getsourcelines(cls)[1]
        except (OSError, TypeError):  # a class from an interpreter
            file, line = "", 0
        return Entry(
            kind=self.kind,
            name=name,
            cls=cls,
            parameters=parameters,
            references=references,
            inputs=forward_inputs(cls) if issubclass(cls, types.Loss) else (),
            file=file,
            line=line,
            distribution=_distribution(cls),
        )

    def _refuse_second_owner(self, name: str, cls: type[T]) -> None:
        from registry.machinery.signature import owner

        known = self._entries.get(name)
        if known is None or owner(known.cls) == owner(cls):
            return
        owners = f"{owner(known.cls)} (from {known.distribution}) and {owner(cls)} (from {_distribution(cls)})"
        error = RegistrationError(
            f"two {self.kind} have the name '{name}': {owners}",
            "rename or remove one of them",
            code="component.same_name",
        )
        if known.distribution != OWN:  # the order of plug-ins is undefined, so neither of them is used
            self._disputed[name] = error
        raise error

    def __contains__(self, name: str) -> bool:
        """Return whether a component exists. Its module has its name, and with plug-ins, all modules are imported."""
        plugins.load_new()
        module, alone = f"registry.{self.kind}.{name}", not self._points and name.isidentifier()
        if name not in self._entries and alone and importlib.util.find_spec(module) is not None:
            importlib.import_module(module)
        return name in self._entries or super().__contains__(name)

    def _import_package(self) -> None:
        package = importlib.import_module(f"registry.{self.kind}")
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"registry.{self.kind}.{module.name}")


def check_name(singular: str, name: object) -> None:
    """Raise `RegistrationError` if a name is not a lower-case identifier."""
    if not (isinstance(name, str) and re.fullmatch(r"[a-z][a-z0-9_]*", name)):
        raise RegistrationError(
            f"{name!r} is not a valid name of a {singular}",
            'write @….register("lower_case_name")',
            code="component.invalid_name",
        )


OWN = "cse"
"""Distribution of the components in this package."""

_loading = ""
"""Distribution of the entry point that is being imported."""


def _distribution(cls: type) -> str:
    """Return the distribution of a class: this package, the current plug-in, or its top-level package."""
    package = cls.__module__.partition(".")[0]
    return OWN if package == "registry" else _loading or package


Pool = Callable[[Sequence["Tensor"], "Tensor"], "Tensor"]
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
        """
        check_name(self.singular, name)

        def add(function: Pool) -> Pool:
            from registry.types import BUILT_IN

            if not (function.__doc__ or "").strip():
                raise RegistrationError(f"pooling '{name}' has no docstring", code="component.no_docstring")
            known = self._entries.get(name)
            owner = "registry.poolings" if name in BUILT_IN else known.function.__module__ if known else None
            if owner not in (None, function.__module__):
                raise RegistrationError(
                    f"two poolings have the name '{name}': of {owner} and {function.__module__}",
                    "rename or remove one of them",
                    code="component.same_name",
                )
            self._entries[name] = Pooling(name, function, tuple(layers))
            return function

        return add


AUGMENTERS: Registry[Augmenter] = Registry("augmenters", "Augmenter")
ENCODERS: Registry[Encoder] = Registry("encoders", "Encoder")
EVALUATORS: Registry[Evaluator] = Registry("evaluators", "Evaluator")
GENERATORS: Registry[Generator] = Registry("generators", "Generator")
HEADS: Registry[Head] = Registry("heads", "Head")
LOSSES: Registry[Loss] = Registry("losses", "Loss")
OPTIMIZERS: Registry[Optimizer] = Registry("optimizers", "Optimizer")
QUEUES: Registry[Queue] = Registry("queues", "Queue")
SCHEDULES: Registry[Schedule] = Registry("schedules", "Schedule")

REGISTRIES: tuple[Registry[Any], ...] = (
    AUGMENTERS, ENCODERS, EVALUATORS, GENERATORS, HEADS, LOSSES, OPTIMIZERS, QUEUES, SCHEDULES,
)  # fmt: skip

POOLINGS = Poolings()
"""Poolings of plug-ins."""

ALL: tuple[Names[Any], ...] = (*REGISTRIES, POOLINGS)


def registered() -> dict[tuple[str, str], Any]:
    """Return kind and name → entry of all components and poolings."""
    return {(names.kind, entry.name): entry for names in ALL for entry in names}
