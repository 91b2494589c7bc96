"""What a registered component says of itself, as plain data for tables and JSON."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from pydantic.fields import FieldInfo

from registry.core import Entry
from registry.kinds import REGISTRIES
from registry.types import Augmenter, Tune

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
    return {**about, "file": _shown(entry.file), "line": entry.line}


def levels(cls: type[Augmenter]) -> list[str]:
    """Return what an augmenter acts on, told by the hooks it overrides."""
    return [level for hook, level in _LEVELS.items() if getattr(cls, hook) is not getattr(Augmenter, hook)]


def full(entry: Entry[Any]) -> dict[str, Any]:
    """Return all that `cse show` tells of a component."""
    about = brief(entry)
    about["parameters"] = [parameter(entry, name, field) for name, field in entry.parameters.model_fields.items()]
    if entry.inputs:
        about["inputs"] = [{"name": i.name, "kind": i.kind, "optional": i.optional} for i in entry.inputs]
    metrics = getattr(entry.cls, "metrics", None)
    if metrics is not None:
        about |= {"metric": entry.cls.metric, "metrics": list(metrics)}
    return {**about, "doc": inspect.getdoc(entry.cls) or ""}


def parameter(entry: Entry[Any], name: str, field: FieldInfo) -> dict[str, Any]:
    """Return one parameter: type, default, bounds, range to tune, meaning."""
    schema = entry.parameters.model_json_schema()["properties"][name]
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
        yield _WORDS.get(schema.get("type", ""), schema.get("type", "any"))


_WORDS = {
    "integer": "whole number",
    "number": "number",
    "string": "text",
    "boolean": "true or false",
    "object": "table",
}
_SIGNS = {"exclusiveMinimum": ">", "minimum": "≥", "exclusiveMaximum": "<", "maximum": "≤"}


def _bounds(schema: dict[str, Any]) -> Iterator[str]:
    for key, sign in _SIGNS.items():
        if key in schema:
            yield f"{sign} {schema[key]:g}"
    for choice in schema.get("anyOf", []):
        yield from _bounds(choice)


def _shown(file: str) -> str:
    path, here = Path(file), Path.cwd()
    return os.path.relpath(path, here) if path.is_relative_to(here) else file
