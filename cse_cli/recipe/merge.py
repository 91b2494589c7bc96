"""A recipe and those it extends, as one set of tables."""

from __future__ import annotations

import copy
import tomllib
from pathlib import Path
from typing import Any

from cse_cli.recipe.find import all_recipes, all_studies, find_parent
from cse_cli.recipe.positions import Keys
from cse_cli.recipe.problems import Problem, RecipeError
from cse_cli.recipe.sources import Source, read_source
from registry.errors import suggestion

COMPONENT_TABLES = ("encoders", "losses", "evaluators")
"""Sections whose every table is a component, its `name` defaulting to its key."""
OWN_KEYS = frozenset({"name", "weight", "views", "queue", "heads"})
"""Keys of a component's table that belong to the recipe: a change of component keeps them."""
_MERGE_KEYS = ("extends", "remove")


STUDY = "study"
"""The one table of a study's file."""


def chain(path: Path, *, study: bool = False) -> tuple[Source, ...]:
    """Return a recipe's file and those it extends, nearest first; with `study`, a study's, which extends studies.

    Raises:
        RecipeError: One of them cannot be read, is unknown, is of the other sort, or extends itself by a detour.
    """
    sources = [_read(path, study)]
    while "extends" in _top(sources[-1], study):
        last, keys = sources[-1], _extends(study)
        parent = _parent(last, study)
        if any(parent.resolve() == source.path.resolve() for source in sources):
            circle = " → ".join(source.path.name for source in sources)
            raise _refused(last, keys, f"extends in a circle: {circle} → {parent.name}")
        if not parent.is_file():
            raise _refused(last, keys, f"no such file: {parent}")
        sources.append(_read(parent, study))
    return tuple(sources)


def _extends(study: bool) -> Keys:
    return (STUDY, "extends") if study else ("extends",)


def _top(source: Source, study: bool) -> dict[str, Any]:
    """Return the table that `extends` stands in."""
    table = source.tables.get(STUDY) if study else source.tables
    return table if isinstance(table, dict) else {}


def _read(path: Path, study: bool) -> Source:
    source = read_source(path)
    if study and STUDY not in source.tables:
        raise _refused(source, (), f"this is a recipe, not a study: it has no table [{STUDY}]")
    if not study and STUDY in source.tables:
        raise _refused(source, (STUDY,), f"this is a study, not a recipe; `cse run {source.label}` runs it")
    return source


def _parent(source: Source, study: bool) -> Path:
    name, keys = _top(source, study)["extends"], _extends(study)
    what = STUDY if study else "recipe"
    if not isinstance(name, str):
        raise _refused(source, keys, f"should be the name or the path of one {what}, in quotes")
    parent = find_parent(name, source.path)
    if parent is not None:
        return parent
    hint = suggestion(name, all_studies() if study else all_recipes())
    if (source.path.parent / f"{name}.toml").is_file():
        hint = f" Did you mean '{name}.toml', the file beside this one?"
    raise _refused(source, keys, f"unknown {what} '{name}'.{hint}")


def merged(sources: tuple[Source, ...]) -> dict[str, Any]:
    """Return the tables of a chain of recipes, the nearest winning.

    Tables are joined key by key, anything else is replaced; what `remove` names goes first. A component table that
    gets another `name` starts without the parameters of the component it replaces.

    Raises:
        RecipeError: Something that `remove` names is not there.
    """
    tables: dict[str, Any] = {}
    problems: list[Problem] = []
    for source in reversed(sources):
        for number, name in enumerate(_removals(source, problems)):
            _remove(tables, name, number, source, problems)
        own = {key: value for key, value in source.tables.items() if key not in _MERGE_KEYS}
        tables = _joined(tables, own, ())
    if problems:
        raise RecipeError(problems)
    return tables


def _joined(base: dict[str, Any], top: dict[str, Any], keys: Keys) -> dict[str, Any]:
    result = dict(base)
    for key, value in top.items():
        inherited = result.get(key)
        if isinstance(inherited, dict) and isinstance(value, dict):
            kept = _kept(inherited, (*keys, key), value["name"]) if "name" in value else inherited
            result[key] = _joined(kept, value, (*keys, key))
        else:
            result[key] = copy.deepcopy(value)
    return result


def rename_component(tables: dict[str, Any], keys: Keys, name: Any) -> None:
    """Drop from the component table at `keys`, in place, the parameters that another `name` makes meaningless."""
    table: Any = tables
    for key in keys:
        table = table[key]
    kept = _kept(table, keys, name)
    for key in [key for key in table if key not in kept]:
        del table[key]


def _kept(table: dict[str, Any], keys: Keys, name: Any) -> dict[str, Any]:
    if not _is_component(keys) or name == table.get("name", keys[-1]):
        return table
    return {key: value for key, value in table.items() if key in OWN_KEYS}


def _is_component(keys: Keys) -> bool:
    in_section = len(keys) == 2 and keys[0] in COMPONENT_TABLES
    in_view = len(keys) == 4 and keys[0] == "views" and keys[2] == "augment"
    in_encoder = len(keys) == 4 and keys[0] == "encoders" and keys[2] == "heads"
    return in_section or in_view or in_encoder or keys == ("queue",)


def _removals(source: Source, problems: list[Problem]) -> list[Any]:
    names = source.tables.get("remove", [])
    if not isinstance(names, list):
        problems.append(_problem(source, ("remove",), 'should be an array such as ["queue", "losses.info_nce"]'))
        return []
    return names


def _remove(tables: dict[str, Any], name: Any, number: int, source: Source, problems: list[Problem]) -> None:
    table: Any = tables
    keys = _split(name)
    for key in keys[:-1]:
        table = table.get(key) if isinstance(table, dict) else None
    if isinstance(table, dict) and keys and keys[-1] in table:
        del table[keys[-1]]
        return
    hint = suggestion(str(name), _paths(tables))
    message = f"nothing called '{name}' is inherited, so it cannot be removed.{hint}"
    problems.append(_problem(source, ("remove", number), message))


def _split(name: Any) -> list[str]:
    try:
        table: Any = tomllib.loads(f"{name} = 0") if isinstance(name, str) else {}
    except ValueError:
        return []
    keys = []
    while isinstance(table, dict) and table:
        key, table = next(iter(table.items()))
        keys.append(key)
    return keys


def _paths(tables: dict[str, Any], prefix: str = "") -> list[str]:
    found = []
    for key, value in tables.items():
        found.append(prefix + key)
        if isinstance(value, dict):
            found += _paths(value, f"{prefix}{key}.")
    return found


def _problem(source: Source, keys: Keys, message: str) -> Problem:
    where = source.where(keys) or f"{source.label}:1:1"
    return Problem(where, ".".join(str(key) for key in keys), message)


def _refused(source: Source, keys: Keys, message: str) -> RecipeError:
    return RecipeError([_problem(source, keys, message)])
