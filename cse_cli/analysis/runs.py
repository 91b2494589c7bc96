"""Finished runs: one per seed, how their recipes differ, and what the command line names by them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from pydantic import BaseModel, ConfigDict

from cse_cli.core.identity import SHORT
from cse_cli.core.results import Result
from cse_cli.recipe.catalog import RecipeFacts, recipe_facts
from cse_cli.recipe.files import all_recipes, real_path, recipe_name
from cse_cli.recipe.schema import data_identity
from cse_cli.runs.index import RecordedRun, all_runs, find_run
from cse_cli.runs.record import read_recipe
from registry.errors import CseError, UnknownNameError, suggestion
from registry.paths import is_file

SETTINGS_SHOWN = 3
"""Changed settings that a label shows."""


def last_finished(runs: Iterable[Result]) -> Result:
    """Return the run that finished last."""
    return max(runs, key=lambda run: run.finished)


def by_seed(runs: Iterable[Result]) -> dict[int, Result]:
    """Return seed → the run with it that finished last, in the order of the seeds."""
    latest = {run.seed: run for run in sorted(runs, key=lambda run: run.finished)}
    return dict(sorted(latest.items()))


def newest_experiment(runs: Sequence[Result]) -> tuple[list[Result], list[str]]:
    """Return the runs of the experiment that finished last, and how each other experiment differs from it."""
    last = last_finished(runs)
    others = {run.experiment: run for run in runs if run.experiment != last.experiment}
    named = ["; ".join(map(str, run.identity.differences(last.identity))) for run in others.values()]
    return [run for run in runs if run.experiment == last.experiment], named


@cache
def recipe_today(name: str) -> RecipeFacts:
    """Return what a recipe's file means today.

    Raises:
        CseError: It is not valid, or there is no recipe with this name.
    """
    facts = recipe_facts(name)
    if facts.error:
        from cse_cli.recipe.load import load  # imports torch

        load(name)  # raises every mistake with its place
    return facts


_PROSE = frozenset({"title", "description", "paper", "tune", "schema"})
"""Keys of a recipe that change no number."""
_ABSENT = object()


class Change(BaseModel):
    """A key that is not the same in all recipes.

    Args:
        key: Dotted path; a table that is missing somewhere stands as a whole.
        values: Of each recipe, in their order; None where the key is not set.
    """

    model_config = ConfigDict(frozen=True)

    key: str
    values: tuple[Any, ...]


def recipe_changes(recipes: Sequence[Mapping[str, Any]]) -> list[Change]:
    """Return the keys in which resolved recipes differ, in their order, seed and prose left out."""
    return _table_changes([_identity(recipe) for recipe in recipes], "")


def _identity(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Return what makes a recipe the experiment it is, as `Recipe.hash()` has it."""
    kept = {key: value for key, value in recipe.items() if key not in _PROSE}
    kept["train"] = {key: value for key, value in kept.get("train", {}).items() if key != "seed"}
    kept["data"] = data_identity(kept.get("data", {}))
    return kept


def _table_changes(tables: Sequence[Mapping[str, Any]], prefix: str) -> list[Change]:
    found: list[Change] = []
    for key in dict.fromkeys(key for table in tables for key in table):
        values = [_as_table(table.get(key, _ABSENT)) for table in tables]
        if all(isinstance(value, Mapping) for value in values):
            found += _table_changes(values, f"{prefix}{key}.")
        elif any(value != values[0] for value in values):
            found.append(Change(key=f"{prefix}{key}", values=tuple(None if v is _ABSENT else v for v in values)))
    return found


def _as_table(value: Any) -> Any:
    """Return a list of components as a table by their names, as `--set` calls them; anything else as it is."""
    if isinstance(value, list) and value and all(isinstance(part, Mapping) and "name" in part for part in value):
        names = [part["name"] for part in value]
        if len(set(names)) == len(names):
            return dict(zip(names, value, strict=True))
    return value


def changed_settings(result: Result) -> tuple[str, ...]:
    """Return how what ran differs from the recipe's file today, as `key=value`; nothing if that is not known."""
    ran = read_resolved(result.run_id)
    try:
        today = recipe_today(result.source if is_file(Path(result.source)) else result.recipe).resolved
    except CseError:
        return ()
    changes = [] if ran is None else recipe_changes([today, ran])
    return tuple(sorted(f"no {c.key}" if c.values[1] is None else f"{c.key}={_text(c.values[1])}" for c in changes))


def shortened(settings: Sequence[str]) -> tuple[str, ...]:
    """Return the first settings, and how many more there are."""
    more = len(settings) - SETTINGS_SHOWN
    return (*settings[:SETTINGS_SHOWN], *([f"and {more} more"] if more > 0 else []))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def read_resolved(run_id: str | None) -> dict[str, Any] | None:
    """Return the resolved recipe of a run, or None if it cannot be read."""
    try:
        return read_recipe(run_id) if run_id else None
    except CseError:
        return None


def is_of_recipe(result: Result, argument: str) -> bool:
    """Return whether a run is of the recipe that the command line names: the file of a path, else any of this name."""
    if argument.endswith(".toml") and result.source:
        return real_path(Path(argument)) == real_path(Path(result.source))
    return recipe_name(result.recipe) == recipe_name(argument)


@dataclass(frozen=True)
class Method:
    """One of the methods that are compared.

    Args:
        letter: What tables and sentences call it.
        name: Recipe, or run.
        runs: Seed → its run that finished last.
        notes: What a reader must know of the choice.
    """

    letter: str
    name: str
    runs: Mapping[int, Result] = field(repr=False)
    notes: tuple[str, ...] = ()

    @property
    def latest(self) -> Result:
        """The run that finished last."""
        return last_finished(self.runs.values())


def find_methods(names: Sequence[str], results: Sequence[Result]) -> list[Method]:
    """Return what is compared, in the order of the command line.

    Args:
        names: Beginnings of run ids, names or paths of recipes, or `recipe@seed`.
        results: All finished runs.

    Raises:
        CseError: Fewer than two, the same run twice, or nothing finished of one of them.
        UnknownNameError: One is neither a recipe nor a run.
    """
    if not 2 <= len(names) <= len(ascii_uppercase):
        given = {0: "nothing", 1: "one"}.get(len(names), str(len(names)))
        raise CseError(
            f"cse compare takes two to {len(ascii_uppercase)} runs or recipes; {given} is given",
            "name what to compare with: `cse compare mini/simcse_en mini/ifcl_en`",
        )
    methods = [_find_method(letter, name, results) for letter, name in zip(ascii_uppercase, names, strict=False)]
    called = Counter(method.name for method in methods)
    methods = [
        method if called[method.name] == 1 else replace(method, name=name)
        for method, name in zip(methods, names, strict=True)
    ]
    owner: dict[str, Method] = {}
    for method in methods:
        for run in method.runs.values():
            if run.run_id in owner:
                raise CseError(
                    f"{owner[run.run_id].name} and {method.name} share run {run.run_id[:8]}: a run cannot be compared "
                    "with itself",
                    "`cse runs ls` shows the others",
                )
        owner |= {run.run_id: method for run in method.runs.values() if run.run_id}
    return methods


def _find_method(letter: str, name: str, results: Sequence[Result]) -> Method:
    recipe, at, seed = name.rpartition("@")
    if at and seed.isdecimal():
        every = _method_of_recipe(letter, recipe, results)
        if int(seed) not in every.runs:
            raise CseError(
                f"no finished run of {every.name} with seed {seed}; seeds that finished: "
                f"{', '.join(map(str, every.runs))}",
                f"`cse run {recipe} --seed {seed}` makes it",
            )
        return Method(letter, f"{every.name}@{int(seed)}", {int(seed): every.runs[int(seed)]}, every.notes)
    if name.endswith(".toml") or name in all_recipes() or any(is_of_recipe(run, name) for run in results):
        return _method_of_recipe(letter, name, results)
    return _method_of_run(letter, name, results)


def _method_of_recipe(letter: str, argument: str, results: Sequence[Result]) -> Method:
    """Return the newest experiment with the settings of the recipe today, or the last one of what it was before."""
    name, notes = recipe_name(argument), []
    named = [result for result in results if is_of_recipe(result, argument)]
    try:
        today = recipe_today(argument).settings
    except CseError:
        if not named:
            raise
        today = None
    runs = [result for result in results if result.recipe_hash == today]
    if not runs and not named:
        raise CseError(f"no finished run of recipe '{argument}'", f"`cse run {argument} --seeds 5` makes some")
    if not runs:
        last = last_finished(named)
        why = "its recipe is not found" if today is None else "no run of the recipe's settings today has finished"
        notes.append(f"{why}: the runs of {last.finished:%Y-%m-%d} are used, hash {last.recipe_hash[:SHORT]}")
        runs = [run for run in named if run.recipe_hash == last.recipe_hash]
    runs, others = newest_experiment(runs)
    notes += [f"runs of another experiment with the same settings are left out: {other}" for other in others]
    return Method(letter, name, by_seed(runs), tuple(notes))


def _method_of_run(letter: str, argument: str, results: Sequence[Result]) -> Method:
    known = all_runs()
    if not names_run(argument, known):
        recipes = {recipe_name(result.recipe) for result in results}
        near = suggestion(argument, [*all_recipes(), *recipes, *(run.about.short for run in known)])
        raise UnknownNameError(
            f"'{argument}' is neither a recipe nor a run.{near}",
            "`cse runs ls` and `cse list recipes` list them; the path of a recipe ends in .toml",
        )
    run = find_run(argument, known)
    found = next((result for result in results if result.run_id == run.run_id), None)
    if found is None:
        raise CseError(f"run {run.about.short} has no scores to compare: {run.state}", "`cse runs ls` lists all runs")
    return Method(letter, f"{run.about.short} ({recipe_name(found.recipe)})", {found.seed: found})


def names_run(text: str, known: Iterable[RecordedRun]) -> bool:
    """Return whether a text is the beginning of a run's ID, or the name of a run."""
    return any(run.run_id.startswith(text.lower()) or run.name == text for run in known)
