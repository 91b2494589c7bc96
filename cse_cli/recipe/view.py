"""Content of `cse show` as plain data, and the tables that print it and the checks of recipes."""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic.fields import FieldInfo
from rich.text import Text

from cse_cli.core.console import Console, stdout_console
from cse_cli.core.tables import as_rich, plain_table
from cse_cli.recipe.completion import KINDS, kinds_with_plugins, summaries
from cse_cli.recipe.files import all_recipes, all_studies, bare_file, find, shipped_name
from cse_cli.recipe.keys import dotted, inline
from cse_cli.recipe.load import load
from cse_cli.recipe.schema import Train, tune_of
from registry import REGISTRIES
from registry.errors import UnknownNameError, suggestion
from registry.machinery.core import Entry
from registry.papers import Badge, badge_of
from registry.resources import catalog
from registry.types import Augmenter


def component_documents(name: str) -> list[dict[str, Any]]:
    """Return the components with a name or a "kind/name", or an empty list if a recipe or data set has this name.

    Only their modules are imported, and the plug-ins.
    """
    kind, _, bare = name.rpartition("/")
    asked, extended = [each for each in REGISTRIES if kind in ("", each.kind)], kinds_with_plugins()
    places = [each for each in asked if each.kind in extended or bare in summaries(each.kind)]
    found = [full(registry[bare]) for registry in places if bare in registry]
    others = [*all_recipes(), *all_studies(), *catalog.names()]
    if found or name.endswith(".toml") or name in others:
        return found
    known = [*(component for kind in KINDS for component in summaries(kind)), *others]
    raise UnknownNameError(
        f"no component, recipe or data set is called '{name}'.{suggestion(name, known)}",
        "`cse list` and `cse data list` show all names. The path of a recipe ends in .toml",
        code="show.unknown_name",
    )


def dataset_document(name: str) -> dict[str, Any] | None:
    """Return the catalog's entry of a data set with the location of its splits, or None if it is unknown."""
    if name not in catalog.names() or bare_file(name, study=False):
        return None
    about = catalog.entry(name)
    splits = []
    for split, part in about.splits.items():
        state = catalog.state(name, split)
        where = state.origin or ("fetchable" if state.sources else "missing")
        splits.append({"name": split, "rows": part.rows, "columns": about.columns_of(split), "where": where})
    kept = about.model_dump(include={"name", "title", "kind", "language", "license", "citation", "url", "note"})
    return {**kept, "sources": [remote.where for remote in about.sources.values()], "splits": splits}


def recipe_badge(name: str) -> Badge | None:
    """Return the badge of a recipe of this installation, or None for another file."""
    shipped = shipped_name(find(name))
    return None if shipped is None else badge_of(shipped)


def recipe_document(name: str, overrides: Sequence[str], unset: Sequence[str]) -> dict[str, Any]:
    """Return a valid recipe as JSON. A changed recipe has no badge."""
    loaded = load(name, overrides, unset)
    files = [str(source.path) for source in loaded.origins.sources]
    badge = None if overrides or unset else recipe_badge(name)
    return {
        "name": loaded.name, "path": str(loaded.path), "extends": files[1:], "hash": loaded.recipe.hash(),
        "text": loaded.text, "recipe": loaded.recipe.resolved(), "badge": badge.document() if badge else None,
    }  # fmt: skip


def print_component(about: Mapping[str, Any]) -> None:
    """Print the documentation and parameters of a component."""
    with stdout_console() as console:
        console.print(Text.assemble((about["name"], "bold"), f"  ({about['kind']}, {about['distribution']})"))
        console.print(Text(f"{about['file']}:{about['line']}", "dim"))
        console.print(Text(f"\n{about['doc']}\n"))
        for line in _facts(about):
            console.print(Text(line))
        if about["parameters"]:
            _print_parameters(console, about["parameters"])
        else:
            console.print("no parameters")
        if about["toml"]:
            console.print(Text(f"\nin a recipe:\n\n{about['toml']}"), soft_wrap=True)


def _print_parameters(console: Console, parameters: Sequence[Mapping[str, Any]]) -> None:
    headings = ("parameter", "type", "default", "bounds", "tune")
    rows = []
    for p in parameters:
        value = p.get("default")
        default = "–" if value is None else json.dumps(value, ensure_ascii=False, default=str)
        default = "required" if p["required"] else default
        rows.append((p["name"], p["type"], default, p.get("bounds", ""), _range(p)))
    console.print(as_rich(plain_table(headings, rows, align="lpppp"), gap=1))


def print_dataset(about: Mapping[str, Any]) -> None:
    """Print the license, sources and splits of a data set."""
    with stdout_console() as console:
        console.print(Text.assemble((about["name"], "bold"), f"  ({about['kind']}, {about['language']})"))
        console.print(Text(f"\n{about['title']}. {about['note']}".rstrip()))
        console.print(Text(f"\nlicense: {about['license']}\nsource: {about['citation']}"))
        for place in filter(None, (about["url"], *about["sources"])):
            console.print(Text(f"        {place}"))
        rows = [(x["name"], f"{x['rows']:,}", x["where"], ", ".join(x["columns"])) for x in about["splits"]]
        console.print()
        console.print(as_rich(plain_table(("split", "rows", "where", "columns"), rows, align="lrlp")))


_SOURCES = {
    "sentences": "sentence embeddings of a view",
    "pooled": "sentence embeddings of a view, before the heads",
    "encoded": "hidden states of a view",
    "negatives": "the queue",
    "labels": "numbers of the data's column `column`",
}


def _facts(about: Mapping[str, Any]) -> list[str]:
    lines = []
    if "inputs" in about:
        inputs = (
            f"{i['name']}{' (optional)' if i['optional'] else ''} ← {_SOURCES[i['kind']]}"
            f"{', each of several' if i['several'] else ''}"
            for i in about["inputs"]
        )
        lines.append(f"inputs: {' · '.join(inputs)}")
    if "levels" in about:
        lines.append(f"acts on: {', '.join(about['levels']) or 'nothing'}")
    if "metrics" in about:
        lines.append(f"metrics: {', '.join(about['metrics'])}; in tables: {about['metric']}")
    return [*lines, ""] if lines else []


def _range(parameter: Mapping[str, Any]) -> str:
    if "tune" not in parameter:
        return ""
    tune = parameter["tune"]
    step = f", step {tune['step']:g}" if tune["step"] else ""
    return f"{tune['low']:g} … {tune['high']:g}{', log' if tune['log'] else ''}{step}"


def print_badge(badge: Badge) -> None:
    """Print the checks of a recipe on stderr, because stdout is the recipe. Lines have at most 80 columns."""
    lines = badge.lines if badge else ("none. A recipe has no part in the checks of the recipe that it extends",)
    sys.stderr.write(f"checks of {badge.recipe}, explained in docs/fidelity.md:\n")
    for line in lines:
        wrapped = textwrap.wrap(line, 76, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
        sys.stderr.writelines(f"  {part}\n" for part in wrapped)


def print_checks(checks: Sequence[Mapping[str, Any]]) -> None:
    """Print all problems, and the number of recipes and studies."""
    for check in checks:
        for problem in check["problems"]:
            sys.stdout.write(f"{problem['text']}\n")
        for warning in check.get("warnings", ()):
            sys.stderr.write(f"warning: {check['path']}: {warning}\n")
    wrong = sum(not check["valid"] for check in checks)
    studies = sum(check["kind"] == "study" for check in checks)
    recipes = len(checks) - studies
    counts = [f"{recipes} recipe{'' if recipes == 1 else 's'}"] if recipes or not studies else []
    counts += [f"{studies} {'study' if studies == 1 else 'studies'}"] if studies else []
    sys.stdout.write(f"{' and '.join(counts)} checked: {f'{wrong} with problems' if wrong else 'all valid'}\n")


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
