"""Finished runs: those of one experiment by seed, how their recipes differ, and what the command line names by them."""

from __future__ import annotations

import json
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from string import ascii_uppercase
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from cse_cli.core.paths import runs as run_folders
from cse_cli.core.results import STS_TASKS, Result, paper_average
from cse_cli.recipe.files import all_recipes, all_studies, name_of, recipe_name
from cse_cli.recipe.load import load
from cse_cli.recipe.schema import Recipe, data_identity
from cse_cli.tracking import reader, tags
from cse_cli.tracking.reader import RecordedRun, RunDetails
from registry.errors import CseError, UnknownNameError, suggestion
from registry.papers import AVERAGE

RecipeStatus = Literal["current", "chosen", "changed", "other_model", "missing"]
"""Relation of a run to its recipe: the file as it stands; settings that a study asks for; neither; another model than
the recipe's; no such file."""
StatusOf = Callable[[Result], RecipeStatus]
SETTINGS_SHOWN = 3


def last_finished(runs: Iterable[Result]) -> Result:
    """Return the run that finished last."""
    return max(runs, key=lambda run: run.finished)


def by_seed(runs: Iterable[Result]) -> dict[int, Result]:
    """Return seed → the run with it that finished last, in the order of the seeds."""
    latest = {run.seed: run for run in sorted(runs, key=lambda run: run.finished)}
    return dict(sorted(latest.items()))


@dataclass(frozen=True)
class Configuration:
    """The runs of one experiment, one a seed.

    Args:
        results: By seed.
        status: Of the newest.
    """

    results: tuple[Result, ...]
    status: RecipeStatus

    @cached_property
    def latest(self) -> Result:
        """The run that finished last."""
        return last_finished(self.results)

    @property
    def recipe(self) -> str:
        """Bare name of the recipe."""
        return recipe_name(self.latest.recipe)

    @property
    def seeds(self) -> tuple[int, ...]:
        """In order."""
        return tuple(result.seed for result in self.results)

    @property
    def test_selected(self) -> bool:
        """Whether a test split chose the state of any."""
        return any(result.test_selected for result in self.results)

    @property
    def stale(self) -> bool:
        """Whether its numbers are of another experiment than the recipe's file describes today."""
        return self.status in ("changed", "other_model")

    def values(self, evaluator: str, metric: str | None = None, *, untrained: bool = False) -> list[float]:
        """Return the score of every seed, or nothing where one seed lacks it.

        Args:
            evaluator: As the recipe names it, or `avg` for the average of the seven English sets.
            metric: None for the evaluator's main metric.
            untrained: Of the encoder before training.
        """
        if evaluator == AVERAGE:
            return self.averages(STS_TASKS, metric or "spearman", untrained=untrained)
        found: list[float] = []
        for result in self.results:
            metrics = (result.untrained if untrained else result.scores).get(evaluator, {})
            name = metric or next(iter(metrics), "")  # evaluators report their main metric first
            if name not in metrics:
                return []
            found.append(metrics[name])
        return found

    def averages(self, evaluators: Sequence[str], metric: str, *, untrained: bool = False) -> list[float]:
        """Return the papers' average of every seed, or nothing where one seed lacks a score."""
        scores = [result.untrained if untrained else result.scores for result in self.results]
        found = [paper_average(of_seed, evaluators, metric) for of_seed in scores]
        known = [value for value in found if value is not None]
        return known if len(known) == len(found) else []


def recipe_status(result: Result) -> RecipeStatus:
    """Tell whether a recipe's file still means the experiment that a result comes from."""
    try:
        recipe, digest = recipe_today(result.recipe)
    except UnknownNameError:
        return "missing"
    except CseError:
        return "changed"
    if digest == result.recipe_hash:
        return "current"
    models = {str(part.params.get("model", "")) for part in recipe.encoders.values()}
    return "changed" if result.model in models else "other_model"


@cache
def recipe_today(name: str) -> tuple[Recipe, str]:
    """Return a recipe as its file stands, and its hash.

    Raises:
        CseError: It is not valid, or there is none of that name.
    """
    recipe = load(name).recipe
    return recipe, recipe.hash()


def configurations(results: Iterable[Result], status_of: StatusOf = recipe_status) -> list[Configuration]:
    """Return the runs of each experiment together.

    A run whose model is not its recipe's answers no printed row, whatever its recipe says.
    """
    found: dict[tuple[str, str], list[Result]] = defaultdict(list)
    for result in sorted(results, key=lambda run: run.finished):
        if result.paper is not None and status_of(result) == "other_model":
            result = result.model_copy(update={"paper": None})
        paper_row = "" if result.paper is None else result.paper.model_dump_json()
        found[result.recipe_hash, paper_row].append(result)
    grouped = [tuple(by_seed(runs).values()) for runs in found.values()]
    return [Configuration(runs, status_of(last_finished(runs))) for runs in grouped]


def study_tags(runs: Iterable[RecordedRun]) -> dict[str, str]:
    """Return run id → the cell of a study that it was made for."""
    return {run.run_id: run.tags[tags.STUDY] for run in runs if tags.STUDY in run.tags}


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
    """Return how what ran differs from the recipe's file today, as `key=value`; nothing where that is not known."""
    file = run_folders() / (result.run_id or "unknown") / "run.json"
    try:
        today = recipe_today(result.recipe)[0].resolved()
        ran = json.loads(file.read_text(encoding="utf-8"))["resolved"]
    except (OSError, ValueError, KeyError, TypeError, CseError):
        return ()
    shown = sorted(
        f"no {c.key}" if c.values[1] is None else f"{c.key}={_text(c.values[1])}" for c in recipe_changes([today, ran])
    )
    more = len(shown) - SETTINGS_SHOWN
    return (*shown[:SETTINGS_SHOWN], *([f"and {more} more"] if more > 0 else []))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


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
    if name.endswith(".toml") or name in all_recipes() or any(_recipe_name(run.recipe) == name for run in results):
        return _method_of_recipe(letter, name, results)
    return _method_of_run(letter, name, results)


def _recipe_name(name: str) -> str:
    return name_of(Path(name)) if name.endswith(".toml") else name


def _method_of_recipe(letter: str, argument: str, results: Sequence[Result]) -> Method:
    """Return the runs of the recipe as it is today, else of what it was when it last ran."""
    name = _recipe_name(argument)
    named = [result for result in results if _recipe_name(result.recipe) == name]
    try:
        today = load(argument).recipe.hash()
    except CseError:
        if not named:
            raise
        today = None
    runs = [result for result in results if result.recipe_hash == today]
    if runs:
        return Method(letter, name, by_seed(runs))
    if not named:
        raise CseError(f"no finished run of recipe '{argument}'", f"`cse run {argument} --seeds 5` makes some")
    last = last_finished(named)
    why = "its recipe is found no more" if today is None else "no run of today's recipe has finished"
    note = f"{why}: those of {last.finished:%Y-%m-%d} are taken, hash {last.recipe_hash[:8]}"
    return Method(letter, name, by_seed(run for run in named if run.recipe_hash == last.recipe_hash), (note,))


def _method_of_run(letter: str, argument: str, results: Sequence[Result]) -> Method:
    known = reader.list_names()
    if not _names_run(argument, known):
        recipes = {_recipe_name(result.recipe) for result in results}
        near = suggestion(argument, [*all_recipes(), *recipes, *(run.run_id[:8] for run in known)])
        raise UnknownNameError(
            f"'{argument}' is neither a recipe nor a run.{near}",
            "`cse runs ls` and `cse list recipes` show what there is; the path of a recipe ends in .toml",
        )
    run_id = reader.find_run(argument)
    found = next((result for result in results if result.run_id == run_id), None)
    if found is None:
        status = next(run.status for run in known if run.run_id == run_id)
        raise CseError(f"run {run_id[:8]} has no scores to compare: {status}", "`cse runs ls` shows finished ones")
    return Method(letter, f"{run_id[:8]} ({_recipe_name(found.recipe)})", {found.seed: found})


def _names_run(text: str, known: Iterable[RecordedRun]) -> bool:
    return any(run.run_id.startswith(text.lower()) or run.name == text for run in known)


def find_reported_run(argument: str, results: Sequence[Result]) -> str:
    """Return the id of the run whose id starts so, or that is called so.

    Args:
        argument: As the command line names it.
        results: All finished runs.

    Raises:
        CseError: There is none; a recipe's name is answered with its newest run.
    """
    known = reader.list_names()
    if _names_run(argument, known):
        return reader.find_run(argument)
    if argument in all_recipes():
        of_recipe = [result for result in results if result.recipe == argument]
        newest = f"`cse report {str(last_finished(of_recipe).run_id)[:8]}`: its newest" if of_recipe else ""
        raise CseError(
            f"'{argument}' is a recipe; a report is about one of its runs, beside all its seeds",
            newest or f"`cse run {argument}` makes one",
        )
    near = suggestion(argument, [*all_studies(), *(run.name for run in known), *(run.run_id[:8] for run in known)])
    raise UnknownNameError(
        f"'{argument}' is neither a run nor a study.{near}", "`cse runs ls` and `cse list studies` show what there is"
    )


@dataclass(frozen=True)
class ReportedRun:
    """A finished run with all that it recorded.

    Args:
        details: As the store has it.
        result: What it says.
        seeds: Every finished run of the same recipe, itself included: seed → the one that finished last.
        resolved: Its resolved recipe; None where it cannot be read.
        environment: What it noted of machine and packages; empty where that cannot be read.
    """

    details: RunDetails = field(repr=False)
    result: Result
    seeds: Mapping[int, Result] = field(repr=False)
    resolved: Mapping[str, Any] | None = field(repr=False)
    environment: Mapping[str, Any] = field(repr=False)

    @property
    def run_id(self) -> str:
        """Of the run."""
        return self.details.run.run_id

    @property
    def results(self) -> list[Result]:
        """Of every seed."""
        return list(self.seeds.values())

    @property
    def configuration(self) -> Configuration:
        """The seeds as the leaderboard shows them."""
        # A recipe may have got its paper's row only later: hashes are alike, so all are argument for the run's.
        paper = self.result.paper
        (found,) = configurations([run.model_copy(update={"paper": paper}) for run in self.results])
        return found


def read_reported_run(run_id: str, results: Sequence[Result]) -> ReportedRun:
    """Return a run with all that it recorded.

    Args:
        run_id: As `find_reported_run` returns it.
        results: All finished runs.

    Raises:
        CseError: It has no scores.
    """
    details = reader.details(run_id)
    result = details.run.result
    if result is None:
        why = details.run.unreadable if details.run.status == "FINISHED" else details.run.status
        raise CseError(f"run {run_id[:8]} has no scores to report: {why}", "`cse runs ls` shows finished runs")
    same = by_seed(run for run in results if run.recipe_hash == result.recipe_hash)
    return ReportedRun(
        details=details,
        result=result,
        seeds=dict(sorted({**same, result.seed: result}.items())),
        resolved=read_resolved(run_id),
        environment=_parse(reader.text_of(run_id, "environment.json"), json.loads) or {},
    )


def read_resolved(run_id: str | None) -> dict[str, Any] | None:
    """Return the resolved recipe that a run recorded; None where it cannot be read."""
    return _parse(reader.text_of(run_id or "", "resolved.toml"), tomllib.loads)


def _parse(text: str | None, parse: Callable[[str], Any]) -> dict[str, Any] | None:
    try:
        return None if text is None else dict(parse(text))
    except ValueError:  # of another version, or cut off
        return None
