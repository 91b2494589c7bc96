"""JSON Schema of recipe files for editors: that of pydantic, with the parameters of the registered components."""

from __future__ import annotations

from typing import Any

from cse_cli.recipe import schema
from registry import AUGMENTERS, ENCODERS, EVALUATORS, GENERATORS, HEADS, LOSSES, QUEUES, REGISTRIES
from registry.machinery.core import Registry
from registry.machinery.signature import documented
from registry.resources import catalog

_INHERITS_NAME = {"type": "object", "not": {"required": ["name"]}}
"""A component whose `name` is inherited. An editor cannot know its parameters."""


def json_schema() -> dict[str, Any]:
    """Return the schema of a recipe file. No key is required in a file that extends another."""
    whole = schema.Recipe.model_json_schema()
    defined = whole["$defs"]
    for name, section in (*defined.items(), ("Recipe", whole)):
        _describe(section, vars(schema)[name])
    for registry in REGISTRIES:
        part = {"losses": "LossPart", "encoders": "EncoderPart"}.get(registry.kind, "Part")
        own = {key: value for key, value in defined[part]["properties"].items() if key not in ("name", "params")}
        for entry in registry:
            made = _describe(entry.parameters.model_json_schema(), entry.cls)
            made["properties"] = {"name": {"const": entry.name}, **made.get("properties", {}), **own}
            defined[f"{registry.kind}.{entry.name}"] = made

    def named(registry: Registry[Any]) -> list[dict[str, Any]]:
        return [{"$ref": f"#/$defs/{registry.kind}.{name}", "required": ["name"]} for name in registry.names()]

    def keyed(registry: Registry[Any]) -> dict[str, Any]:
        """Return the schema of a section of components, whose names are their keys by default."""
        tables = named(registry)
        keys = {name: {"anyOf": [{"$ref": f"#/$defs/{registry.kind}.{name}"}, *tables]} for name in registry.names()}
        return {"type": "object", "properties": keys, "additionalProperties": {"anyOf": [*tables, _INHERITS_NAME]}}

    data, names = defined["Data"]["properties"], [{"enum": catalog.names()}, {"type": "string", "pattern": "^hf:"}]
    data["dataset"] = {"anyOf": [*names, {"type": "array", "items": {"anyOf": names}}]}
    data["columns"]["additionalProperties"] = {"anyOf": [*named(GENERATORS), _INHERITS_NAME]}
    defined["View"]["properties"]["augment"]["items"] = {"anyOf": named(AUGMENTERS)}
    defined["EncoderPart"]["properties"]["heads"] |= keyed(HEADS)
    own = {registry.kind: keyed(registry) for registry in (ENCODERS, LOSSES, EVALUATORS)}
    own["queue"] = {"anyOf": [*named(QUEUES), _INHERITS_NAME]}
    own["extends"], own["remove"] = {"type": "string"}, {"type": "array", "items": {"type": "string"}}
    whole["properties"] |= own
    whole |= {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "cse recipe"}
    return whole | {"anyOf": [{"required": ["extends"]}, {"required": ["title", "data", "encoders"]}]}


def _describe(section: dict[str, Any], cls: type) -> dict[str, Any]:
    """Add the descriptions of the class docstring, and make every key optional."""
    section.pop("required", None)
    section["description"] = (cls.__doc__ or "").partition("\n")[0]
    for name, text in documented(cls).items():
        section.get("properties", {}).get(name, {})["description"] = text
    return section
