"""Parameters and inputs of a component, read from its signature and docstring."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from textwrap import fill
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import Field, create_model
from pydantic.errors import PydanticUserError
from torch import Tensor, nn

from registry.errors import RegistrationError
from registry.loss_wrapper import LossWrapper
from registry.machinery.parameters import Parameters
from registry.tokens import Encoded
from registry.types import (
    AllDevices,
    Encoder,
    FromColumn,
    Loss,
    NamesAView,
    Negatives,
    Reference,
)

Mark = TypeVar("Mark")

RESERVED = frozenset({"name", "weight", "views", "queue", "augment", "heads"})
"""Keys of a component's table that the recipe uses, and that cannot be names of parameters."""

InputKind = Literal["sentences", "pooled", "encoded", "negatives", "labels"]


@dataclass(frozen=True)
class Input:
    """One argument of a loss's `forward`.

    Args:
        kind: Source of its value, according to its annotation.
        optional: Whether a recipe can omit it.
        several: Whether it is a tuple with one item for each view in the recipe.
    """

    name: str
    kind: InputKind
    optional: bool
    several: bool = False

    @property
    def is_view(self) -> bool:
        """Whether a view of the recipe fills the input, or several."""
        return self.kind not in ("negatives", "labels")


def owner(cls: type) -> str:
    """Return `module.Class` for messages."""
    return f"{cls.__module__}.{cls.__qualname__}"


def documented(cls: type) -> dict[str, str]:
    """Return parameter → text in the `Args:` block of the docstring, including inherited parameters."""
    texts: dict[str, str] = {}
    for declaring in (*reversed(_declaring(cls)), cls):
        texts |= _arguments(inspect.getdoc(declaring) or "")
    return texts


def _arguments(docstring: str) -> dict[str, str]:
    """Return name → text in the `Args:` block of one docstring."""
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
        if block is None:
            args = "Args:"
            before, example, after = text.partition("\nExample")  # TOML below "Example:", doctests below "Examples:"
            after = example.lstrip() + after
        else:
            before, args, after = text[: block.start()], block[0].rstrip(), text[block.end() :]
        wrapped = [fill(line, 116, initial_indent=" " * 4, subsequent_indent=" " * 8) for line in inherited]
        text = "\n\n".join(part.rstrip("\n") for part in (before, "\n".join([args, *wrapped]), after) if part.strip())
    return text.strip()


def parameter_model(cls: type) -> tuple[type[Parameters], tuple[Reference, ...]]:
    """Return the pydantic model of a component's parameters, and those that name encoders, views or losses.

    The parameters are those of `__init__`. If its last parameter is `**shared`, those of the base class follow, so
    components can share declarations. Parameters without default come first.
    """
    texts = documented(cls)
    fields: dict[str, Any] = {}
    references: list[Reference] = []
    for parameter, annotation in sorted(_init_parameters(cls), key=lambda each: each[0].default is not each[0].empty):
        if parameter.name in RESERVED or hasattr(Parameters, parameter.name):
            raise RegistrationError(
                f"{owner(cls)}: the name of parameter '{parameter.name}' is reserved",
                "rename the parameter",
                code="component.reserved_name",
            )
        hint, kind = _reference(cls, parameter.name, annotation)
        if kind:
            references.append(Reference(parameter.name, kind))
        default = "online" if kind == "encoder" else ...
        if parameter.default is not parameter.empty:
            default = parameter.default
        fields[parameter.name] = (hint, Field(default, description=texts.get(parameter.name)))
    return _model(cls, fields), tuple(references)


def _init_parameters(cls: type) -> list[tuple[inspect.Parameter, Any]]:
    """Return the parameters of `__init__` and their annotations. Those of subclasses take precedence."""
    declaring = _declaring(cls)
    found: dict[str, tuple[inspect.Parameter, Any]] = {}
    for base in declaring:
        init: Any = vars(base)["__init__"]
        hints = _hints(cls, init)
        for parameter in _parameters(init, cls, inherits=base is not declaring[-1]):
            found.setdefault(parameter.name, (parameter, hints[parameter.name]))
    return list(found.values())


def _declaring(cls: type) -> list[type]:
    """Return the classes whose `__init__` declares parameters: the first one, and the next one after `**`."""
    found: list[type] = []
    for base in cls.__mro__:
        if base not in (nn.Module, object) and "__init__" in vars(base):
            found.append(base)
            kinds = [parameter.kind for parameter in inspect.signature(vars(base)["__init__"]).parameters.values()]
            if inspect.Parameter.VAR_KEYWORD not in kinds:
                break
    return found


def marked(parameters: type[Parameters], mark: type[Mark]) -> dict[str, Mark]:
    """Return parameter → its mark of a type, for parameters that have one."""
    fields = parameters.model_fields.items()
    found = {name: _mark((field.annotation, *field.metadata), mark) for name, field in fields}
    return {name: one for name, one in found.items() if one is not None}


def _mark(hints: tuple[Any, ...], mark: type[Mark]) -> Mark | None:
    for hint in hints:
        nested = (*get_args(hint), *getattr(hint, "__metadata__", ()))
        found = hint if isinstance(hint, mark) else _mark(nested, mark)
        if found is not None:
            return found
    return None


def _reference(cls: type, name: str, hint: Any) -> tuple[Any, str]:
    """Return the type for pydantic, and "encoder", "loss" or "view" if the parameter names one, else ""."""
    if inspect.isclass(hint) and issubclass(hint, Encoder | Loss):
        return str, "encoder" if issubclass(hint, Encoder) else "loss"
    if any(isinstance(mark, NamesAView) for mark in getattr(hint, "__metadata__", ())):
        return hint, "view"
    if _names_a_view(hint):  # inside a union or a list, the existence of the view would not be checked
        raise RegistrationError(
            f"{owner(cls)}: parameter '{name}' has the annotation {hint}",
            "annotate it as ViewName",
            code="component.invalid_annotation",
        )
    return hint, ""


def _names_a_view(hint: Any) -> bool:
    return isinstance(hint, NamesAView) or any(_names_a_view(part) for part in get_args(hint))


def _model(cls: type, fields: dict[str, Any]) -> type[Parameters]:
    try:
        return create_model(
            f"{cls.__name__}Parameters",
            __base__=Parameters,
            __module__=cls.__module__,
            **fields,
        )
    except (PydanticUserError, NameError) as error:
        raise RegistrationError(
            f"{owner(cls)}: its parameters have types that a recipe cannot contain: {str(error).splitlines()[0]}",
            "use numbers, strings, lists, Literal, Encoder or ViewName",
            code="component.invalid_annotation",
        ) from error


def forward_inputs(cls: type) -> tuple[Input, ...]:
    """Return the inputs of a loss's `forward`. A wrapper has those of the loss that it computes."""
    if issubclass(cls, LossWrapper):
        return ()
    forward: Any = cls.forward  # type: ignore[attr-defined]
    if forward is nn.Module.forward:
        raise RegistrationError(
            f"{owner(cls)} has no forward",
            "define forward, whose annotations declare the views that the loss reads",
            code="component.no_forward",
        )
    hints = _hints(cls, forward)
    parameters = _parameters(forward, cls)
    inputs = tuple(_input(cls, p, hints[p.name]) for p in parameters)
    for given, parameter in zip(inputs, parameters, strict=True):
        if given.optional and not given.several and parameter.default is not None:
            raise RegistrationError(
                f"{owner(cls)}.forward: '{given.name}' can be None, but has another default",
                "set its default to None",
                code="component.invalid_default",
            )
    kinds = {i.kind for i in inputs}
    if "encoded" in kinds and kinds & {"sentences", "pooled"}:
        raise RegistrationError(
            f"{owner(cls)}.forward mixes Encoded with other views, whose rows differ on several devices",
            "annotate all views as Encoded, or none",
            code="component.mixed_inputs",
        )
    references = {_reference(cls, each.name, hint)[1] for each, hint in _init_parameters(cls)}
    if "encoder" not in references and not any(i.is_view for i in inputs):
        raise RegistrationError(
            f"{owner(cls)}: forward has no view, and __init__ no encoder",
            "annotate an input as Sentences or Encoded, or a parameter as Encoder for a loss of its weights",
            code="component.no_view",
        )
    return inputs


def _hints(cls: type, function: Any) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except NameError as error:
        raise RegistrationError(
            f"{owner(cls)}: the annotation {error.name!r} of {function.__name__} does not exist at run time",
            "import it at module level, not under TYPE_CHECKING",
            code="component.invalid_annotation",
        ) from error
    except (TypeError, SyntaxError, AttributeError) as error:
        raise RegistrationError(
            f"{owner(cls)}: an annotation of {function.__name__} is not a type: {error}",
            code="component.invalid_annotation",
        ) from error


def _parameters(function: Any, cls: type, inherits: bool = False) -> list[inspect.Parameter]:
    """Return the parameters without `self`, and without `**shared` if a base class declares them."""
    parameters = list(inspect.signature(function).parameters.values())[1:]
    if inherits:
        parameters = [parameter for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD]
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise RegistrationError(
                f"{owner(cls)}: a recipe cannot contain the variadic parameter '*{parameter.name}'",
                "declare each parameter by name",
                code="component.variadic_parameter",
            )
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise RegistrationError(
                f"{owner(cls)}: parameter '{parameter.name}' is positional only, but recipes set parameters by name",
                "remove the / from the signature",
                code="component.positional_parameter",
            )
        if parameter.annotation is parameter.empty:
            raise RegistrationError(
                f"{owner(cls)}: parameter '{parameter.name}' has no annotation", code="component.no_annotation"
            )
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
    if kind is None or (several and kind in ("negatives", "labels")):
        raise RegistrationError(
            f"{owner(cls)}.forward: '{parameter.name}' has the annotation {hint!r}",
            "annotate it as Sentences, Pooled, Encoded, Negatives or Labels",
            code="component.invalid_annotation",
        )
    return Input(parameter.name, kind, optional, several)


def _kind(hint: Any) -> InputKind | None:
    if hint is Negatives:
        return "negatives"
    if hint is Encoded:
        return "encoded"
    marks = get_args(hint)[1:] if get_origin(hint) is Annotated and get_args(hint)[0] is Tensor else ()
    if any(isinstance(mark, FromColumn) for mark in marks):
        return "labels"
    gathered = [mark for mark in marks if isinstance(mark, AllDevices)]
    if not gathered:
        return None
    return "pooled" if gathered[0].before_heads else "sentences"
