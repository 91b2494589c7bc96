"""Load a recipe by name or path: read its files, merge them along `extends`, apply overrides and validate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from cse_cli.recipe.files import all_recipes, all_studies, find, find_parent, name_of, real_path
from cse_cli.recipe.keys import Keys, dotted, is_ending, parse_dotted
from cse_cli.recipe.overrides import EXCLUSIVE, Override, apply_overrides, merge_into, parse_overrides, setting_text
from cse_cli.recipe.problems import MOST_NAMES, Problem, RecipeError, nearest
from cse_cli.recipe.schema import PROSE, Recipe, tune_of
from cse_cli.recipe.sources import Origins, Source, read_source
from cse_cli.recipe.validate import validate
from registry.errors import suggestion
from registry.paths import is_file

STUDY = "study"
"""Name of the only table in the file of a study."""
_MERGE_KEYS = ("extends", "remove")
FAR = 1000.0
"""Factor between the range that `cse tune` searches and a value that cannot be meant."""


@dataclass(frozen=True)
class WrittenRecipe:
    """A recipe's files, merged with overrides, without defaults, and the place of each value. It is not validated."""

    name: str
    path: Path
    tables: dict[str, Any]
    origins: Origins

    @property
    def text(self) -> str:
        """Content of the file."""
        return self.origins.sources[0].text


@dataclass(frozen=True)
class LoadedRecipe(WrittenRecipe):
    """A validated recipe with its files.

    `changes` are overrides that differ from the files, as `key=value` or `no key`, without the seed and prose. `notes`
    name values of the files that an override of another key replaces, and values that cannot be meant.
    """

    recipe: Recipe
    changes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def load(name_or_path: str, overrides: Sequence[str | Override] = (), unset: Sequence[str] = ()) -> LoadedRecipe:
    """Find, read, merge and validate a recipe, with overrides as in `--set`. Nothing is built, downloaded or written.

    A `RecipeError` has every problem of the recipe, each with its place.
    """
    return changed(read(name_or_path), overrides, unset)


def read(name_or_path: str) -> WrittenRecipe:
    """Find, read and merge a recipe."""
    path = find(name_or_path)
    sources = read_chain(path)
    return WrittenRecipe(name_of(path), path, merge(sources), Origins(sources))


def changed(
    written: WrittenRecipe, overrides: Sequence[str | Override] = (), unset: Sequence[str] = ()
) -> LoadedRecipe:
    """Validate a recipe with overrides."""
    changes = parse_overrides(overrides, unset)
    tables, paths = apply_overrides(written.tables, changes)
    labels = [(keys, change.label) for keys, change in zip(paths, changes, strict=True) if not change.unset]
    origins = Origins(written.origins.sources, (*written.origins.overrides, *labels))
    before = written.changes if isinstance(written, LoadedRecipe) else ()
    made = (*before, *_changes(written.tables, paths, changes))
    try:
        recipe = validate(tables, origins)
    except RecipeError as error:
        raise RecipeError([_with_full_paths(problem, changes, written) for problem in error.problems]) from None
    notes = (*_replaced(written, changes), *_far_values(recipe))
    return LoadedRecipe(written.name, written.path, tables, origins, recipe, made, notes)


def _with_full_paths(problem: Problem, overrides: Sequence[Override], written: WrittenRecipe) -> Problem:
    """Return the problem of an override with the paths of the recipe that end with its key, if there are some."""
    override = next((one for one in overrides if one.label == problem.where and not one.unset), None)
    if override is None or problem.code != "recipe.unknown_key":
        return problem
    try:
        known = validate(written.tables, written.origins).values()
    except RecipeError:  # the recipe has its own problems
        return problem
    last = {path.rpartition(".")[2] for path in known}
    similar = () if "Did you mean" in problem.message else get_close_matches(override.keys[-1], last, n=1, cutoff=0.75)
    names = (override.path, override.keys[-1], *similar)
    found = next(filter(None, ([path for path in known if is_ending(name, path)] for name in names)), [])
    if override.path in known or not found:
        return problem
    more = f" and {len(found) - MOST_NAMES} more" if len(found) > MOST_NAMES else ""
    message = f"the recipe has no '{override.path}'. Did you mean {', '.join(found[:MOST_NAMES])}{more}?"
    return replace(problem, message=message)


def _replaced(written: WrittenRecipe, overrides: Sequence[Override]) -> Iterator[str]:
    """Yield a note for each override of `steps` that replaces `epochs` of the files, or vice versa."""
    train, given = written.tables.get("train", {}), {override.keys for override in overrides}
    for override in overrides:
        other = EXCLUSIVE.get(override.keys[-1]) if override.keys[0] == "train" else None
        if other is not None and other in train and not override.unset and ("train", other) not in given:
            place = written.origins.where(("train", other), at_key=True)
            yield f"{override.path}={override.value} replaces train.{other}={train[other]} ({place})"


def _far_values(recipe: Recipe) -> Iterator[str]:
    """Yield a note for each value that is 1,000 times as far as the range on a log scale that `cse tune` searches."""
    for placed in recipe.parts():
        for name, value in placed.part.params:
            tune = tune_of(placed.entry.parameters.model_fields[name])
            if tune is None or not tune.log or not isinstance(value, int | float) or value == 0:
                continue
            if not tune.low / FAR <= value <= tune.high * FAR:
                usual = f"usual values are {tune.low:g} to {tune.high:g}"
                yield f"{placed.place}.{name} is {value:g}: {usual}"


def _changes(tables: dict[str, Any], paths: Sequence[Keys], overrides: Sequence[Override]) -> Iterator[str]:
    for keys, override in zip(paths, overrides, strict=True):
        if keys == ("train", "seed") or keys[0] in PROSE:
            continue
        if override.unset:
            yield f"no {dotted(keys)}"
        elif _value(tables, keys) != override.value:
            yield f"{dotted(keys)}={setting_text(override.value)}"


def _value(tables: Any, keys: Keys) -> Any:
    for key in keys:
        try:
            tables = tables[key]
        except (LookupError, TypeError):
            return None
    return tables


def read_chain(path: Path, *, study: bool = False) -> tuple[Source, ...]:
    """Return the file of a recipe, or of a study, followed by the files that it extends."""
    keys: Keys = (STUDY, "extends") if study else ("extends",)
    sources: list[Source] = []
    following: Path | None = path
    while following is not None:
        if real_path(following) in [real_path(source.path) for source in sources]:
            circle = " → ".join([*(source.path.name for source in sources), following.name])
            raise sources[-1].refuse("recipe.circular_extends", keys, f"circular 'extends': {circle}")
        source = read_source(following)
        if study and STUDY not in source.tables:
            raise source.refuse("recipe.not_a_study", (), f"a recipe, not a study: it has no table [{STUDY}]")
        if not study and STUDY in source.tables:
            message = f"a study, not a recipe. Run it with `cse run {source.label}`"
            raise source.refuse("recipe.not_a_recipe", (STUDY,), message)
        sources.append(source)
        following = _parent(source, keys)
    return tuple(sources)


def _parent(source: Source, keys: Keys) -> Path | None:
    """Return the file that a file extends, or None if it extends no file."""
    study, table = len(keys) > 1, _value(source.tables, keys[:-1])
    if not isinstance(table, dict) or "extends" not in table:
        return None
    name, what = table["extends"], STUDY if study else "recipe"
    if not isinstance(name, str):
        raise source.refuse("recipe.invalid_value", keys, f"should be the name or path of one {what}, in quotes")
    parent = find_parent(name, source.path)
    if parent is None:
        beside = is_file(source.path.parent / f"{name}.toml")
        known = [f"{name}.toml"] if beside else all_studies() if study else all_recipes()
        raise source.refuse(f"recipe.unknown_{what}", keys, f"unknown {what} '{name}'.{nearest(name, known)}")
    if not is_file(parent):
        raise source.refuse("recipe.missing_file", keys, f"no such file: '{parent}'")
    return parent


def merge(sources: Sequence[Source]) -> dict[str, Any]:
    """Return the merged tables of a recipe's files. A file takes precedence over the files that it extends.

    `remove` is applied first. Then tables are merged key by key, and other values are replaced.
    """
    tables: dict[str, Any] = {}
    problems: list[Problem] = []
    for source in reversed(sources):
        names = source.tables.get("remove", [])
        if not isinstance(names, list):
            message = 'should be an array, for example ["queue", "losses.info_nce"]'
            raise source.refuse("recipe.invalid_value", ("remove",), message)
        for number, name in enumerate(names):
            if not _remove(tables, name):
                message = f"cannot remove '{name}', because it is not inherited.{suggestion(str(name), _paths(tables))}"
                problems += source.refuse("recipe.unknown_path", ("remove", number), message).problems
        own = {key: value for key, value in source.tables.items() if key not in _MERGE_KEYS}
        merge_into(tables, own, ())
    if problems:
        raise RecipeError(problems)
    return tables


def _remove(tables: dict[str, Any], name: Any) -> bool:
    """Remove what a dotted path refers to, and return whether it existed."""
    keys = (isinstance(name, str) and parse_dotted(name)) or ("",)
    table = _value(tables, keys[:-1])
    if not isinstance(table, dict) or keys[-1] not in table:
        return False
    del table[keys[-1]]
    return True


def _paths(tables: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in tables.items():
        yield prefix + key
        if isinstance(value, dict):
            yield from _paths(value, f"{prefix}{key}.")
