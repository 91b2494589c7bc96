"""Finished runs of one experiment together, and how that experiment relates to its recipe's file today.

What is compared: the finished runs that an argument of `cse compare` means.

What a report of a run is about: the run, all that it recorded, and its sister runs.
"""

from __future__ import annotations

import json
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from string import ascii_uppercase
from typing import Any, Literal

from cse_cli.core.paths import runs as run_folders
from cse_cli.core.results import Result, average
from cse_cli.recipe.files import all_recipes, all_studies, name_of, recipe_name
from cse_cli.recipe.load import load
from cse_cli.recipe.schema import Recipe
from cse_cli.tracking import location as names
from cse_cli.tracking import reader
from cse_cli.tracking.reader import RecordedRun, RunDetails
from registry.errors import CseError, UnknownNameError, suggestion

Standing = Literal["current", "chosen", "changed", "other_model", "missing"]
"""The recipe as its file stands; settings that a study asks for; neither; another model; no such file."""
Judge = Callable[[Result], Standing]
SETTINGS_SHOWN = 3


@dataclass(frozen=True)
class Configuration:
    """The runs of one experiment, one a seed: the one that finished last.

    Args:
        results: By seed.
        standing: Of the newest.
    """

    results: tuple[Result, ...]
    standing: Standing

    @property
    def latest(self) -> Result:
        """The run that finished last."""
        return max(self.results, key=lambda result: result.finished)

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
        return self.standing in ("changed", "other_model")

    def values(self, evaluator: str, metric: str | None, *, untrained: bool = False) -> list[float]:
        """Return the score of every seed, or nothing where one seed lacks it.

        Args:
            evaluator: As the recipe names it.
            metric: None for the one the evaluator is known by.
            untrained: Of the encoder before training.
        """
        found: list[float] = []
        for result in self.results:
            metrics = (result.untrained if untrained else result.scores).get(evaluator, {})
            name = metric or next(iter(metrics), "")  # evaluators report the metric they are known by first
            if name not in metrics:
                return []
            found.append(metrics[name])
        return found

    def averages(self, evaluators: Sequence[str], metric: str, *, untrained: bool = False) -> list[float]:
        """Return the papers' average of every seed, or nothing where one seed lacks a score."""
        scores = [result.untrained if untrained else result.scores for result in self.results]
        found = [average(of_seed, evaluators, metric) for of_seed in scores]
        known = [value for value in found if value is not None]
        return known if len(known) == len(found) else []

    def dev(self) -> list[float]:
        """Return the score that chose the state, of every seed; nothing where nothing, or a test split, chose."""
        select = self.latest.select
        if select is None or self.test_selected:
            return []
        evaluator, _, metric = select.rpartition(".")
        return self.values(evaluator, metric)


def configurations(results: Iterable[Result], standing: Judge) -> list[Configuration]:
    """Return the runs of each experiment together.

    A run whose model is not its recipe's answers no printed row, whatever its recipe says.
    """
    found: dict[tuple[str, str], dict[int, Result]] = defaultdict(dict)
    for result in sorted(results, key=lambda r: r.finished):
        if result.paper is not None and standing(result) == "other_model":
            result = result.model_copy(update={"paper": None})
        paper_row = "" if result.paper is None else result.paper.model_dump_json()
        found[result.recipe_hash, paper_row][result.seed] = result
    grouped = [tuple(seeds[seed] for seed in sorted(seeds)) for seeds in found.values()]
    return [Configuration(group, standing(max(group, key=lambda r: r.finished))) for group in grouped]


def standing(result: Result) -> Standing:
    """Tell whether a recipe's file still means the experiment that a result comes from."""
    try:
        recipe = _today(result.recipe)
    except UnknownNameError:
        return "missing"
    except CseError:
        return "changed"
    if _hash(result.recipe) == result.recipe_hash:
        return "current"
    models = {str(part.params.get("model", "")) for part in recipe.encoders.values()}
    return "changed" if result.model in models else "other_model"


@cache
def _today(name: str) -> Recipe:
    from cse_cli.recipe.load import load  # needs every component, so torch: only where there are results

    return load(name).recipe


@cache
def _hash(name: str) -> str:
    return _today(name).hash()


def settings(result: Result) -> tuple[str, ...]:
    """Return how what ran differs from the recipe's file today, as `key=value`; nothing where that is not known."""
    file = run_folders() / (result.run_id or "unknown") / "run.json"
    try:
        today = _today(result.recipe).resolved()
        ran = json.loads(file.read_text(encoding="utf-8"))["resolved"]
    except (OSError, ValueError, KeyError, CseError):
        return ()
    before, after = _leaves(today), _leaves(ran)
    changed = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    said = [f"{key}={_text(after[key])}" if key in after else f"no {key}" for key in sorted(changed)]
    kept = said[:SETTINGS_SHOWN]
    return (*kept, f"and {len(said) - len(kept)} more") if len(said) > len(kept) else tuple(kept)


def _leaves(tables: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in tables.items():
        if isinstance(value, Mapping):
            found |= _leaves(value, f"{prefix}{key}.")
        elif (prefix + key).partition(".")[0] not in _NO_SETTINGS and prefix + key != "train.seed":
            found[prefix + key] = value
    return found


_NO_SETTINGS = ("title", "description", "paper", "tune")
"""Keys that change no number."""


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True)
class Side:
    """One of those compared.

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
        return max(self.runs.values(), key=lambda result: result.finished)


def find_sides(asked: Sequence[str], results: Sequence[Result]) -> list[Side]:
    """Return what is compared, in the order asked for.

    Args:
        asked: Beginnings of run ids, names or paths of recipes, or `recipe@seed`.
        results: All finished runs.

    Raises:
        CseError: Fewer than two, the same run twice, or nothing finished of one of them.
        UnknownNameError: One is neither a recipe nor a run.
    """
    if not 2 <= len(asked) <= len(ascii_uppercase):
        given = "nothing" if not asked else "one" if len(asked) == 1 else str(len(asked))
        raise CseError(
            f"cse compare takes two to {len(ascii_uppercase)} runs or recipes; {given} is given",
            "name what to compare with: `cse compare mini/simcse_en mini/ifcl_en`",
        )
    sides = [_side(letter, one, results) for letter, one in zip(ascii_uppercase, asked, strict=False)]
    for place, side in enumerate(sides):
        for other in sides[:place]:
            if same := sorted(_ids(side) & _ids(other)):
                raise CseError(
                    f"{other.name} and {side.name} share run {same[0][:8]}: a run cannot be compared with itself",
                    "`cse runs ls` shows the others",
                )
    return sides


def _ids(side: Side) -> set[str]:
    return {result.run_id for result in side.runs.values() if result.run_id}


def _side(letter: str, asked: str, results: Sequence[Result]) -> Side:
    recipe, at, seed = asked.rpartition("@")
    if at and seed.isdigit():
        side = _of_recipe(letter, recipe, results)
        if int(seed) not in side.runs:
            raise CseError(
                f"no finished run of {side.name} with seed {seed}; seeds that finished: {_listed(side.runs)}",
                f"`cse run {recipe} --seed {seed}` makes it",
            )
        return Side(letter, f"{side.name}@{int(seed)}", {int(seed): side.runs[int(seed)]}, side.notes)
    if _is_recipe(asked, results):
        return _of_recipe(letter, asked, results)
    return _of_run(letter, asked, results)


def _is_recipe(asked: str, results: Sequence[Result]) -> bool:
    return asked.endswith(".toml") or asked in all_recipes() or any(_name(r.recipe) == asked for r in results)


def _name(asked: str) -> str:
    return name_of(Path(asked)) if asked.endswith(".toml") else asked


def _of_recipe(letter: str, asked: str, results: Sequence[Result]) -> Side:
    """Return the runs of the recipe as it is today, else of what it was when it last ran."""
    name = _name(asked)
    named = [result for result in results if _name(result.recipe) == name]
    try:
        today = load(asked).recipe.hash()
    except CseError:
        if not named:
            raise
        today = None
    runs = [result for result in results if result.recipe_hash == today]
    notes: tuple[str, ...] = ()
    if not runs:
        if not named:
            raise CseError(f"no finished run of recipe '{asked}'", f"`cse run {asked} --seeds 5` makes some")
        last = max(named, key=lambda result: result.finished)
        runs = [result for result in named if result.recipe_hash == last.recipe_hash]
        why = "its recipe is found no more" if today is None else "no run of today's recipe has finished"
        notes = (f"{why}: those of {last.finished:%Y-%m-%d} are taken, hash {last.recipe_hash[:8]}",)
    return Side(letter, name, _by_seed(runs), notes)


def _by_seed(runs: Sequence[Result]) -> dict[int, Result]:
    latest = {result.seed: result for result in sorted(runs, key=lambda result: result.finished)}
    return dict(sorted(latest.items()))


def _of_run(letter: str, asked: str, results: Sequence[Result]) -> Side:
    known = reader.list_names()
    if not any(run.run_id.startswith(asked.lower()) or run.name == asked for run in known):
        near = suggestion(asked, [*all_recipes(), *{_name(r.recipe) for r in results}, *(r.run_id[:8] for r in known)])
        raise UnknownNameError(
            f"'{asked}' is neither a recipe nor a run.{near}",
            "`cse runs ls` and `cse list recipes` show what there is; the path of a recipe ends in .toml",
        )
    run_id = reader.find_run(asked)
    found = [result for result in results if result.run_id == run_id]
    if not found:
        status = next(run.status for run in known if run.run_id == run_id)
        raise CseError(f"run {run_id[:8]} has no scores to compare: {status}", "`cse runs ls` shows finished ones")
    return Side(letter, f"{run_id[:8]} ({_name(found[0].recipe)})", {found[0].seed: found[0]})


def _listed(seeds: Mapping[int, Result]) -> str:
    return ", ".join(map(str, seeds))


@dataclass(frozen=True)
class Subject:
    """A finished run.

    Args:
        details: As the store has it.
        result: What it says.
        sisters: Every finished run of the same recipe, itself included: seed → the one that finished last.
        resolved: Its resolved recipe; None where it cannot be read.
        environment: What it noted of its surroundings; empty where that cannot be read.
    """

    details: RunDetails = field(repr=False)
    result: Result
    sisters: Mapping[int, Result] = field(repr=False)
    resolved: Mapping[str, Any] | None = field(repr=False)
    environment: Mapping[str, Any] = field(repr=False)

    @property
    def run(self) -> RecordedRun:
        """The run as `cse runs ls` knows it."""
        return self.details.run

    @property
    def results(self) -> list[Result]:
        """Of every sister, by seed."""
        return list(self.sisters.values())

    @property
    def configuration(self) -> Configuration:
        """The sisters as the leaderboard knows them."""
        # A recipe may have got its paper's row only later: hashes are alike, so all are asked for the run's.
        paper = self.result.paper
        (found,) = configurations([one.model_copy(update={"paper": paper}) for one in self.results], standing)
        return found


def find_subject(run_id: str, results: Sequence[Result]) -> Subject:
    """Return a run with all that it recorded.

    Args:
        run_id: As `find_run` returns it.
        results: All finished runs.

    Raises:
        CseError: It has no scores.
    """
    details = reader.details(run_id)
    result = details.run.result
    if result is None:
        why = details.run.unreadable if details.run.status == "FINISHED" else details.run.status
        raise CseError(f"run {run_id[:8]} has no scores to report: {why}", "`cse runs ls` shows finished runs")
    return Subject(
        details=details,
        result=result,
        sisters=by_seed([*(r for r in results if r.recipe_hash == result.recipe_hash), result]),
        resolved=_read(run_id, "resolved.toml", tomllib.loads),
        environment=_read(run_id, "environment.json", json.loads) or {},
    )


def by_seed(runs: Sequence[Result]) -> dict[int, Result]:
    """Return seed → run: the one that finished last, but the last of `runs` itself for its own seed."""
    latest = {run.seed: run for run in sorted(runs, key=lambda run: run.finished)}
    return dict(sorted({**latest, runs[-1].seed: runs[-1]}.items()))


def find_run(asked: str, results: Sequence[Result]) -> str:
    """Return the id of the run whose id starts so, or that is called so.

    Args:
        asked: As the command line names it.
        results: All finished runs.

    Raises:
        CseError: There is none; a recipe's name is answered with its newest run.
    """
    known = reader.list_names()
    if any(run.run_id.startswith(asked.lower()) or run.name == asked for run in known):
        return reader.find_run(asked)
    if asked in all_recipes():
        newest = max((r for r in results if r.recipe == asked), key=lambda r: r.finished, default=None)
        action = (
            f"`cse run {asked}` makes one" if newest is None else f"`cse report {str(newest.run_id)[:8]}`: its newest"
        )
        raise CseError(f"'{asked}' is a recipe; a report is about one of its runs, beside all its seeds", action)
    near = suggestion(asked, [*all_studies(), *(run.name for run in known), *(run.run_id[:8] for run in known)])
    raise UnknownNameError(
        f"'{asked}' is neither a run nor a study.{near}", "`cse runs ls` and `cse list studies` show what there is"
    )


def _read(run_id: str, name: str, parse: Any) -> dict[str, Any] | None:
    text = reader.text_of(run_id, name)
    try:
        return None if text is None else dict(parse(text))
    except ValueError:  # of another version, or cut off
        return None


def doubts(subject: Subject) -> list[str]:
    """Return what a reader must know of a run before its numbers."""
    found = []
    if names.TUNE in subject.run.tags:
        found.append(f"a trial of the search {subject.run.tags[names.TUNE]}: the best of many is no result by itself")
    if any(one.test_selected for one in subject.results):
        found.append("the state was chosen on a test split: such scores are optimistic")
    return found
