"""What a recipe says of its data, held against the catalogue: names, splits, columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cse_cli.recipe.draft import Draft
from cse_cli.recipe.positions import Keys
from cse_cli.recipe.problems import Problems
from cse_cli.recipe.schema import Data
from registry import catalogue
from registry.catalogue.hub_sets import HubSet
from registry.errors import CseError, UnknownNameError, suggestion


def check_data(draft: Draft, tables: Mapping[str, Any], problems: Problems) -> None:
    """Report data sets, splits and columns that the catalogue does not have; no file is looked for."""
    if draft.data is not None:
        _check_choice(draft, draft.data, problems)
        _check_streaming(draft, draft.data, problems)
        for keys, name in _datasets(draft.data, tables):
            if name.startswith("hf:"):
                _check_hub_set(name, keys, problems)
            elif _check_split(name, draft.data.split, keys, ("data", "split"), problems):
                _check_columns(draft, name, draft.data.split, problems)
    _check_pair_sources(draft, tables, problems)
    for part in draft.evaluators.values():
        dataset, split = part.params.get("dataset"), part.params.get("split")
        named = split if isinstance(split, str) else "all"
        if isinstance(dataset, str):
            _check_split(dataset, named, (*part.keys, "dataset"), (*part.keys, "split"), problems)
        several = part.params.get("datasets")
        for number, name in enumerate(several if isinstance(several, list) else ()):
            _check_split(str(name), named, (*part.keys, "datasets", number), (*part.keys, "split"), problems)


def _check_choice(draft: Draft, data: Data, problems: Problems) -> None:
    if data.dataset and data.file:
        problems.add(("data", "file"), "give either 'dataset' or 'file', not both", at_key=True)
    elif not data.dataset and data.file is None and draft.losses:
        problems.add(("data",), "needs 'dataset' (`cse data list` shows them) or 'file', your own text", at_key=True)


def _check_streaming(draft: Draft, data: Data, problems: Problems) -> None:
    if data.streaming and draft.train is not None and draft.train.steps is None:
        message = "needs train.steps: the length of a stream is not known; n sentences are n / batch_size steps"
        problems.add(("data", "streaming"), message)
    if data.streaming and data.limit is not None:
        problems.add(("data", "limit"), "cannot limit what is streamed: train.steps does", at_key=True)
    if data.shuffle_buffer is not None and not data.streaming:
        problems.add(("data", "shuffle_buffer"), "only means something with streaming = true", at_key=True)
    if data.column is not None and data.dataset and not any(name.startswith("hf:") for name in data.dataset):
        message = "is for `file` and `hf:` data sets: the catalogue knows the columns of its own"
        problems.add(("data", "column"), message, at_key=True)


def _check_hub_set(name: str, keys: Keys, problems: Problems) -> None:
    """Report a name that is not of the form of a hub data set; whether the hub has it is not asked here."""
    try:
        HubSet.parse(name)
    except CseError as error:
        problems.add(keys, f"{error.message}: {error.next_action}")


def _check_pair_sources(draft: Draft, tables: Mapping[str, Any], problems: Problems) -> None:
    """Report evaluators that could read a data set or a file and name both or neither."""
    written = tables.get("evaluators")
    for key, part in draft.evaluators.items():
        if part.entry is None or not {"dataset", "file"} <= set(part.entry.parameters.model_fields):
            continue
        table = written.get(key) if isinstance(written, Mapping) else None
        given = {"dataset", "file"} & set(table) if isinstance(table, Mapping) else set()
        if len(given) == 2:
            problems.add((*part.keys, "file"), "give either 'dataset' or 'file', not both", at_key=True)
        elif not given:
            message = "needs 'dataset' (`cse data list` shows them) or 'file', your own pairs"
            problems.add(part.keys, message, at_key=True)


def _datasets(data: Data, tables: Mapping[str, Any]) -> Iterator[tuple[Keys, str]]:
    """Yield each name and its path: the recipe writes one name, or an array of them."""
    written = tables.get("data")
    listed = isinstance(written, Mapping) and isinstance(written.get("dataset"), list)
    for number, name in enumerate(data.dataset):
        yield (("data", "dataset", number) if listed else ("data", "dataset")), name


def _check_split(name: str, split: str, keys: Keys, split_keys: Keys, problems: Problems) -> bool:
    try:
        about = catalogue.entry(name)
    except UnknownNameError as error:
        hint = "" if "Did you mean" in error.message else " `cse data list` shows all of them."
        problems.add(keys, f"{error.message}{hint}")
        return False
    try:
        about.split(split)
    except UnknownNameError as error:
        problems.add(split_keys, f"{error.message} {(error.next_action or '').capitalize()}.")
        return False
    return True


def _check_columns(draft: Draft, name: str, split: str, problems: Problems) -> None:
    columns = catalogue.entry(name).columns_of(split)
    for keys, column in _wanted(draft):
        if column not in columns:
            hint = suggestion(column, columns) or f" It has: {', '.join(columns)}."
            more = " `cse data translate` makes a second language." if column == "translation" else ""
            problems.add(keys, f"dataset '{name}' has no column '{column}'.{hint}{more}")


def _wanted(draft: Draft) -> Iterator[tuple[Keys, str]]:
    """Yield each column that a view, or an augmenter by its parameter `column`, reads."""
    for name, view in draft.views.items():
        yield ("views", name, "column"), view.column
    for part in (augmenter for augmenters in draft.augmenters.values() for augmenter in augmenters):
        if isinstance(part.params.get("column"), str):
            yield (*part.keys, "column"), part.params["column"]
