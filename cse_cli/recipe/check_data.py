"""Check the data sets, splits and columns of a recipe against the catalog, without reading any data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cse_cli.recipe.errors import nearest
from cse_cli.recipe.keys import Keys, dotted
from cse_cli.recipe.problems import Problems
from cse_cli.recipe.schema import PlacedPart, Recipe
from registry import GENERATORS, LOSSES
from registry.errors import CseError, UnknownNameError
from registry.resources import catalog
from registry.resources.hub_sets import HubSet

_ONE_OF = "needs 'dataset' (`cse data list` shows the names) or 'file', the path of your data"


def check_data(recipe: Recipe, written: Mapping[Keys, set[str]], problems: Problems) -> None:
    """Report data sets, splits and columns that the catalog does not contain."""
    _check_section(recipe, written[("data",)], problems)
    _check_made(recipe, problems)
    listed = ("data", "dataset") in written
    for number, name in enumerate(recipe.data.dataset):
        keys: Keys = ("data", "dataset", number) if listed else ("data", "dataset")
        if name.startswith("hf:"):
            try:
                HubSet.parse(name)
            except CseError as error:
                problems.add("recipe.unknown_dataset", keys, f"{error.message}: {error.next_action}")
        elif _check_split(name, recipe.data.split, keys, ("data", "split"), problems):
            _check_columns(recipe, name, problems)
    for placed in recipe.parts():
        if placed.part.name in placed.registry:
            _check_part(placed, written.get(placed.keys, set()), problems)


def _check_section(recipe: Recipe, written: set[str], problems: Problems) -> None:
    data = recipe.data
    if data.dataset and data.file:
        _report_both(("data",), problems)
    elif not {"dataset", "file"} & written and recipe.losses:
        problems.add("recipe.missing_key", ("data",), _ONE_OF, at_key=True)
    if data.column is not None and data.dataset and not any(name.startswith("hf:") for name in data.dataset):
        message = "has an effect only on 'file' and on 'hf:' data sets. Set the 'column' of a view instead"
        problems.add("recipe.conflict", ("data", "column"), message, at_key=True)


def _check_made(recipe: Recipe, problems: Problems) -> None:
    """Check that each generator of a column makes columns, that a view reads it, and that no column needs itself."""
    made = recipe.data.columns
    if not made:
        return
    from registry.types import ColumnGenerator  # imports torch

    for name, part in made.items():
        keys: Keys = ("data", "columns", name)
        if part.name in GENERATORS and not issubclass(GENERATORS[part.name].cls, ColumnGenerator):
            message = f"generator '{part.name}' makes the rows of a data set, not a column. `cse list generators`"
            problems.add("recipe.invalid_value", keys, message, at_key=True)
        above = [name]
        while (source := made[above[-1]].params.get("column")) in made and source not in above:
            above.append(str(source))
        if source in above:
            problems.add("recipe.conflict", (*keys, "column"), f"column '{name}' is made from itself")
    read = {column for _, column in _columns_read(recipe)} | {part.params.get("column") for part in made.values()}
    for name in made.keys() - read:
        message = "no view or augmenter reads this column. Remove it"
        problems.add("recipe.unused_column", ("data", "columns", name), message, at_key=True)


def _check_part(placed: PlacedPart, written: set[str], problems: Problems) -> None:
    """Check the data sets that the parameters of a component name."""
    params, keys = placed.part.params, placed.keys
    split = params.get("split")
    for parameter, resource in placed.entry.resources.items():
        value = params.get(parameter)
        if resource.kind != "dataset" or value in (None, resource.evaluated):
            continue
        names: list[tuple[Keys, Any]] = [((*keys, parameter), value)]
        if isinstance(value, list | tuple):
            names = [((*keys, parameter, number), each) for number, each in enumerate(value)]
        for path, name in names:
            _check_split(str(name), split if isinstance(split, str) else "all", path, (*keys, "split"), problems)
    if keys[0] == "evaluators" and {"dataset", "file"} <= placed.entry.parameters.model_fields.keys():
        if written >= {"dataset", "file"}:
            _report_both(keys, problems)
        elif not {"dataset", "file"} & written:
            problems.add("recipe.missing_key", keys, _ONE_OF, at_key=True)


def _report_both(keys: Keys, problems: Problems) -> None:
    given = problems.where((*keys, "file"), at_key=True).startswith("--")
    dataset = dotted((*keys, "dataset"))
    how = (
        f"add --unset {dataset}" if given else f"delete 'dataset', or if it is inherited, add remove = [\"{dataset}\"]"
    )
    message = f"give either 'dataset' or 'file', not both. For the file, {how}"
    problems.add("recipe.conflict", (*keys, "file"), message, at_key=True)


def _check_split(name: str, split: str, keys: Keys, split_keys: Keys, problems: Problems) -> bool:
    try:
        entry = catalog.entry(name)
    except UnknownNameError:
        return problems.known("dataset", name, catalog.names(), keys)
    try:
        entry.split(split)
    except UnknownNameError as error:
        action = error.next_action or ""
        problems.add("recipe.unknown_split", split_keys, f"{error.message} {action[:1].upper()}{action[1:]}")
        return False
    return True


def _check_columns(recipe: Recipe, name: str, problems: Problems) -> None:
    columns = catalog.entry(name).columns_of(recipe.data.split)
    made = recipe.data.columns
    for own in made.keys() & {*columns}:
        message = f"dataset '{name}' has a column '{own}'. Give the made column another name"
        problems.add("recipe.conflict", ("data", "columns", own), message, at_key=True)
    for keys, column in _columns_read(recipe):
        if column not in columns and column not in made:
            more = " [data.columns.translation] makes one (`cse show translate`)" if column == "translation" else ""
            message = f"dataset '{name}' has no column '{column}'.{nearest(column, columns)}{more}"
            problems.add("recipe.unknown_column", keys, message)


def _columns_read(recipe: Recipe) -> Iterator[tuple[Keys, str]]:
    """Yield each column that a view, a generator, or the parameter `column` of an augmenter or a loss reads."""
    for name, column in recipe.data.columns.items():
        if isinstance(column.params.get("column"), str):
            yield ("data", "columns", name, "column"), column.params["column"]
    for name, view in recipe.views.items():
        yield ("views", name, "column"), view.column
        for number, part in enumerate(view.augment):
            if isinstance(part.params.get("column"), str):
                yield ("views", name, "augment", number, "column"), part.params["column"]
    for name, loss in recipe.losses.items():
        if loss.name in LOSSES and any(i.kind == "labels" for i in LOSSES[loss.name].inputs):
            yield ("losses", name, "column"), loss.params.get("column", LOSSES[loss.name].cls.column)
