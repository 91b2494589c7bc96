"""Finished runs by seed, their differences in recipes and elsewhere, and the method that a recipe or a run names."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

from cse_cli.core.identity import SHORT, Difference
from cse_cli.core.plans import plan_of
from cse_cli.core.results import Result
from cse_cli.recipe.files import all_recipes, all_studies, bare_file, real_path, recipe_name
from cse_cli.recipe.load import load
from cse_cli.recipe.named import data_identity
from cse_cli.runs.index import RecordedRun, all_runs, find_run
from cse_cli.runs.record import read_recipe
from registry.errors import CseError, UnknownNameError, suggestion
from registry.paths import is_file

SETTINGS_SHOWN = 3
"""Number of changed settings that a label shows."""
ENVIRONMENT: Mapping[str, Callable[[Result], str]] = {
    "cse": lambda run: run.versions.cse,
    "python": lambda run: run.versions.python,
    "torch": lambda run: run.versions.torch,
    "transformers": lambda run: run.versions.transformers,
    "engine": lambda run: run.versions.engine[:SHORT],
    "device": lambda run: run.device,
    "precision": lambda run: run.precision,
}
"""Name → value of what can differ between runs of one experiment. The engine is the code of trainer and evaluators."""


def last_finished(runs: Iterable[Result]) -> Result:
    """Return the run that finished last."""
    return max(runs, key=lambda run: run.finished)


def by_seed(runs: Iterable[Result]) -> dict[int, Result]:
    """Return seed → its run that finished last, in the order of the seeds."""
    latest = {run.seed: run for run in sorted(runs, key=lambda run: run.finished)}
    return dict(sorted(latest.items()))


class RecipeFacts(NamedTuple):
    """`Recipe.hash()` of a recipe, and `Recipe.resolved()` with lists for tuples."""

    settings: str
    resolved: dict[str, Any]


@cache
def recipe_today(name: str) -> RecipeFacts:
    """Return the facts of a recipe's current file. An error if it does not exist or is not valid."""
    recipe = load(name).recipe
    return RecipeFacts(recipe.hash(), json.loads(json.dumps(recipe.resolved())))


_PROSE = frozenset({"title", "description", "paper", "tune", "schema"})
"""Keys of a recipe that change no number."""
_ABSENT = object()


class Change(BaseModel, frozen=True):
    """A key that differs between recipes.

    Args:
        key: Dotted path of the key, or of the whole table if a recipe lacks it.
        values: Value in each recipe. None if the recipe lacks it.
    """

    key: str
    values: tuple[Any, ...]


def recipe_changes(recipes: Sequence[Mapping[str, Any]]) -> list[Change]:
    """Return the keys in which resolved recipes differ, without seed and prose."""
    kept = [{key: value for key, value in recipe.items() if key not in _PROSE} for recipe in recipes]
    for recipe in kept:
        recipe["train"] = {key: value for key, value in recipe.get("train", {}).items() if key != "seed"}
        recipe["data"] = data_identity(recipe.get("data", {}))
    return _table_changes(kept, "")


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
    """Return a list of components as a table with their names as keys, as in `--set`. Other values stay unchanged."""
    if isinstance(value, list) and value and all(isinstance(part, Mapping) and "name" in part for part in value):
        names = [part["name"] for part in value]
        if len(set(names)) == len(names):
            return dict(zip(names, value, strict=True))
    return value


def changed_settings(result: Result) -> tuple[str, ...]:
    """Return the differences of a run from its recipe's current file, as `key=value`. Empty if they are not known."""
    ran = read_resolved(result.run_id)
    try:
        today = recipe_today(result.source if is_file(Path(result.source)) else result.recipe).resolved
    except CseError:
        return ()
    found = []
    for change in [] if ran is None else recipe_changes([today, ran]):
        value = change.values[1]
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        found.append(f"no {change.key}" if value is None else f"{change.key}={text}")
    return tuple(sorted(found))


def shortened(settings: Sequence[str]) -> tuple[str, ...]:
    """Return the first settings and the number of the others."""
    more = len(settings) - SETTINGS_SHOWN
    return (*settings[:SETTINGS_SHOWN], *([f"and {more} more"] if more > 0 else []))


def read_resolved(run_id: str | None) -> dict[str, Any] | None:
    """Return the resolved recipe of a run, or None if it cannot be read."""
    try:
        return read_recipe(run_id) if run_id else None
    except CseError:
        return None


def is_of_recipe(result: Result, argument: str) -> bool:
    """Return whether a run has the recipe of an argument: the file of a path, or any recipe with this name."""
    if argument.endswith(".toml") and result.source:
        return real_path(Path(argument)) == real_path(Path(result.source))
    return recipe_name(result.recipe) == recipe_name(argument)


@dataclass(frozen=True)
class Method:
    """One of the compared methods: a recipe, a run or a row of a study.

    Args:
        runs: Seed → last finished run.
        notes: Remarks on the runs.
        study: Name or path of the study whose row it is.
    """

    letter: str
    name: str
    runs: Mapping[int, Result] = field(repr=False)
    notes: tuple[str, ...] = ()
    study: str = ""

    @property
    def latest(self) -> Result:
        """Run that finished last."""
        return last_finished(self.runs.values())

    def command(self, seeds: str) -> str:
        """Return the command for missing runs. `seeds` is its option for the seeds, which a study does not need."""
        return f"cse run {self.study or f'{self.latest.recipe} {seeds}'}"


def names_recipe(name: str, results: Iterable[Result]) -> bool:
    """Return whether `name` is the path or name of a recipe, or `recipe@seed`."""
    _, at, seed = name.rpartition("@")
    if at and seed.isdecimal():
        return True
    if name.endswith(".toml") or bare_file(name, study=False):
        return True
    return any(is_of_recipe(run, name) for run in results)


def find_method(letter: str, name: str, results: Sequence[Result]) -> Method:
    """Return the runs of a recipe, of one seed of it (`recipe@seed`), or one run by its ID or name."""
    recipe, at, seed = name.rpartition("@")
    if at and seed.isdecimal():
        every = _method_of_recipe(letter, recipe, results)
        if int(seed) not in every.runs:
            raise CseError(
                f"{every.name} has no finished run with seed {seed}, only with {', '.join(map(str, every.runs))}",
                f"run `cse run {recipe} --seed {seed}`",
                code="compare.no_finished_run",
            )
        return Method(letter, f"{every.name}@{int(seed)}", {int(seed): every.runs[int(seed)]}, every.notes)
    if names_recipe(name, results):
        return _method_of_recipe(letter, name, results)
    return _method_of_run(letter, name, results)


def _method_of_recipe(letter: str, argument: str, results: Sequence[Result]) -> Method:
    """Return the newest experiment with the recipe's current settings, or with those of its last run."""
    notes: list[str] = []
    named = [result for result in results if is_of_recipe(result, argument)]
    try:
        today = recipe_today(argument).settings
    except CseError:
        if not named:
            raise
        today = None
    runs = [result for result in results if result.recipe_hash == today]
    if not runs and not named:
        raise CseError(
            f"recipe '{argument}' has no finished run",
            f"run `cse run {argument} --seeds 5`",
            code="compare.no_finished_run",
        )
    if not runs:
        last = last_finished(named)
        why = "the recipe does not exist" if today is None else "no run with the current settings has finished"
        notes.append(f"{why}: using the runs of {last.finished:%Y-%m-%d}, hash {last.recipe_hash[:SHORT]}")
        runs = [run for run in named if run.recipe_hash == last.recipe_hash]
    last = last_finished(runs)
    for other in {run.experiment: run for run in runs if run.experiment != last.experiment}.values():
        differing = "; ".join(map(str, other.identity.differences(last.identity)))
        notes.append(f"runs of another experiment with the same settings are omitted: {differing}")
    runs = [run for run in runs if run.experiment == last.experiment]
    return Method(letter, recipe_name(argument), by_seed(runs), tuple(notes))


def _method_of_run(letter: str, argument: str, results: Sequence[Result]) -> Method:
    known = all_runs()
    if not names_run(argument, known):
        named = {*all_recipes(), *all_studies(), *(recipe_name(result.recipe) for result in results)}
        near = suggestion(argument, [*sorted(named), *(run.about.short for run in known)])
        raise UnknownNameError(
            f"'{argument}' is not a recipe, a run or a study.{near}",
            "run `cse list recipes`, `cse list studies` or `cse runs ls`; the path of a recipe ends in .toml",
            code="compare.unknown_method",
        )
    run = find_run(argument, known)
    found = next((result for result in results if result.run_id == run.run_id), None)
    if found is None:
        raise CseError(
            f"run {run.about.short} has no scores: {run.state}",
            "compare a finished run: `cse runs ls` lists them",
            code="compare.no_finished_run",
        )
    return Method(letter, f"{run.about.short} ({recipe_name(found.recipe)})", {found.seed: found})


def names_run(text: str, known: Iterable[RecordedRun]) -> bool:
    """Return whether a text is the prefix of a run's ID or the name of a run."""
    return any(run.run_id.startswith(text.lower()) or run.name == text for run in known)


def mixed_environments(runs: Sequence[Result]) -> list[str]:
    """Return a remark on versions, device and precision that differ between runs of one row."""
    values = {name: dict.fromkeys(value_of(run) for run in runs) for name, value_of in ENVIRONMENT.items()}
    named = [f"{name} {' / '.join(of)}" for name, of in values.items() if len(of) > 1]
    return [f"not the same for all seeds: {'; '.join(named)}"] if named else []


def find_circumstances(methods: Sequence[Method], changes: Sequence[Change]) -> Iterable[Change]:
    """Yield the differences that are not in the recipes: text, weights, code, device, precision, versions."""
    identities = [method.latest.identity for method in methods]
    parts: dict[tuple[str, str], Difference] = {}
    for identity in identities[1:]:
        parts |= {(one.part, one.name): one for one in identities[0].differences(identity) if one.part != "settings"}
    changed = {change.key for change in changes}
    for part, name in parts:
        digests = [getattr(identity, part) for identity in identities]
        values = tuple(str(one.get(name, "") if name else one)[:SHORT] for one in digests)
        # A component that only one recipe has, or another model in a recipe, is a change of the recipe.
        if all(values) and not (part == "weights" and changed & {name, f"{name}.model"}):
            yield Change(key=f"{part} of {name}" if name else part, values=values)
    for name, value_of in ENVIRONMENT.items():
        values = tuple(", ".join(sorted({value_of(run) for run in method.runs.values()})) for method in methods)
        if len(set(values)) > 1:
            yield Change(key=name, values=values)


def find_notes(methods: Sequence[Method], unreadable: Collection[str]) -> Iterable[str]:
    """Yield the remarks on each method. `unreadable` are the letters of those whose recipe cannot be read."""
    for method in methods:
        yield from (f"{method.letter}: {note}" for note in (*method.notes, *_notes_on_runs(method)))
        if method.letter in unreadable:
            yield f"{method.letter}: the recorded recipe cannot be read"
    if selected := sorted(
        {run.metric_for_best_model for method in methods for run in method.runs.values() if run.metric_for_best_model}
    ):
        yield f"{', '.join(selected)} selected the states: optimistic, and not tested"


def _notes_on_runs(method: Method) -> Iterable[str]:
    plan, latest = plan_of(list(method.runs.values())), method.latest
    if plan.mode == "incomplete" and len(method.runs) > 1:
        yield f"{plan.text}: `{method.command(f'--seeds {plan.option}')}`"
    experiments = {run.experiment: run.identity for run in method.runs.values()}
    if len(experiments) > 1:
        others = [one for key, one in experiments.items() if key != latest.experiment]
        names = dict.fromkeys(str(one) for other in others for one in other.differences(latest.identity))
        yield f"WARNING: its seeds belong to {len(experiments)} experiments, which differ in {', '.join(names)}"
    if any(run.test_selected for run in method.runs.values()):
        yield "a test split selected the states, so the scores are optimistic"
