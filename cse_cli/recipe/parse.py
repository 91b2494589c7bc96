"""Create a recipe from its merged tables. Each table is checked on its own, so that every problem is found."""

from __future__ import annotations

import datetime
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from cse_cli.recipe.files import place_file
from cse_cli.recipe.keys import Keys, dotted, inline
from cse_cli.recipe.problems import Problems, nearest, report
from cse_cli.recipe.schema import Data, EncoderPart, Evaluate, LossPart, Paper, Part, Recipe, Train, TuneRange, View
from cse_cli.recipe.sources import Origins
from registry import AUGMENTERS, ENCODERS, EVALUATORS, GENERATORS, HEADS, LOSSES, QUEUES
from registry.errors import UnknownNameError
from registry.machinery.core import Entry, Registry
from registry.machinery.parameters import Parameters, UnvalidatedParameters
from registry.machinery.validation import shown_value

S = TypeVar("S", bound=BaseModel)
P = TypeVar("P", bound=Part)
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


def leaves(value: Any, keys: Keys = (), *, arrays: bool = False) -> Iterator[tuple[Keys, Any]]:
    """Yield the path and value of everything in nested tables, and with `arrays` in arrays, that is not a table."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from leaves(inner, (*keys, key), arrays=arrays)
    elif arrays and isinstance(value, list | tuple):
        for position, inner in enumerate(value):
            yield from leaves(inner, (*keys, position), arrays=True)
    else:
        yield keys, value


def parse_recipe(tables: Mapping[str, Any], origins: Origins, problems: Problems) -> Recipe:
    """Return the recipe, with a default in place of each wrong value. Wrong values are added to `problems`."""
    for required, header in (("data", "data"), ("encoders", "encoders.online")):
        if required not in tables:
            problems.add("recipe.missing_key", (), f"the recipe needs a table [{header}]")

    def each(section: str, make: Callable[[Any, Keys, Problems], Any]) -> dict[str, Any]:
        return {name: make(table, keys, problems) for name, keys, table in _named(tables, (section,), problems)}

    sections: dict[str, Any] = {
        "data": check_section(Data, _data(tables.get("data", {}), origins, problems), ("data",), problems),
        "train": check_section(Train, tables.get("train", {}), ("train",), problems),
        "evaluate": check_section(Evaluate, tables.get("evaluate", {}), ("evaluate",), problems),
        "encoders": each("encoders", _encoder),
        "views": each("views", _view),
        "losses": each("losses", partial(_part, LossPart, LOSSES)),
        "evaluators": each("evaluators", partial(_part, Part, EVALUATORS)),
        "tune": each("tune", partial(check_section, TuneRange)),
    }
    if "paper" in tables:
        sections["paper"] = check_section(Paper, tables["paper"], ("paper",), problems)
    if "queue" in tables:
        sections["queue"] = _part(Part, QUEUES, tables["queue"], ("queue",), problems)
    recipe = check_section(Recipe, {**tables, **sections}, (), problems)
    if not problems.found:
        report_odd_values(tables, (), problems)
    return recipe


def report_odd_values(tables: Mapping[str, Any], keys: Keys, problems: Problems) -> None:
    """Report values that are valid TOML but not valid in a recipe.

    These are nan, infinities, dates, integers beyond 64 bits and strings with control characters.
    """
    for path, value in leaves(tables, keys, arrays=True):
        match value:
            case int() if not -(2**63) <= value < 2**63:
                what = "an integer beyond 64 bits"
            case str() if control := [c for c in value if unicodedata.category(c) == "Cc" and c not in "\t\n\r"]:
                what = f"the control character {control[0]!r}"
            case float() if not math.isfinite(value):
                what = str(value)
            case datetime.date() | datetime.time():
                what = str(value)
            case _:
                continue
        problems.add("recipe.invalid_value", path, f"{what} is not valid in a recipe")


def _data(table: Any, origins: Origins, problems: Problems) -> Any:
    """Return the table with generators of columns, a single data set as a tuple, and the paths of existing files."""
    if not isinstance(table, Mapping):
        return table
    changed = dict(table)
    if "columns" in changed:
        named = _named(changed, ("data", "columns"), problems)
        changed["columns"] = {name: _part(Part, GENERATORS, one, keys, problems) for name, keys, one in named}
    if isinstance(changed.get("dataset"), str):
        changed["dataset"] = (changed["dataset"],)
    file = changed.get("file")
    if not file:
        return changed
    directory = origins.directory(("data", "file"))
    if isinstance(file, str):
        changed["file"] = place_file(Path(file), directory)
    elif isinstance(file, list | tuple):
        changed["file"] = [place_file(Path(one), directory) if isinstance(one, str) and one else one for one in file]
    return changed


def _named(tables: Mapping[str, Any], keys: Keys, problems: Problems) -> list[tuple[str, Keys, Any]]:
    """Return name, path and content of each table in a table of tables."""
    found = tables.get(str(keys[-1]), {})
    if not isinstance(found, Mapping):
        problems.add("recipe.invalid_value", keys, f"should be a table of tables, not {shown_value(found)}")
        return []
    named = []
    for name, table in found.items():
        if _NAME.fullmatch(name):
            named.append((name, (*keys, name), table))
        else:
            message = "a name starts with a letter and contains only letters, digits, '_' and '-'"
            problems.add("recipe.invalid_name", (*keys, name), message, at_key=True)
    return named


def _encoder(table: Any, keys: Keys, problems: Problems) -> EncoderPart:
    if isinstance(table, Mapping) and "heads" in table:
        heads = _named(table, (*keys, "heads"), problems)
        table = {**table, "heads": {name: _part(Part, HEADS, head, inner, problems) for name, inner, head in heads}}
    return _part(EncoderPart, ENCODERS, table, keys, problems)


def _view(table: Any, keys: Keys, problems: Problems) -> View:
    if isinstance(table, Mapping) and "augment" in table:
        augment, keys_of_it = table["augment"], (*keys, "augment")
        if not isinstance(augment, list | tuple):
            problems.add(
                "recipe.invalid_value", keys_of_it, f"should be an array of tables, not {shown_value(augment)}"
            )
            augment = []
        parts = [_part(Part, AUGMENTERS, one, (*keys_of_it, n), problems) for n, one in enumerate(augment)]
        table = {**table, "augment": parts}
    return check_section(View, table, keys, problems)


def _part(model: type[P], registry: Registry[Any], table: Any, keys: Keys, problems: Problems) -> P:
    """Return a component. Its name is by default the last of `keys`."""
    if not isinstance(table, Mapping):
        problems.add("recipe.invalid_value", keys, f"should be a table, not {shown_value(table)}")
        return model(name=str(keys[-1]))
    own = model.model_fields.keys() - Part.model_fields.keys()
    entry = _entry(table, registry, keys, problems)
    given = {key: value for key, value in table.items() if key not in own and key != "name"}
    kept = {key: value for key, value in table.items() if key in own}
    name = str(table.get("name", keys[-1]))
    params: Parameters = UnvalidatedParameters()
    if entry is not None:
        what = f"{registry.singular} '{name}'"
        params = check_parameters(what, entry, given, keys, problems, own)
    return check_section(model, {"name": name, "params": params, **kept}, keys, problems)


def _entry(table: Mapping[str, Any], registry: Registry[Any], keys: Keys, problems: Problems) -> Entry[Any] | None:
    has_key = isinstance(keys[-1], str) and len(keys) > 1
    if "name" not in table and not has_key:
        problems.add("recipe.missing_key", keys, f"needs 'name', the name of a {registry.singular}", at_key=True)
        return None
    name = table.get("name", keys[-1])
    if not isinstance(name, str):
        problems.add("recipe.invalid_value", (*keys, "name"), f"should be text in quotes, not {shown_value(name)}")
        return None
    try:
        return registry[name]
    except UnknownNameError as error:
        message = error.message
    if "Did you mean" not in message:
        message += nearest(name, registry.names())
    if "name" in table:
        problems.add("recipe.unknown_component", (*keys, "name"), message)
    else:
        message += f" Rename the table, set its 'name' to a {registry.singular}, or load your own with --plugin FILE"
        problems.add("recipe.unknown_component", keys, message, at_key=True)
    return None


def check_parameters(
    what: str, entry: Entry[Any], given: Mapping[str, Any], keys: Keys, problems: Problems, own: Iterable[str] = ()
) -> Parameters:
    """Return the value of every parameter of a component, with a default in place of each wrong value.

    Parameters of an inherited component that its replacement does not accept are one problem, at the new name.

    `what` names the component in messages. Keys in `own` belong to the recipe and are valid, too.
    """
    fields = entry.parameters.model_fields
    try:
        params = entry.parameters.model_validate(dict(given))
    except ValidationError as error:
        rejected = {str(detail["loc"][0]) for detail in error.errors(include_url=False) if detail["loc"]}
        chosen = (*keys, "name")
        lost = [key for key in given if key in rejected and problems.is_inherited((*keys, key), chosen)]
        if lost:
            texts = [f"{key} = {inline(given[key])}" if key in fields else key for key in lost]
            places = [f"{text} ({problems.where((*keys, key))})" for text, key in zip(texts, lost, strict=True)]
            paths = [dotted((*keys, key)) for key in lost]
            on_command_line = problems.where(chosen).startswith("--")
            remove = " ".join(f"--unset {path}" for path in paths) if on_command_line else f"remove = {inline(paths)}"
            message = f"{what} does not accept inherited parameters: {', '.join(places)}. To give them up, add {remove}"
            problems.add("recipe.lost_parameters", chosen, message)
            kept = {key: value for key, value in given.items() if key not in lost}
            return check_parameters(what, entry, kept, keys, problems, own)
        wrong = report(error, given, keys, [*fields, *sorted(own)], ("parameter", what), problems)
        optional = {name: field for name, field in fields.items() if not field.is_required()}
        defaults = {name: field.get_default(call_default_factory=True) for name, field in optional.items()}
        return UnvalidatedParameters(**{**defaults, **{key: value for key, value in given.items() if key not in wrong}})
    for name, value in given.items():
        if isinstance(value, bool) and not isinstance(getattr(params, name), bool):
            # A choice among 0 and 1 accepts booleans, because they are equal in Python.
            problems.add("recipe.invalid_value", (*keys, name), f"should be {int(value)}, not {shown_value(value)}")
    return params


def check_section(model: type[S], table: Any, keys: Keys, problems: Problems) -> S:
    """Return a section, with a default in place of each wrong value."""
    if not isinstance(table, Mapping):
        problems.add("recipe.invalid_value", keys, f"should be a table, not {shown_value(table)}")
        table = {}
    try:
        return model.model_validate(dict(table))
    except ValidationError as error:
        known = [field.alias or name for name, field in model.model_fields.items() if name != "params"]
        what = f"[{'.'.join(map(str, keys))}]" if keys else "the recipe"
        wrong = report(error, table, keys, known, ("key", what), problems)
    good = {key: value for key, value in table.items() if key not in wrong}
    try:
        return model.model_validate(good)
    except ValidationError:
        return model.model_construct(**good)  # lacks a required key, which is reported above
