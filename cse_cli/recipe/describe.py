"""Components as plain data for tables and JSON, from their classes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic.fields import FieldInfo

from cse_cli.recipe.paste import paste_block
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
    """Return plug-in → reason why it cannot be imported, for the registries that have been searched."""
    return {plugin: why for registry in REGISTRIES for plugin, why in registry.broken.items()}


def levels(cls: type[Augmenter]) -> list[str]:
    """Return the levels that an augmenter changes, given by the hooks that it overrides."""
    return [level for hook, level in _LEVELS.items() if getattr(cls, hook) is not getattr(Augmenter, hook)]


def full(entry: Entry[Any]) -> dict[str, Any]:
    """Return the content of `cse show` for a component."""
    about: dict[str, Any] = {
        "kind": entry.kind,
        "name": entry.name,
        "summary": entry.summary,
        "distribution": entry.distribution,
    }
    if issubclass(entry.cls, Augmenter):
        about["levels"] = levels(entry.cls)
    about |= {"file": entry.file, "line": entry.line}
    try:
        schema = entry.parameters.model_json_schema().get("properties", {})
    except PydanticInvalidForJsonSchema:  # a parameter that JSON Schema cannot describe, such as a function
        schema = {}
    fields = entry.parameters.model_fields.items()
    about["parameters"] = [_parameter(entry, name, field, schema.get(name, {})) for name, field in fields]
    if entry.inputs:
        about["inputs"] = [
            {"name": i.name, "kind": i.kind, "optional": i.optional, "several": i.several} for i in entry.inputs
        ]
    metrics = getattr(entry.cls, "metrics", None)
    if metrics is not None:
        about |= {"metric": entry.cls.metric, "metrics": list(metrics)}
    return {**about, "toml": paste_block(entry), "doc": entry.docstring}


def _parameter(entry: Entry[Any], name: str, field: FieldInfo, schema: dict[str, Any]) -> dict[str, Any]:
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
    """Return the tuning range of a parameter's type, or of one type of a union, or None."""
    return next(_tunes(field), None)


def _tunes(hint: Any) -> Iterator[Tune]:
    marks = (*getattr(hint, "metadata", ()), *getattr(hint, "__metadata__", ()))
    yield from (mark for mark in marks if isinstance(mark, Tune))
    for inner in get_args(hint.annotation if isinstance(hint, FieldInfo) else hint):
        yield from _tunes(inner)


def _types(schema: dict[str, Any]) -> Iterator[str]:
    for choice in schema.get("anyOf", [schema]):
        if "enum" in choice:
            yield from (str(one) for one in choice["enum"])
        elif "const" in choice:
            yield str(choice["const"])
        elif choice.get("type") == "array":
            yield f"array of {' | '.join(_types(choice.get('items', {})))}"
        elif choice.get("type") != "null":
            yield _TYPES.get(choice.get("type", ""), choice.get("type", "any"))


def _bounds(schema: dict[str, Any]) -> Iterator[str]:
    for choice in (schema, *schema.get("anyOf", [])):
        yield from (f"{sign} {choice[key]:g}" for key, sign in _SIGNS.items() if key in choice)
