"""Components as plain data for tables and JSON, from their classes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic.fields import FieldInfo

from registry import REGISTRIES
from registry.core import Entry
from registry.types import Augmenter, Tune

_TYPES = {
    "integer": "whole number", "number": "number", "string": "text", "boolean": "true or false", "object": "table",
}  # fmt: skip
_SIGNS = {"exclusiveMinimum": ">", "minimum": "≥", "exclusiveMaximum": "<", "maximum": "≤"}
_LEVELS = {"on_text": "text", "on_pieces": "sub-words", "on_tokens": "tokens", "on_embeddings": "embeddings"}


def entries(kind: str | None = None) -> list[Entry[Any]]:
    """Return the components of one kind, or all of them."""
    return [entry for registry in REGISTRIES if kind in (None, registry.kind) for entry in registry]


def broken_plugins() -> dict[str, str]:
    """Return plug-in → why it could not be imported; of the registries looked at so far."""
    return {plugin: why for registry in REGISTRIES for plugin, why in registry.broken.items()}


def brief(entry: Entry[Any]) -> dict[str, Any]:
    """Return one line of `cse list`."""
    about: dict[str, Any] = {
        "kind": entry.kind,
        "name": entry.name,
        "summary": entry.summary,
        "distribution": entry.distribution,
    }
    if issubclass(entry.cls, Augmenter):
        about["levels"] = levels(entry.cls)
    return {**about, "file": entry.file, "line": entry.line}


def levels(cls: type[Augmenter]) -> list[str]:
    """Return what an augmenter acts on, by the hooks it overrides."""
    return [level for hook, level in _LEVELS.items() if getattr(cls, hook) is not getattr(Augmenter, hook)]


def full(entry: Entry[Any]) -> dict[str, Any]:
    """Return all that `cse show` prints of a component."""
    about = brief(entry)
    schema = _schema(entry)
    about["parameters"] = [
        parameter(entry, name, field, schema.get(name, {})) for name, field in entry.parameters.model_fields.items()
    ]
    if entry.inputs:
        about["inputs"] = [
            {"name": i.name, "kind": i.kind, "optional": i.optional, "several": i.several} for i in entry.inputs
        ]
    metrics = getattr(entry.cls, "metrics", None)
    if metrics is not None:
        about |= {"metric": entry.cls.metric, "metrics": list(metrics)}
    return {**about, "doc": entry.docstring}


def _schema(entry: Entry[Any]) -> dict[str, Any]:
    """Return parameter → its JSON Schema; nothing if one of them, such as a function, cannot be described by one."""
    try:
        found: dict[str, Any] = entry.parameters.model_json_schema().get("properties", {})
    except PydanticInvalidForJsonSchema:
        return {}
    return found


def parameter(entry: Entry[Any], name: str, field: FieldInfo, schema: dict[str, Any]) -> dict[str, Any]:
    """Return one parameter: type, default, bounds, range to tune, meaning."""
    reference = next((r.kind for r in entry.references if r.parameter == name), None)
    about: dict[str, Any] = {
        "name": name,
        "type": f"{reference} name" if reference else " | ".join(_types(schema)),
        "required": field.is_required(),
    }
    if not field.is_required():
        about["default"] = field.get_default(call_default_factory=True)
    if bounds := " and ".join(_bounds(schema)):
        about["bounds"] = bounds
    if (tune := tune_of(field)) is not None:
        about["tune"] = {"low": tune.low, "high": tune.high, "log": tune.log, "step": tune.step}
    return {**about, "description": field.description or ""}


def tune_of(field: FieldInfo) -> Tune | None:
    """Return the range declared beside a parameter's type, also where the type is one of several."""
    return next(_tunes(field), None)


def _tunes(hint: Any) -> Iterator[Tune]:
    yield from (mark for mark in getattr(hint, "metadata", ()) if isinstance(mark, Tune))
    yield from (mark for mark in getattr(hint, "__metadata__", ()) if isinstance(mark, Tune))
    for inner in get_args(hint.annotation if isinstance(hint, FieldInfo) else hint):
        yield from _tunes(inner)


def _types(schema: dict[str, Any]) -> Iterator[str]:
    if "anyOf" in schema:
        for choice in schema["anyOf"]:
            if choice.get("type") != "null":
                yield from _types(choice)
    elif "enum" in schema:
        yield from (str(choice) for choice in schema["enum"])
    elif "const" in schema:
        yield str(schema["const"])
    elif schema.get("type") == "array":
        yield f"array of {' | '.join(_types(schema.get('items', {})))}"
    else:
        yield _TYPES.get(schema.get("type", ""), schema.get("type", "any"))


def _bounds(schema: dict[str, Any]) -> Iterator[str]:
    for key, sign in _SIGNS.items():
        if key in schema:
            yield f"{sign} {schema[key]:g}"
    for choice in schema.get("anyOf", []):
        yield from _bounds(choice)
