"""Scores of the word overlap of sentence pairs, the last line of each table of STS scores."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cse_cli.core.digests import remembered
from cse_cli.core.results import Scores
from cse_cli.evaluation.tasks import Task
from cse_cli.recipe.requirements import of_part
from cse_cli.recipe.schema import Recipe
from registry import EVALUATORS
from registry.core import Entry
from registry.resources import catalog
from registry.resources.catalog.find import own_file
from registry.types import Evaluator

LABEL = "word overlap"
"""Label of the line in tables."""

VERSION = "1"
"""Part of the key of remembered values. Raise it if the same pairs get other values."""


def of_recipe(recipe: Recipe) -> Scores:
    """Return evaluator → metric → value for the evaluators of a recipe that have a word overlap."""
    return _scores((name, part.name, part.params) for name, part in recipe.evaluators.items())


def of_tasks(tasks: Mapping[str, Task]) -> Scores:
    """Return task → metric → value for the tasks that have a word overlap."""
    return _scores((name, task.component, task.params) for name, task in tasks.items())


def _scores(evaluators: Iterable[tuple[str, str, Mapping[str, Any]]]) -> Scores:
    found = {name: of_evaluator(component, params) for name, component, params in evaluators}
    return {name: values for name, values in found.items() if values}


def of_evaluator(component: str, params: Mapping[str, Any]) -> dict[str, float]:
    """Return metric → value of `Evaluator.word_overlap`. Empty if the evaluator or its data has none.

    The values are remembered until one of the files changes. Data that is not on this machine is not downloaded.
    """
    entry = EVALUATORS[component]
    files = None if entry.cls.word_overlap is Evaluator.word_overlap else _files(entry, params)
    if files is None:
        return {}
    if not files:  # generated pairs
        return entry.build(params).word_overlap()
    what = f"word overlap {VERSION} {component} {json.dumps(params, sort_keys=True)}"
    values: dict[str, float] = json.loads(
        remembered(what, files, lambda: json.dumps(entry.build(params).word_overlap()))
    )
    return values


def _files(entry: Entry[Evaluator], params: Mapping[str, Any]) -> list[Path] | None:
    """Return the files of an evaluator's pairs, or None if they are not on this machine or in a data set of the Hub."""
    files: list[Path] = []
    for one in of_part("", entry, params):
        if one.kind == "file":
            own = own_file(one.name)
            found = None if own is None else [own]
        else:
            split = catalog.find(one.name, one.split) if one.name in catalog.names() else None
            found = None if split is None else list(split[1].paths)
        if found is None:
            return None
        files += found
    return files
