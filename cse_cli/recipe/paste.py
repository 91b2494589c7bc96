"""TOML of a component for a recipe: its table, with required parameters and defaults."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

from cse_cli.recipe.keys import dotted, inline
from cse_cli.recipe.schema import Train
from registry.core import Entry

_HEADERS = {
    "augmenters": "[[views.positive.augment]]",
    "encoders": "[encoders.online]",
    "evaluators": "[evaluators.{name}]",
    "heads": "[encoders.online.heads.{name}]",
    "losses": "[losses.{name}]",
    "queues": "[queue]",
}
"""Kind → header of its table. The documentation of a generator has its table as an example."""
_IN_TRAIN = {"optimizers": "optimizer", "schedules": "schedule"}
"""Kind → key of [train] that contains its name."""
_NAMED = ("augmenters", "encoders", "queues")
"""Kinds whose table needs a `name`, because its key is another one."""
_EXAMPLES = {"model": "bert-base-uncased", "dataset": "wiki1m", "file": "vectors.txt"}
_REFERENCES = {"view": "anchor", "encoder": "online", "loss": "info_nce"}
_USUAL_VIEWS = ("anchor", "positive")


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
        if views := dict(_views(entry)):
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


def _views(entry: Entry[Any]) -> Iterator[tuple[str, str | list[str]]]:
    """Yield the inputs of a loss whose view has another name, and a view for each."""
    for wanted in entry.inputs:
        if wanted.is_view and wanted.name not in _USUAL_VIEWS and not wanted.optional:
            yield wanted.name, ["positive"] if wanted.several else "positive"


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
