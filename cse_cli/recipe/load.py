"""A recipe's name or path → a complete recipe: files read and merged along `extends`, `--set` and `--unset` applied.

Every value keeps the place it came from, so that a message can name it.
"""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cse_cli.core.formatting import setting_text
from cse_cli.recipe.errors import (
    MOST_PROBLEMS,
    Keys,
    Origins,
    Problem,
    RecipeError,
    Source,
    dotted,
    read_source,
    too_deep,
)
from cse_cli.recipe.files import all_recipes, all_studies, find, find_parent, name_of, real_path
from cse_cli.recipe.schema import PROSE, Recipe
from cse_cli.recipe.validate import validate
from registry.errors import suggestion
from registry.paths import is_file

COMPONENT_TABLES = ("encoders", "losses", "evaluators")
"""Sections whose every table is a component, its `name` defaulting to its key."""
OWN_KEYS = frozenset({"name", "weight", "views", "queue", "heads"})
"""Keys of a component's table that belong to the recipe: a change of component keeps them."""
STUDY = "study"
"""The one table of a study's file."""
_MERGE_KEYS = ("extends", "remove")
MOST_PARENTS = 32
"""Files that a recipe may come from."""


@dataclass(frozen=True)
class WrittenRecipe:
    """A recipe's files, read and merged but not validated: what several settings of it have in common.

    Args:
        name: Bare name where it has one, such as "mini/ifcl_en"; else the file's stem.
        tables: Everything inherited and overridden, defaults not yet written in.
        origins: Where each value came from.
    """

    name: str
    path: Path
    tables: dict[str, Any]
    origins: Origins

    @property
    def text(self) -> str:
        """The file as written."""
        return self.origins.sources[0].text


@dataclass(frozen=True)
class LoadedRecipe(WrittenRecipe):
    """A recipe and where it came from.

    Args:
        recipe: Complete and validated.
        changes: What overrides have changed of the files, `key=value` or `no key`; neither the seed nor prose.
    """

    recipe: Recipe
    changes: tuple[str, ...] = ()


def load(name_or_path: str, overrides: Sequence[str] = (), unset: Sequence[str] = ()) -> LoadedRecipe:
    """Find, read, merge and validate a recipe. Nothing is built, fetched or written.

    Args:
        name_or_path: A path that ends in `.toml`, or a bare name such as "ifcl_en".
        overrides: `dotted.key=value` texts, as `--set` takes them.
        unset: Dotted keys to take out, as `--unset` takes them.

    Raises:
        UnknownNameError: No recipe of that name.
        RecipeError: It cannot be read or is not valid; all reasons, each with its place.
    """
    changes = parse(overrides, unset)
    return _validated(read(name_or_path), changes)


def read(name_or_path: str) -> WrittenRecipe:
    """Find, read and merge a recipe.

    Raises:
        UnknownNameError: No recipe of that name.
        RecipeError: A file cannot be read.
    """
    path = find(name_or_path)
    sources = chain(path)
    return WrittenRecipe(name_of(path), path, merged(sources), Origins(sources))


def changed(written: WrittenRecipe, overrides: Sequence[str] = (), unset: Sequence[str] = ()) -> LoadedRecipe:
    """Validate a recipe that has been read, as `load` does.

    Raises:
        RecipeError: It is not valid with these settings.
    """
    return _validated(written, parse(overrides, unset))


def with_value(loaded: LoadedRecipe, path: str, value: Any) -> LoadedRecipe:
    """Return the recipe with the value at a dotted path changed, validated again as a whole.

    Raises:
        RecipeError: The value does not fit, or the path leads nowhere.
    """
    problems: list[Problem] = []
    change = Override(_keys(path, "--set", problems), value, f"--set {path}")
    if problems:
        raise RecipeError(problems)
    return _validated(loaded, [change])


def _validated(written: WrittenRecipe, changes: Sequence[Override]) -> LoadedRecipe:
    tables, where = apply(written.tables, changes)
    labels = [(keys, change.label) for keys, change in zip(where, changes, strict=True) if not change.unset]
    origins = Origins(written.origins.sources, (*written.origins.overrides, *labels))
    before = written.changes if isinstance(written, LoadedRecipe) else ()
    made = (*before, *_described(written.tables, zip(where, changes, strict=True)))
    return LoadedRecipe(written.name, written.path, tables, origins, validate(tables, origins), made)


def _described(tables: dict[str, Any], changes: Iterable[tuple[Keys, Override]]) -> Iterator[str]:
    """Yield what overrides change of tables, as a list of runs shows it."""
    for keys, change in changes:
        if keys == ("train", "seed") or keys[0] in PROSE:
            continue
        if change.unset:
            yield f"no {dotted(keys)}"
        elif _value(tables, keys) != change.value:
            yield f"{dotted(keys)}={setting_text(change.value)}"


def _value(tables: Any, keys: Keys) -> Any:
    """Return the value at a path; None where it leads nowhere."""
    for key in keys:
        try:
            tables = tables[key]
        except (LookupError, TypeError):
            return None
    return tables


def chain(path: Path, *, study: bool = False) -> tuple[Source, ...]:
    """Return a recipe's file and those it extends, nearest first; with `study`, a study's, which extends studies.

    Raises:
        RecipeError: One of them cannot be read, is unknown, is a study where a recipe belongs, or extends itself.
    """
    sources = [_read(path, study)]
    keys: Keys = (STUDY, "extends") if study else ("extends",)
    while "extends" in _top(sources[-1], study):
        last = sources[-1]
        parent = _parent(last, keys, study)
        if not is_file(parent):
            raise _refused(last, keys, f"no such file: {parent}")
        if any(real_path(parent) == real_path(source.path) for source in sources):
            circle = " → ".join(source.path.name for source in sources)
            raise _refused(last, keys, f"extends in a circle: {circle} → {parent.name}")
        if len(sources) == MOST_PARENTS:
            raise _refused(last, keys, f"extends a file that extends a file, {MOST_PARENTS} times: that is too many")
        sources.append(_read(parent, study))
    return tuple(sources)


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


def _parent(source: Source, keys: Keys, study: bool) -> Path:
    name = _top(source, study)["extends"]
    what = STUDY if study else "recipe"
    if not isinstance(name, str):
        raise _refused(source, keys, f"should be the name or the path of one {what}, in quotes")
    parent = find_parent(name, source.path)
    if parent is not None:
        return parent
    hint = suggestion(name, all_studies() if study else all_recipes())
    if is_file(source.path.parent / f"{name}.toml"):
        hint = f" Did you mean '{name}.toml', the file beside this one?"
    raise _refused(source, keys, f"unknown {what} '{name}'.{hint}")


def _problem(source: Source, keys: Keys, message: str) -> Problem:
    return Problem(source.where(keys) or f"{source.label}:1:1", dotted(keys), message)


def _refused(source: Source, keys: Keys, message: str) -> RecipeError:
    return RecipeError([_problem(source, keys, message)])


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
            if len(problems) < MOST_PROBLEMS:
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
    keys = (isinstance(name, str) and dotted_keys(name)) or ()
    for key in keys[:-1]:
        table = table.get(key) if isinstance(table, dict) else None
    if isinstance(table, dict) and keys and keys[-1] in table:
        del table[keys[-1]]
        return
    hint = suggestion(str(name), _paths(tables))
    message = f"nothing called '{name}' is inherited, so it cannot be removed.{hint}"
    problems.append(_problem(source, ("remove", number), message))


def _paths(tables: dict[str, Any], prefix: str = "") -> list[str]:
    found = []
    for key, value in tables.items():
        found.append(prefix + key)
        if isinstance(value, dict):
            found += _paths(value, f"{prefix}{key}.")
    return found


@dataclass(frozen=True)
class Override:
    """One value from outside the files.

    Args:
        keys: Path as written; positions in arrays are still text.
        value: What to put there; ignored by `unset`.
        label: How messages name it.
    """

    keys: tuple[str, ...]
    value: Any
    label: str
    unset: bool = False


def parse(assignments: Sequence[str], unset: Sequence[str] = ()) -> list[Override]:
    """Return the overrides that `--set` and `--unset` texts mean; a value that is not TOML counts as text.

    Raises:
        RecipeError: An assignment has no `=` or its key cannot be read; all such are named.
    """
    problems: list[Problem] = []
    overrides = [Override(_keys(key, "--unset", problems), None, f"--unset {key}", unset=True) for key in unset]
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        label = f"--set {key.strip()}"
        if not equals:
            problems.append(Problem(label, "", "needs a value: --set dotted.key=value"))
            continue
        overrides.append(Override(_keys(key, "--set", problems), toml_value(value.strip()), label))
    if problems:
        raise RecipeError(problems)
    # A new component drops the parameters of the old one, so it comes before the parameters meant for it.
    return sorted(overrides, key=lambda o: (not o.unset, bool(o.keys) and o.keys[-1] != "name"))


def _keys(text: str, option: str, problems: list[Problem]) -> tuple[str, ...]:
    keys = dotted_keys(text)
    if keys is None:
        problems.append(Problem(f"{option} {text.strip()}", "", "the key is not a dotted TOML key such as train.seed"))
    return keys or ()


def dotted_keys(text: str) -> tuple[str, ...] | None:
    """Return the parts of a dotted TOML key; None where the text is none."""
    try:
        table: Any = {} if too_deep(text) else tomllib.loads(f"{text} = 0")
    except ValueError:
        return None
    keys: list[str] = []
    if not table:
        return None
    while isinstance(table, dict) and len(table) == 1:
        key, table = next(iter(table.items()))
        keys.append(key)
    return tuple(keys)


def toml_value(text: str) -> Any:
    """Return the value that a text is in TOML; one that is none counts as text."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except ValueError:
        return text
    return parsed["value"] if len(parsed) == 1 else text


def apply(tables: dict[str, Any], overrides: Sequence[Override]) -> tuple[dict[str, Any], tuple[Keys, ...]]:
    """Return new tables with every override in them, and the path that each one means there.

    Raises:
        RecipeError: A path leads through something that is not there or not a table; all such are named.
    """
    changed = copy.deepcopy(tables)
    problems: list[Problem] = []
    paths: list[Keys] = []
    for override in overrides:
        try:
            paths.append(_apply_one(changed, override))
        except LookupError as error:
            problems.append(Problem(override.label, "", str(error.args[0])))
    if problems:
        raise RecipeError(problems)
    return changed, tuple(paths)


def _apply_one(tables: dict[str, Any], override: Override) -> Keys:
    at: Any = tables
    path: Keys = ()
    for number, key in enumerate(override.keys):
        path = (*path, _step(at, key, path))
        if number < len(override.keys) - 1:
            at = _entered(at, path, create=not override.unset)
    last = path[-1]
    if override.unset:
        if isinstance(at, dict) and last not in at:
            raise LookupError("nothing of that name is set")
        del at[last]
        return path
    if last == "name":
        rename_component(tables, path[:-1], override.value)
    at[last] = copy.deepcopy(override.value)
    return path


def _entered(at: Any, path: Keys, *, create: bool) -> Any:
    key = path[-1]
    if isinstance(at, dict) and key not in at:
        if not create:
            raise LookupError(f"'{dotted(path)}' is not set")
        at[key] = {}
    inner = at[key]
    if not isinstance(inner, dict | list):
        raise LookupError(f"'{dotted(path)}' is a value, not a table")
    return inner


def _step(at: Any, key: str, path: Keys) -> str | int:
    """Return the key, or for an array the position it means: a number, or the `name` of one of its tables."""
    if isinstance(at, dict):
        return key
    if key.isascii() and key.isdigit() and int(key) < len(at):
        return int(key)
    named = [i for i, item in enumerate(at) if isinstance(item, dict) and item.get("name") == key]
    if len(named) == 1:
        return named[0]
    size = f"{len(at)} element{'' if len(at) == 1 else 's'}"
    raise LookupError(f"'{dotted(path)}' has {size}, counted from 0: no '{key}' among them")
