"""JSON Schema of recipe files, for editors: generated from the schema and the registries."""

from __future__ import annotations

from collections.abc import Mapping
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
from registry import AUGMENTERS, ENCODERS, EVALUATORS, HEADS, LOSSES, QUEUES, catalogue
from registry.core import Entry, Registry
from registry.signature import documented

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_TABLE = {"type": "object"}


def json_schema() -> dict[str, Any]:
    """Return the schema of a recipe file; nothing is required in one that `extends` another."""
    definitions: dict[str, Any] = {"TuneRange": _section(TuneRange)}
    properties: dict[str, Any] = _section(Recipe)["properties"]
    properties |= {"paper": _section(Paper), "data": _section(Data), "train": _section(Train)}
    properties["data"]["properties"]["dataset"] = _dataset()
    properties |= {
        "evaluate": _section(Evaluate),
        "extends": {"type": "string", "description": "Name, or path ending in .toml, of the recipe this one changes."},
        "remove": {
            "type": "array",
            "items": {"type": "string"},
            "description": 'Dotted paths of inherited tables and keys to leave out, such as "losses.twins".',
        },
        "encoders": _keyed(ENCODERS, definitions, {"heads": _heads(definitions)}),
        "losses": _keyed(LOSSES, definitions, _loss_keys()),
        "evaluators": _keyed(EVALUATORS, definitions, {}),
        "queue": {"oneOf": [*_named(QUEUES, definitions, {}), _unnamed()]},
        "views": {"type": "object", "additionalProperties": _view(definitions)},
        "tune": {"type": "object", "additionalProperties": {"$ref": "#/$defs/TuneRange"}},
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


def _section(model: type[BaseModel]) -> dict[str, Any]:
    """Return a section's own schema; the schemas of the sections within are put in by the caller."""
    plain = model.model_json_schema()
    plain.pop("$defs", None)
    return _loose(_described(plain, model))


def _described(schema: dict[str, Any], cls: type) -> dict[str, Any]:
    """Put the `Args:` of the class docstring beside their keys, and its first line above them."""
    texts = documented(cls)
    for name, value in schema.get("properties", {}).items():
        value.pop("title", None)
        if name in texts:
            value["description"] = texts[name]
    schema["description"] = (cls.__doc__ or "").partition("\n")[0]
    schema.pop("title", None)
    return schema


def _loose(schema: dict[str, Any]) -> dict[str, Any]:
    """Drop what a recipe that extends another may leave out, and null, which TOML does not have."""
    schema.pop("required", None)
    for value in schema.get("properties", {}).values():
        choices = [choice for choice in value.get("anyOf", []) if choice.get("type") != "null"]
        if choices and len(choices) < len(value["anyOf"]):
            del value["anyOf"]
            value |= choices[0] if len(choices) == 1 else {"anyOf": choices}
        if value.get("default", 0) is None:
            del value["default"]
    return schema


def _dataset() -> dict[str, Any]:
    names: dict[str, Any] = {"anyOf": [{"enum": catalogue.names()}, {"type": "string", "pattern": "^hf:"}]}
    return {"description": documented(Data)["dataset"], "anyOf": [*names["anyOf"], {"type": "array", "items": names}]}


def _loss_keys() -> dict[str, Any]:
    properties = _section(LossPart)["properties"]
    schedule = {**_section(WeightSchedule), "description": documented(LossPart)["weight_schedule"]}
    own = LossPart.model_fields.keys() - Part.model_fields.keys()
    return {key: properties[key] for key in LossPart.model_fields if key in own} | {"weight_schedule": schedule}


def _heads(definitions: dict[str, Any]) -> dict[str, Any]:
    heads = _keyed(HEADS, definitions, {})
    return {**heads, "description": documented(EncoderPart)["heads"]}


def _view(definitions: dict[str, Any]) -> dict[str, Any]:
    view = _section(View)
    view["properties"]["augment"] |= {"type": "array", "items": {"oneOf": _named(AUGMENTERS, definitions, {})}}
    return view


def _keyed(registry: Registry[Any], definitions: dict[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a section of components: its `name`, else its key says which."""
    named = _named(registry, definitions, own)
    keys = {}
    for number, entry in enumerate(registry):
        others = [branch for place, branch in enumerate(named) if place != number]
        keys[entry.name] = {"oneOf": [{"$ref": f"#/$defs/{registry.kind}.{entry.name}"}, *others]}
    return {"type": "object", "properties": keys, "additionalProperties": {"oneOf": [*named, _unnamed()]}}


def _named(registry: Registry[Any], definitions: dict[str, Any], own: Mapping[str, Any]) -> list[dict[str, Any]]:
    branches = []
    for entry in registry:
        definitions[f"{registry.kind}.{entry.name}"] = _component(entry, own)
        branches.append({"$ref": f"#/$defs/{registry.kind}.{entry.name}", "required": ["name"]})
    return branches


def _unnamed() -> dict[str, Any]:
    """Return the schema of a table that inherits its `name`: which component it is, an editor cannot know."""
    return {**_TABLE, "not": {"required": ["name"]}}


def _component(entry: Entry[Any], own: Mapping[str, Any]) -> dict[str, Any]:
    plain = _loose(_described(entry.parameters.model_json_schema(), entry.cls))
    name = {"const": entry.name, "description": entry.summary}
    plain["properties"] = {"name": name, **plain.get("properties", {}), **own}
    return {**plain, "description": entry.summary, "type": "object", "additionalProperties": False}
