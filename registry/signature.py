"""Read a component's signature and docstring: the only declaration of its parameters and inputs."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from textwrap import fill
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

InputKind = Literal["sentences", "pooled", "encoded", "negatives"]


@dataclass(frozen=True)
class Input:
    """One argument of a loss's `forward`; `kind`, read from its annotation, says where its value comes from.

    Args:
        optional: Whether a recipe may leave it out.
        several: Whether it takes a tuple, one item for each view that the recipe lists.
    """

    name: str
    kind: InputKind
    optional: bool
    several: bool = False


def owner(cls: type) -> str:
    """Return `module.Class`, as error messages name it."""
    return f"{cls.__module__}.{cls.__qualname__}"


def documented(cls: type) -> dict[str, str]:
    """Return parameter → text of the Google `Args:` block of the docstring, inherited parameters included."""
    texts: dict[str, str] = {}
    for declaring in (*reversed(_declaring(cls)), cls):
        texts |= _arguments(inspect.getdoc(declaring) or "")
    return texts


def _arguments(docstring: str) -> dict[str, str]:
    """Return name → text of the `Args:` block of one docstring."""
    found: dict[str, str] = {}
    inside, name = False, ""
    for line in docstring.splitlines():
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


def docstring(cls: type) -> str:
    """Return the docstring of a class, with the inherited parameters in its `Args:` block."""
    text = f"{inspect.getdoc(cls) or ''}\n"
    own = _arguments(text)
    inherited = [f"{name}: {about}" for name, about in documented(cls).items() if name not in own]
    if inherited:
        block = re.search(r"^Args:\n(?:(?: .*)?\n)*", text, re.MULTILINE)
        before, args, after = text, "Args:", ""
        if block is not None:
            before, args, after = text[: block.start()], block[0].rstrip(), text[block.end() :]
        wrapped = [fill(line, 116, initial_indent=" " * 4, subsequent_indent=" " * 8) for line in inherited]
        text = "\n\n".join(part.rstrip("\n") for part in (before, "\n".join([args, *wrapped]), after) if part.strip())
    return text.strip()


def parameter_model(cls: type) -> tuple[type[BaseModel], tuple[Reference, ...]]:
    """Return the pydantic model of a component's parameters, and those of them that name encoders or views.

    The parameters are those of `__init__`. If it ends in `**shared`, those of the base class that takes them follow:
    what several components have in common is declared once. Parameters without default come first.

    Raises:
        RegistrationError: A parameter has no annotation or one that no recipe can express, is variadic, or has a
            reserved name.
    """
    texts = documented(cls)
    fields: dict[str, Any] = {}
    references: list[Reference] = []
    for parameter, annotation in sorted(_init_parameters(cls), key=lambda each: each[0].default is not each[0].empty):
        if parameter.name in RESERVED or hasattr(BaseModel, parameter.name):
            raise RegistrationError(f"{owner(cls)}: parameter '{parameter.name}' is a reserved name; choose another")
        hint, kind = _reference(cls, parameter.name, annotation)
        if kind:
            references.append(Reference(parameter.name, kind))
        default = "online" if kind == "encoder" else ...
        if parameter.default is not parameter.empty:
            default = parameter.default
        fields[parameter.name] = (hint, Field(default, description=texts.get(parameter.name)))
    return _model(cls, fields), tuple(references)


def _init_parameters(cls: type) -> list[tuple[inspect.Parameter, Any]]:
    """Return the parameters of `__init__` and their annotations; of two classes' with one name, the first one's."""
    declaring = _declaring(cls)
    found: dict[str, tuple[inspect.Parameter, Any]] = {}
    for base in declaring:
        init: Any = vars(base)["__init__"]
        hints = _hints(cls, init)
        for parameter in _parameters(init, cls, inherits=base is not declaring[-1]):
            found.setdefault(parameter.name, (parameter, hints[parameter.name]))
    return list(found.values())


def _declaring(cls: type) -> list[type]:
    """Return the classes whose `__init__` declares parameters: the first that has one, and the next after `**`.

    That of torch's modules takes anything and declares nothing.
    """
    found: list[type] = []
    for base in cls.__mro__:
        if base not in (nn.Module, object) and "__init__" in vars(base):
            found.append(base)
            kinds = [parameter.kind for parameter in inspect.signature(vars(base)["__init__"]).parameters.values()]
            if inspect.Parameter.VAR_KEYWORD not in kinds:
                break
    return found


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
    if _names_a_view(hint):  # inside a union or a list it would not be checked that the view exists
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
        RegistrationError: There is no `forward`, an input has no annotation or one that says no origin, `Sentences` and
            `Encoded` are mixed, whose rows would not match on several devices, or there is neither a view nor, for a
            regulariser of its weights, an encoder among the parameters.
    """
    forward: Any = cls.forward  # type: ignore[attr-defined]
    if forward is nn.Module.forward:
        raise RegistrationError(f"{owner(cls)} has no forward: it declares which views the loss reads")
    hints = _hints(cls, forward)
    parameters = _parameters(forward, cls)
    inputs = tuple(_input(cls, p, hints[p.name]) for p in parameters)
    for given, parameter in zip(inputs, parameters, strict=True):
        if given.optional and not given.several and parameter.default is not None:
            raise RegistrationError(f"{owner(cls)}.forward: '{given.name}' may be None, so its default must be None")
    kinds = {i.kind for i in inputs}
    if "encoded" in kinds and kinds & {"sentences", "pooled"}:
        raise RegistrationError(f"{owner(cls)}.forward mixes Encoded with others: their rows differ on many devices")
    if not kinds & {"sentences", "pooled", "encoded"} and not _takes_encoder(cls):
        raise RegistrationError(
            f"{owner(cls)}.forward takes no view, and __init__ no encoder",
            "annotate an input with Sentences or Encoded, or a parameter with Encoder for a loss of its weights",
        )
    return inputs


def _takes_encoder(cls: type) -> bool:
    return any(_reference(cls, each.name, hint)[1] == "encoder" for each, hint in _init_parameters(cls))


def _hints(cls: type, function: Any) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except NameError as error:
        raise RegistrationError(
            f"{owner(cls)}: the annotation {error.name!r} of {function.__name__} is unknown at run time",
            "import it at module level, not under TYPE_CHECKING",
        ) from error
    except (TypeError, SyntaxError, AttributeError) as error:
        raise RegistrationError(f"{owner(cls)}: an annotation of {function.__name__} is not a type: {error}") from error


def _parameters(function: Any, cls: type, inherits: bool = False) -> list[inspect.Parameter]:
    """Return all but `self`, and but `**shared` where a base class takes those."""
    parameters = list(inspect.signature(function).parameters.values())[1:]
    if inherits:
        parameters = [parameter for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD]
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise RegistrationError(f"{owner(cls)}: '*{parameter.name}' cannot be declared in a recipe; name each one")
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise RegistrationError(f"{owner(cls)}: '{parameter.name}' is positional only; recipes give values by name")
        if parameter.annotation is parameter.empty:
            raise RegistrationError(f"{owner(cls)}: parameter '{parameter.name}' has no annotation")
    return parameters


def _input(cls: type, parameter: inspect.Parameter, hint: Any) -> Input:
    several = get_origin(hint) is tuple and get_args(hint)[1:] == (...,)
    optional = False
    if several:
        hint, optional = get_args(hint)[0], parameter.default == ()
    elif get_origin(hint) in (Union, UnionType):
        members = [member for member in get_args(hint) if member is not type(None)]
        optional = len(members) < len(get_args(hint))
        hint = members[0] if len(members) == 1 else hint
    kind = _kind(hint)
    if kind is None or (several and kind == "negatives"):
        raise RegistrationError(
            f"{owner(cls)}.forward: '{parameter.name}' must be annotated Sentences, Pooled, Encoded or Negatives, "
            f"not {hint!r}"
        )
    return Input(parameter.name, kind, optional, several)


def _kind(hint: Any) -> InputKind | None:
    if hint is Negatives:
        return "negatives"
    if hint is Encoded:
        return "encoded"
    marks = get_args(hint)[1:] if get_origin(hint) is Annotated and get_args(hint)[0] is Tensor else ()
    gathered = [mark for mark in marks if isinstance(mark, AllDevices)]
    if not gathered:
        return None
    return "pooled" if gathered[0].before_heads else "sentences"
