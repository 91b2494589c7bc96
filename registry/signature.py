"""Read a component's signature and docstring: the only declaration of its parameters and inputs."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.errors import PydanticUserError
from torch import Tensor, nn

from registry.errors import RegistrationError
from registry.tokens import Encoded
from registry.types import AllDevices, Encoder, NamesAView, Negatives, Reference, Resource

RESERVED = frozenset({"name", "weight", "views", "queue", "augment", "heads"})
"""Keys of a component's table that belong to the recipe, so no parameter may be called so."""

InputKind = Literal["sentences", "encoded", "negatives"]


@dataclass(frozen=True)
class Input:
    """One argument of a loss's `forward`: where its value comes from is told by its type."""

    name: str
    kind: InputKind
    optional: bool


def owner(cls: type) -> str:
    """Return `module.Class`, as error messages name it."""
    return f"{cls.__module__}.{cls.__qualname__}"


def documented(cls: type) -> dict[str, str]:
    """Return parameter → text of the Google `Args:` block of the class docstring."""
    found: dict[str, str] = {}
    inside, name = False, ""
    for line in (inspect.getdoc(cls) or "").splitlines():
        if re.match(r"^Args:\s*$", line):
            inside = True
        elif inside and re.match(r"^\S", line):
            break
        elif inside and (match := re.match(r"^ {4}(\w+):\s*(.*)$", line)):
            name = match[1]
            found[name] = match[2]
        elif inside and name and line.strip():
            found[name] += " " + line.strip()
    return found


def parameter_model(cls: type) -> tuple[type[BaseModel], tuple[Reference, ...]]:
    """Return the pydantic model of `cls.__init__` and the parameters that name encoders or views.

    Raises:
        RegistrationError: A parameter has no annotation or one that no recipe can express, is variadic, or has a
            reserved name.
    """
    init = _init(cls)
    hints = _hints(cls, init)
    texts = documented(cls)
    fields: dict[str, Any] = {}
    references: list[Reference] = []
    for parameter in _parameters(init, cls):
        if parameter.name in RESERVED or hasattr(BaseModel, parameter.name):
            raise RegistrationError(f"{owner(cls)}: parameter '{parameter.name}' is a reserved name; choose another")
        hint, kind = _reference(cls, parameter.name, hints[parameter.name])
        if kind:
            references.append(Reference(parameter.name, kind))
        default = "online" if kind == "encoder" else ...
        if parameter.default is not parameter.empty:
            default = parameter.default
        fields[parameter.name] = (hint, Field(default, description=texts.get(parameter.name)))
    return _model(cls, fields), tuple(references)


def resources(parameters: type[BaseModel]) -> dict[str, Resource]:
    """Return parameter → what it names, of the parameters that name a model, a data set or a file."""
    marked = {name: _resource((field.annotation, *field.metadata)) for name, field in parameters.model_fields.items()}
    return {name: mark for name, mark in marked.items() if mark is not None}


def _resource(hints: tuple[Any, ...]) -> Resource | None:
    for hint in hints:
        found = hint if isinstance(hint, Resource) else _resource((*get_args(hint), *getattr(hint, "__metadata__", ())))
        if found is not None:
            return found
    return None


def _reference(cls: type, name: str, hint: Any) -> tuple[Any, str]:
    """Return what pydantic checks, and "encoder" or "view" where the parameter names one."""
    if inspect.isclass(hint) and issubclass(hint, Encoder):
        return str, "encoder"
    if any(isinstance(mark, NamesAView) for mark in getattr(hint, "__metadata__", ())):
        return hint, "view"
    if _names_a_view(hint):  # inside a union or a list nobody would check that the view exists
        raise RegistrationError(f"{owner(cls)}: '{name}' must be annotated ViewName itself, not {hint}")
    return hint, ""


def _names_a_view(hint: Any) -> bool:
    return isinstance(hint, NamesAView) or any(_names_a_view(part) for part in get_args(hint))


def _model(cls: type, fields: dict[str, Any]) -> type[BaseModel]:
    try:
        return create_model(
            f"{cls.__name__}Parameters",
            __config__=ConfigDict(
                extra="forbid", frozen=True, strict=True, allow_inf_nan=False, protected_namespaces=()
            ),
            __module__=cls.__module__,
            **fields,
        )
    except (PydanticUserError, NameError) as error:
        raise RegistrationError(
            f"{owner(cls)}: its parameters cannot be declared: {str(error).splitlines()[0]}",
            "annotate them with types a recipe can hold: numbers, strings, lists, Literal, Encoder, ViewName",
        ) from error


def forward_inputs(cls: type) -> tuple[Input, ...]:
    """Return the inputs of a loss's `forward`.

    Raises:
        RegistrationError: There is no `forward`, an input has no annotation or one that says no origin, or `Sentences`
            and `Encoded` are mixed: their rows would not match on several devices.
    """
    forward: Any = cls.forward  # type: ignore[attr-defined]
    if forward is nn.Module.forward:
        raise RegistrationError(f"{owner(cls)} has no forward: it declares which views the loss reads")
    hints = _hints(cls, forward)
    parameters = _parameters(forward, cls)
    inputs = tuple(_input(cls, p.name, hints[p.name]) for p in parameters)
    for given, parameter in zip(inputs, parameters, strict=True):
        if given.optional and parameter.default is not None:
            raise RegistrationError(f"{owner(cls)}.forward: '{given.name}' may be None, so its default must be None")
    kinds = {i.kind for i in inputs}
    if {"sentences", "encoded"} <= kinds:
        raise RegistrationError(f"{owner(cls)}.forward mixes Sentences and Encoded: their rows differ on many devices")
    if not kinds & {"sentences", "encoded"}:
        raise RegistrationError(f"{owner(cls)}.forward takes no view: annotate one with Sentences or Encoded")
    return inputs


def _init(cls: type) -> Any:
    """Return the first `__init__` that is the component's own; torch's takes anything and declares nothing."""
    declared = (vars(base)["__init__"] for base in cls.__mro__ if base is not nn.Module and "__init__" in vars(base))
    return next(declared, object.__init__)


def _hints(cls: type, function: Any) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except NameError as error:
        raise RegistrationError(
            f"{owner(cls)}: the annotation {error.name!r} of {function.__name__} is unknown at run time",
            "import it at module level, not under TYPE_CHECKING",
        ) from error
    except (TypeError, SyntaxError, AttributeError) as error:
        raise RegistrationError(f"{owner(cls)}: an annotation of {function.__name__} is no type: {error}") from error


def _parameters(function: Any, cls: type) -> list[inspect.Parameter]:
    parameters = list(inspect.signature(function).parameters.values())
    if function is object.__init__:
        return []
    for parameter in parameters[1:]:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise RegistrationError(f"{owner(cls)}: '*{parameter.name}' cannot be declared in a recipe; name each one")
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise RegistrationError(f"{owner(cls)}: '{parameter.name}' is positional only; recipes give values by name")
        if parameter.annotation is parameter.empty:
            raise RegistrationError(f"{owner(cls)}: parameter '{parameter.name}' has no annotation")
    return parameters[1:]


def _input(cls: type, name: str, hint: Any) -> Input:
    optional = False
    if get_origin(hint) in (Union, UnionType):
        members = [member for member in get_args(hint) if member is not type(None)]
        optional = len(members) < len(get_args(hint))
        hint = members[0] if len(members) == 1 else hint
    if hint is Negatives:
        return Input(name, "negatives", optional)
    if hint is Encoded:
        return Input(name, "encoded", optional)
    marks = get_args(hint)[1:] if get_origin(hint) is Annotated and get_args(hint)[0] is Tensor else ()
    if any(isinstance(mark, AllDevices) for mark in marks):
        return Input(name, "sentences", optional)
    raise RegistrationError(
        f"{owner(cls)}.forward: '{name}' must be annotated Sentences, Encoded or Negatives, not {hint!r}"
    )
