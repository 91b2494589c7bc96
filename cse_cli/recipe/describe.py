"""Components as plain data for tables and JSON, and their tables for a recipe, from their classes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic.fields import FieldInfo

from cse_cli.recipe.keys import dotted, inline
from cse_cli.recipe.schema import Train
from registry.machinery.core import Entry
from registry.types import Augmenter, Tune

_TYPES = {
    "integer": "whole number", "number": "number", "string": "text", "boolean": "true or false", "object": "table",
}  # fmt: skip
_SIGNS = {"exclusiveMinimum": ">", "minimum": "≥", "exclusiveMaximum": "<", "maximum": "≤"}
_HEADERS = {
    "augmenters": "[[views.positive.augment]]",
    "encoders": "[encoders.online]",
    "evaluators": "[evaluators.{name}]",
    "heads": "[encoders.online.heads.{name}]",
    "losses": "[losses.{name}]",
    "queues": "[queue]",
}
"""Kind → header of its table in a recipe. The documentation of a generator has its table as an example."""
_IN_TRAIN = {"optimizers": "optimizer", "schedules": "schedule"}
"""Kind → key of [train] that contains its name."""
_NAMED = ("augmenters", "encoders", "queues")
"""Kinds whose table needs a `name`, because its key is another one."""
_EXAMPLES = {"model": "bert-base-uncased", "dataset": "wiki1m", "file": "vectors.txt"}
_REFERENCES = {"view": "anchor", "encoder": "online", "loss": "info_nce"}
_LEVELS = {"on_text": "text", "on_pieces": "sub-words", "on_tokens": "tokens", "on_embeddings": "embeddings"}


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
    inside = Path(entry.file).is_relative_to(Path.cwd())
    about |= {"file": os.path.relpath(entry.file) if inside else entry.file, "line": entry.line}
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
    choices = (schema, *schema.get("anyOf", []))
    if bounds := [f"{sign} {choice[key]:g}" for choice in choices for key, sign in _SIGNS.items() if key in choice]:
        about["bounds"] = " and ".join(bounds)
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


def paste_block(entry: Entry[Any]) -> str:
    """Return the table of a component for a recipe. Examples stand for required values. Empty for generators."""
    if entry.kind in _IN_TRAIN:
        return _train_block(entry, _IN_TRAIN[entry.kind])
    if entry.kind not in _HEADERS:
        return ""
    on_another = entry.kind == "encoders" and any(one.kind == "encoder" for one in entry.references)
    header = _HEADERS[entry.kind] if not on_another else "[encoders.{name}]"
    lines = [header.format(name=entry.name)]
    if entry.kind in _NAMED and not on_another:
        lines.append(f"name = {inline(entry.name)}")
    if entry.kind == "losses":
        lines.append("weight = 1.0")
        other = [i for i in entry.inputs if i.is_view and i.name not in ("anchor", "positive") and not i.optional]
        if views := {wanted.name: ["positive"] if wanted.several else "positive" for wanted in other}:
            lines.append(f"views = {inline(views)}")
    for name, field in entry.parameters.model_fields.items():
        value = None if field.is_required() else field.get_default(call_default_factory=True)
        needed = field.is_required() or (value is None and entry.kind == "evaluators" and name == "dataset")
        if needed or value is not None:
            text = inline(_example(entry, name) if needed else value)
            lines.append(f"{dotted((name,))} = {text}{'  # required' if needed else ''}")
    return "\n".join(lines)


def _train_block(entry: Entry[Any], key: str) -> str:
    """Return the keys of [train] for an optimizer or a schedule."""
    lines, own = ["[train]", f"{key} = {inline(entry.name)}"], {}
    for name, field in entry.parameters.model_fields.items():
        value = _example(entry, name) if field.is_required() else field.get_default(call_default_factory=True)
        if value is not None and name in Train.model_fields:
            lines.append(f"{name} = {inline(value)}")
        elif value is not None:
            own[name] = value
    return "\n".join([*lines, *([f"{key}_settings = {inline(own)}"] if own else [])])


def _example(entry: Entry[Any], name: str) -> Any:
    """Return a valid value of a required parameter."""
    reference = next((one.kind for one in entry.references if one.parameter == name), None)
    if reference is not None:
        return _REFERENCES[reference]
    annotation = entry.parameters.model_fields[name].annotation
    if get_origin(annotation) is Literal:
        return get_args(annotation)[0]
    resource = entry.resources.get(name)
    if get_origin(annotation) is list and resource is None:
        return [64]
    evaluated = entry.kind == "evaluators" and resource is not None and resource.kind == "dataset"
    example = "stsb" if evaluated else _EXAMPLES.get(resource.kind if resource else "", "STSBenchmark")
    return [example] if get_origin(annotation) is list else example
