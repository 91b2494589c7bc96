"""JSON Schema of recipe files for editors, generated from `schema` and the registries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel

from cse_cli.recipe.schema import (
    Data,
    EncoderPart,
    Evaluate,
    LossPart,
    Paper,
    Part,
    Recipe,
    Train,
    TuneRange,
    View,
    WeightSchedule,
)
from registry import AUGMENTERS, ENCODERS, EVALUATORS, GENERATORS, HEADS, LOSSES, QUEUES
from registry.core import Entry, Registry
from registry.resources import catalog
from registry.signature import documented
from registry.types import ColumnGenerator

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_INHERITS_NAME = {"type": "object", "not": {"required": ["name"]}}
"""A component whose `name` is inherited. An editor cannot know its parameters."""


def json_schema() -> dict[str, Any]:
    """Return the schema of a recipe file. No key is required in a file that extends another."""
    definitions: dict[str, Any] = {}

    def component(registry: Iterable[Entry[Any]], own: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Define components, and return references to them for tables with a `name`."""
        definitions.update({_key(entry): _component(entry, own) for entry in registry})
        return [{**_reference(entry), "required": ["name"]} for entry in registry]

    def keyed(registry: Registry[Any], own: Mapping[str, Any]) -> dict[str, Any]:
        """Return the schema of a section of components, whose names are their keys by default."""
        named = component(registry, own)
        keys = {
            entry.name: {"oneOf": [_reference(entry), *named[:number], *named[number + 1 :]]}
            for number, entry in enumerate(registry)
        }
        return {"type": "object", "properties": keys, "additionalProperties": {"oneOf": [*named, _INHERITS_NAME]}}

    properties: dict[str, Any] = _section(Recipe)["properties"]
    sections: dict[str, type[BaseModel]] = {"paper": Paper, "data": Data, "train": Train, "evaluate": Evaluate}
    properties |= {name: _section(model) for name, model in sections.items()}
    names = [{"enum": catalog.names()}, {"type": "string", "pattern": "^hf:"}]
    dataset = {"anyOf": [*names, {"type": "array", "items": {"anyOf": names}}]}
    properties["data"]["properties"]["dataset"] = {**dataset, "description": documented(Data)["dataset"]}
    made = component([entry for entry in GENERATORS if issubclass(entry.cls, ColumnGenerator)], {})
    properties["data"]["properties"]["columns"]["additionalProperties"] = {"oneOf": [*made, _INHERITS_NAME]}
    heads = {**keyed(HEADS, {}), "description": documented(EncoderPart)["heads"]}
    loss = _section(LossPart)["properties"]
    own = {key: loss[key] for key in LossPart.model_fields if key not in Part.model_fields}
    own["weight_schedule"] = {**_section(WeightSchedule), "description": loss["weight_schedule"]["description"]}
    view = _section(View)
    view["properties"]["augment"] |= {"type": "array", "items": {"oneOf": component(AUGMENTERS, {})}}
    properties |= {
        "extends": {
            "type": "string",
            "description": "Name of a recipe, or path that ends in .toml, whose values this file inherits.",
        },
        "remove": {
            "type": "array",
            "items": {"type": "string"},
            "description": 'Dotted paths of inherited tables and keys to remove, for example "losses.twins".',
        },
        "encoders": keyed(ENCODERS, {"heads": heads}),
        "losses": keyed(LOSSES, own),
        "evaluators": keyed(EVALUATORS, {}),
        "queue": {"oneOf": [*component(QUEUES, {}), _INHERITS_NAME]},
        "views": {"type": "object", "additionalProperties": view},
        "tune": {"type": "object", "additionalProperties": _section(TuneRange)},
    }
    return {
        "$schema": DIALECT,
        "title": "cse recipe",
        "description": (Recipe.__doc__ or "").partition("\n")[0],
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        "if": {"not": {"required": ["extends"]}},
        "then": {"required": ["title", "data", "encoders"]},
        "$defs": dict(sorted(definitions.items())),
    }


def _key(entry: Entry[Any]) -> str:
    return f"{entry.kind}.{entry.name}"


def _reference(entry: Entry[Any]) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{_key(entry)}"}


def _component(entry: Entry[Any], own: Mapping[str, Any]) -> dict[str, Any]:
    plain = _optional(entry.parameters.model_json_schema(), entry.cls)
    name = {"const": entry.name, "description": entry.summary}
    plain["properties"] = {"name": name, **plain.get("properties", {}), **own}
    return {**plain, "description": entry.summary, "type": "object", "additionalProperties": False}


def _section(model: type[BaseModel]) -> dict[str, Any]:
    """Return the schema of a section, without those of the sections inside."""
    plain = model.model_json_schema()
    plain.pop("$defs", None)
    return _optional(plain, model)


def _optional(schema: dict[str, Any], cls: type) -> dict[str, Any]:
    """Add descriptions from the class docstring. Remove titles, required keys, and null, which TOML lacks."""
    texts = documented(cls)
    schema["description"] = (cls.__doc__ or "").partition("\n")[0]
    for key in ("title", "required"):
        schema.pop(key, None)
    for name, value in schema.get("properties", {}).items():
        value.pop("title", None)
        if name in texts:
            value["description"] = texts[name]
        choices = [choice for choice in value.get("anyOf", []) if choice.get("type") != "null"]
        if choices and len(choices) < len(value["anyOf"]):
            del value["anyOf"]
            value |= choices[0] if len(choices) == 1 else {"anyOf": choices}
        if value.get("default", 0) is None:
            del value["default"]
    return schema
