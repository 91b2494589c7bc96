"""A recipe's tables checked one by one, against the schema and the components' signatures; names are not looked up yet.

Each table by itself, so that every problem is reported and not just the first.
"""

from __future__ import annotations

import datetime
import math
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from cse_cli.recipe.errors import Checking, Keys, Origins, Problems, report
from cse_cli.recipe.files import place_file
from cse_cli.recipe.schema import Data, EncoderPart, Evaluate, LossPart, Paper, Part, Recipe, Train, TuneRange, View
from registry import AUGMENTERS, ENCODERS, EVALUATORS, HEADS, LOSSES, QUEUES
from registry.core import Entry, Registry
from registry.errors import UnknownNameError
from registry.validation import shown_value

_SECTIONS = frozenset(
    {"data", "train", "evaluate", "paper", "queue", "encoders", "views", "losses", "evaluators", "tune"}
)
_LOSS_KEYS = frozenset(LossPart.model_fields) - frozenset(Part.model_fields)
_ENCODER_KEYS = frozenset(EncoderPart.model_fields) - frozenset(Part.model_fields)
_NONE: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Checked:
    """A component table after its check.

    Args:
        keys: Its path in the recipe.
        table: `name`, `params` with every default, and the recipe's own keys as written.
        entry: None where no component has that name.
    """

    keys: Keys
    table: dict[str, Any]
    entry: Entry[Any] | None

    @property
    def params(self) -> dict[str, Any]:
        """Parameter → value."""
        params: dict[str, Any] = self.table["params"]
        return params


@dataclass(frozen=True)
class Draft:
    """What is known of a recipe after each table was checked; a section is None where it cannot be used."""

    encoders: dict[str, Checked]
    heads: dict[str, dict[str, Checked]]
    views: dict[str, View]
    augmenters: dict[str, tuple[Checked, ...]]
    queue: Checked | None
    losses: dict[str, LossPart]
    loss_parts: dict[str, Checked]
    evaluators: dict[str, Checked]
    data: Data | None
    train: Train | None
    evaluate: Evaluate | None
    paper: Paper | None
    tune: dict[str, TuneRange]

    @property
    def parts(self) -> list[Checked]:
        """Every component, encoders first."""
        heads = [part for heads in self.heads.values() for part in heads.values()]
        augmenters = [part for augmenters in self.augmenters.values() for part in augmenters]
        queue = [] if self.queue is None else [self.queue]
        return [*self.encoders.values(), *heads, *augmenters, *queue, *self.loss_parts.values(),
                *self.evaluators.values()]  # fmt: skip


def draft(tables: Mapping[str, Any], origins: Origins, problems: Problems) -> Draft:
    """Check every table by itself."""
    views, augmenters = _views(tables, problems)
    loss_parts = _components(tables.get("losses", {}), ("losses",), LOSSES, _LOSS_KEYS, problems)
    losses = {key: check_section(LossPart, part.table, part.keys, problems) for key, part in loss_parts.items()}
    queue = tables.get("queue")
    encoders = _components(tables.get("encoders", {}), ("encoders",), ENCODERS, _ENCODER_KEYS, problems)
    heads = {
        key: _components(part.table.get("heads", {}), (*part.keys, "heads"), HEADS, _NONE, problems)
        for key, part in encoders.items()
    }
    return Draft(
        encoders=encoders,
        heads=heads,
        views=views,
        augmenters=augmenters,
        queue=None if queue is None else check_part(queue, QUEUES, ("queue",), _NONE, problems),
        losses={key: part for key, part in losses.items() if part is not None},
        loss_parts=loss_parts,
        evaluators=_components(tables.get("evaluators", {}), ("evaluators",), EVALUATORS, _NONE, problems),
        data=check_section(Data, _data(tables, origins), ("data",), problems),
        train=check_section(Train, tables.get("train", {}), ("train",), problems),
        evaluate=check_section(Evaluate, tables.get("evaluate", {}), ("evaluate",), problems),
        paper=check_section(Paper, tables["paper"], ("paper",), problems) if "paper" in tables else None,
        tune=_ranges(tables, problems),
    )


_LONGEST_TEXT = 4096
"""Characters of anything but a description: as many as a path may have."""
_MOST_BITS = 128
"""Of a number that is told; Python refuses to write one of more than 4,300 digits."""


def odd_values(value: Any, keys: Keys = ()) -> Iterator[tuple[Keys, str]]:
    """Yield what TOML has and recipes do not: nan, infinities, dates, numbers beyond 64 bits, texts nobody can read."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from odd_values(inner, (*keys, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from odd_values(inner, (*keys, number))
    elif what := _odd(value):
        yield keys, what
    elif isinstance(value, str) and len(value) > _LONGEST_TEXT and keys[-1:] != ("description",):
        yield keys, f"a text of {len(value):,} characters"


def _odd(value: Any) -> str:
    if isinstance(value, int):
        beyond = not -(2**63) <= value < 2**63
        return (str(value) if value.bit_length() < _MOST_BITS else "a number that long") if beyond else ""
    if isinstance(value, str):
        # No name of a file has one, and a terminal obeys it.
        control = next((c for c in value if unicodedata.category(c) == "Cc" and c not in "\t\n\r"), None)
        return "" if control is None else f"a text with the control character {control!r}"
    odd = isinstance(value, datetime.date | datetime.time) or (isinstance(value, float) and not math.isfinite(value))
    return str(value) if odd else ""


def check_top_level(tables: Mapping[str, Any], problems: Problems) -> None:
    """Report what is wrong with the keys that are not tables, and with tables that no recipe has."""
    plain = {key: value for key, value in tables.items() if key not in _SECTIONS}
    stand_ins: dict[str, Any] = {"data": {}, "encoders": {}}
    for required in ("data", "encoders"):
        if required not in tables:
            problems.add((), f"the recipe needs a table [{'encoders.online' if required == 'encoders' else required}]")
    if plain.get("schema") is True:  # equal to 1 for pydantic
        problems.add(("schema",), "should be 1, not true")
    check_section(Recipe, {**plain, **stand_ins}, (), problems)


def _data(tables: Mapping[str, Any], origins: Origins) -> Any:
    """Return the table with a single data set as a list of one, and the file found."""
    table = tables.get("data", {})
    if not isinstance(table, Mapping):
        return table
    changed = dict(table)
    if isinstance(changed.get("dataset"), str):
        changed["dataset"] = (changed["dataset"],)
    if file := changed.get("file"):
        folder = origins.folder(("data", "file"))
        if isinstance(file, str):
            changed["file"] = place_file(Path(file), folder)
        elif isinstance(file, list | tuple):
            changed["file"] = tuple(place_file(Path(f), folder) if isinstance(f, str) and f else f for f in file)
    return changed


def _named_tables(found: Any, keys: Keys, problems: Problems) -> Mapping[str, Any]:
    """Return a table of tables, empty where it is none; keys that are no names are reported."""
    if not isinstance(found, Mapping):
        problems.add(keys, f"should be a table of tables, not {shown_value(found)}")
        return {}
    for key in found:
        plain = key.replace("_", "").replace("-", "")
        if not (key[:1].isalpha() and plain.isalnum() and key.isascii()):
            message = "a name starts with a letter and has only letters, digits, '_' and '-'"
            problems.add((*keys, key), message, at_key=True)
    return found


def _components(
    found: Any, keys: Keys, registry: Registry[Any], own: frozenset[str], problems: Problems
) -> dict[str, Checked]:
    tables = _named_tables(found, keys, problems)
    return {key: check_part(table, registry, (*keys, key), own, problems) for key, table in tables.items()}


def _views(tables: Mapping[str, Any], problems: Problems) -> tuple[dict[str, View], dict[str, tuple[Checked, ...]]]:
    views: dict[str, View] = {}
    augmenters: dict[str, tuple[Checked, ...]] = {}
    for key, table in _named_tables(tables.get("views", {}), ("views",), problems).items():
        keys: Keys = ("views", key)
        augment = table.get("augment", []) if isinstance(table, Mapping) else []
        augmenters[key] = _augmenters(augment, (*keys, "augment"), problems)
        if isinstance(table, Mapping):
            table = {k: v for k, v in table.items() if k != "augment"}
        views[key] = check_section(View, table, keys, problems) or View()
    return views, augmenters


def _augmenters(augment: Any, keys: Keys, problems: Problems) -> tuple[Checked, ...]:
    if not isinstance(augment, list):
        problems.add(keys, f"should be an array of tables, not {shown_value(augment)}")
        return ()
    return tuple(check_part(item, AUGMENTERS, (*keys, i), _NONE, problems) for i, item in enumerate(augment))


def _ranges(tables: Mapping[str, Any], problems: Problems) -> dict[str, TuneRange]:
    found = _named_tables(tables.get("tune", {}), ("tune",), problems)
    ranges = {key: check_section(TuneRange, table, ("tune", key), problems) for key, table in found.items()}
    return {key: value for key, value in ranges.items() if value is not None}


def check_part(table: Any, registry: Registry[Any], keys: Keys, own: frozenset[str], problems: Problems) -> Checked:
    """Check one component table; the last of `keys` is its name where it gives none, `own` are the recipe's keys."""
    if not isinstance(table, Mapping):
        problems.add(keys, f"should be a table, not {shown_value(table)}")
        return Checked(keys, {"name": str(keys[-1]), "params": {}}, None)
    rest = {key: value for key, value in table.items() if key in own}
    params = {key: value for key, value in table.items() if key not in own and key != "name"}
    entry = _entry(table, registry, keys, problems)
    if entry is None:
        return Checked(keys, {"name": str(table.get("name", keys[-1])), "params": {}, **rest}, None)
    known = [*entry.parameters.model_fields, *sorted(own)]
    params = _check_params(
        entry, Checking(params, keys, known, f"{registry.singular} '{entry.name}'", "parameter"), problems
    )
    return Checked(keys, {"name": entry.name, "params": params, **rest}, entry)


def _entry(table: Mapping[str, Any], registry: Registry[Any], keys: Keys, problems: Problems) -> Entry[Any] | None:
    keyed = isinstance(keys[-1], str) and len(keys) > 1
    if "name" not in table and not keyed:
        problems.add(keys, f"needs a `name`: which {registry.singular} it is", at_key=True)
        return None
    name = table.get("name", keys[-1])
    if not isinstance(name, str):
        problems.add((*keys, "name"), f"should be text in quotes, not {shown_value(name)}")
        return None
    try:
        return registry[name]
    except UnknownNameError as error:
        hint = "" if "name" in table else f"; a table called otherwise needs a `name`, one of the {registry.kind}"
        action = f" Known: {', '.join(registry.names())}." if "Did you mean" not in error.message else ""
        where = (*keys, "name") if "name" in table else keys
        problems.add(where, f"{error.message}{action}{hint}", at_key="name" not in table)
        return None


def _check_params(entry: Entry[Any], checking: Checking, problems: Problems) -> dict[str, Any]:
    """Return the parameters with every default; wrong ones are reported and take their default."""
    try:
        params = entry.parameters.model_validate(dict(checking.table)).model_dump()
    except ValidationError as error:
        wrong = report(error, checking, problems)
    else:
        for name, value in checking.table.items():
            if isinstance(value, bool) and not isinstance(params[name], bool):
                # A choice among 0 and 1 takes false and true: Python calls them equal.
                problems.add((*checking.keys, name), f"should be {int(value)}, not {shown_value(value)}")
        return params
    good = {key: value for key, value in checking.table.items() if key not in {path[0] for path in wrong if path}}
    fields = entry.parameters.model_fields.items()
    defaults = {name: field.get_default(call_default_factory=True) for name, field in fields if not field.is_required()}
    return {**defaults, **good}


S = TypeVar("S", bound=BaseModel)


def check_section(model: type[S], table: Any, keys: Keys, problems: Problems) -> S | None:
    """Return the section; what is wrong is reported and takes its default, and None stands for what has none."""
    if not isinstance(table, Mapping):
        problems.add(keys, f"should be a table, not {shown_value(table)}")
        table = {}
    try:
        return model.model_validate(dict(table))
    except ValidationError as error:
        known = [field.alias or name for name, field in model.model_fields.items() if name != "params"]
        what = f"[{'.'.join(str(key) for key in keys)}]" if keys else "the recipe"
        wrong = report(error, Checking(table, keys, known, what), problems)
    # Of an array with a wrong item the whole key goes.
    good = {key: value for key, value in table.items() if key not in {str(path[0]) for path in wrong if path}}
    try:
        return model.model_validate(good)
    except ValidationError:
        return None
