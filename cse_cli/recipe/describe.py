"""What is printed of components, recipes and data sets, as plain data for tables and JSON."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

from pydantic.fields import FieldInfo

from cse_cli.core.formatting import to_toml
from cse_cli.recipe.errors import read_source
from cse_cli.recipe.files import all_recipes, all_studies, find
from cse_cli.recipe.load import load
from registry import REGISTRIES, catalogue
from registry.core import Entry
from registry.errors import UnknownNameError, suggestion
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
    return {**about, "file": _relative(entry.file), "line": entry.line}


def levels(cls: type[Augmenter]) -> list[str]:
    """Return what an augmenter acts on, by the hooks it overrides."""
    return [level for hook, level in _LEVELS.items() if getattr(cls, hook) is not getattr(Augmenter, hook)]


def full(entry: Entry[Any]) -> dict[str, Any]:
    """Return all that `cse show` prints of a component."""
    about = brief(entry)
    about["parameters"] = [parameter(entry, name, field) for name, field in entry.parameters.model_fields.items()]
    if entry.inputs:
        about["inputs"] = [
            {"name": i.name, "kind": i.kind, "optional": i.optional, "several": i.several} for i in entry.inputs
        ]
    metrics = getattr(entry.cls, "metrics", None)
    if metrics is not None:
        about |= {"metric": entry.cls.metric, "metrics": list(metrics)}
    return {**about, "doc": entry.docstring}


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
        yield _TYPES.get(schema.get("type", ""), schema.get("type", "any"))


def _bounds(schema: dict[str, Any]) -> Iterator[str]:
    for key, sign in _SIGNS.items():
        if key in schema:
            yield f"{sign} {schema[key]:g}"
    for choice in schema.get("anyOf", []):
        yield from _bounds(choice)


def _relative(file: str) -> str:
    path, here = Path(file), Path.cwd()
    return os.path.relpath(path, here) if path.is_relative_to(here) else file


def component_documents(name: str) -> list[dict[str, Any]]:
    """Return the components of that name, or of "kind/name"; none where only a recipe or a data set can be meant.

    Raises:
        UnknownNameError: No component, recipe or data set has that name.
    """
    kind, slash, bare = name.rpartition("/")
    found = [full(entry) for entry in entries() if entry.name == bare and (not slash or kind == entry.kind)]
    others = [*all_recipes(), *all_studies(), *catalogue.names()]
    if found or name.endswith(".toml") or name in others:
        return found
    known = [entry.name for entry in entries()]
    raise UnknownNameError(
        f"no component, recipe or data set is called '{name}'.{suggestion(name, [*known, *others])}",
        "`cse list` and `cse data list` show all of them; the path of a recipe ends in .toml",
    )


def dataset_document(name: str) -> dict[str, Any] | None:
    """Return what the catalogue says of a data set, and where its splits are; None where there is none of that name."""
    if name not in catalogue.names() or name in all_recipes():
        return None
    about = catalogue.entry(name)
    splits = []
    for split, part in about.splits.items():
        state = catalogue.state(name, split)
        where = state.origin or ("fetchable" if state.sources else "missing")
        splits.append({"name": split, "rows": part.rows, "columns": about.columns_of(split), "where": where})
    kept = about.model_dump(include={"name", "title", "kind", "language", "licence", "citation", "url", "note"})
    return {**kept, "sources": [remote.where for remote in about.sources.values()], "splits": splits}


def recipe_text(name: str, overrides: Sequence[str], unset: Sequence[str], *, resolved: bool) -> str:
    """Return a recipe's text as written, or resolved with overrides.

    Raises:
        CseError: It is unknown or, where it must be resolved, not valid.
    """
    if resolved:
        return to_toml(load(name, overrides, unset).recipe.resolved())
    return read_source(find(name)).text


def recipe_document(name: str, overrides: Sequence[str], unset: Sequence[str]) -> dict[str, Any]:
    """Return a valid recipe as JSON writes it.

    Raises:
        CseError: It is unknown or not valid.
    """
    loaded = load(name, overrides, unset)
    files = [str(source.path) for source in loaded.origins.sources]
    return {
        "name": loaded.name, "path": str(loaded.path), "extends": files[1:], "hash": loaded.recipe.hash(),
        "text": loaded.text, "recipe": loaded.recipe.resolved(),
    }  # fmt: skip
