"""Best values of a search: the recipe with them, which extends the searched one, and their verification.

The verification compares them with the recipe's values on seeds that the search has not used.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count, islice, takewhile
from pathlib import Path
from typing import Any

import tomlkit

from cse_cli.analysis.experiments import metric_value
from cse_cli.analysis.paired_tests import shared_metrics
from cse_cli.core.identity import Mode
from cse_cli.core.plans import plan_of
from cse_cli.core.results import Result
from cse_cli.core.stats import Paired, compare_paired
from cse_cli.data.identity import identify_known
from cse_cli.jobs.engine import Engine
from cse_cli.jobs.job import Job
from cse_cli.jobs.placement import place_runs
from cse_cli.jobs.request import RunRequest
from cse_cli.jobs.tasks import Task, finished, planned, run_tasks
from cse_cli.recipe.files import find_parent
from cse_cli.recipe.load import LoadedRecipe, Override, load
from cse_cli.recipe.overrides import apply_overrides, parse_overrides
from cse_cli.runs.events import Listener
from cse_cli.runs.index import all_runs
from cse_cli.tuning.live import TuneScreen
from cse_cli.tuning.parameter import settings_of
from cse_cli.tuning.results import Search, Trial, Verification, verdict
from registry.errors import CseError

_MADE_BY = "# Found by `cse tune`: search "
_WIDTH = 110


@dataclass(frozen=True)
class TunedRecipe:
    """A recipe with the values of a trial.

    `changes` and `unset` have the overrides and `--unset` keys of every trial, then those of this one.
    """

    base: LoadedRecipe
    changes: tuple[str | Override, ...]
    unset: tuple[str, ...]

    def load(self, extra: Sequence[Override] = ()) -> LoadedRecipe:
        """Return the recipe with the values and further overrides."""
        return load(str(self.base.path), [*self.changes, *extra], self.unset)


def tuned_recipe(search: Search, trial: Trial | None = None) -> TunedRecipe:
    """Return the recipe in full length, with the values of a trial or with its own."""
    config = search.config
    now = config.load_base()
    if now.recipe.hash() != search.recipe_hash:
        message = f"recipe '{config.recipe}' has changed since search '{search.name}'"
        raise CseError(message, f"undo the change in {now.path}, or search again", code="tune.changed_recipe")
    values = {} if trial is None or trial.own else trial.values
    found, removed = settings_of(config.parameters, values)
    return TunedRecipe(load(config.recipe), (*config.overrides, *found), (*config.unset, *removed))


def check_file(file: Path, search: str) -> None:
    """Refuse a file that must not be overwritten, before the search starts."""
    if file.suffix != ".toml":
        better = file.with_suffix(".toml") if file.name else "best.toml"
        raise CseError(f"--save-best: '{file}' does not end in .toml", f"use {better}", code="tune.not_toml")
    if not file.parent.is_dir():
        message = f"--save-best: directory '{file.parent}' does not exist"
        raise CseError(message, "create it, or use another directory", code="tune.no_directory")
    if file.is_dir() or (file.exists() and not _belongs_to(file, search)):
        message = f"--save-best: '{file}' exists and does not belong to this search"
        raise CseError(message, "use another name", code="tune.file_exists")


def _belongs_to(file: Path, search: str) -> bool:
    try:
        with file.open(encoding="utf-8") as lines:
            return next(lines, "").startswith(f"{_MADE_BY}{search},")
    except (OSError, ValueError):
        return False


def save_recipe(file: Path, tuned: TunedRecipe, search: Search, best: Trial, day: str) -> None:
    """Write the recipe with the values of the best trial. `day` is in ISO form."""
    check_file(file, search.name)
    expected = tuned.load().recipe.hash()
    draft = file.with_name(f".{file.stem}.draft.toml")
    base = tuned.base
    path = os.path.relpath(base.path.resolve(), file.absolute().parent.resolve())
    named = find_parent(base.name, file.absolute())
    # The name if it means the same file from there, then the path.
    parents = [base.name, path] if named is not None and named.resolve() == base.path.resolve() else [path]
    try:
        for parent in parents:
            draft.write_text(_text(parent, tuned, search, best, day), encoding="utf-8")
            if load(str(draft)).recipe.hash() == expected:
                draft.replace(file)
                return
    except OSError as error:
        message = f"--save-best: '{file}' cannot be written: {error}"
        raise CseError(message, "use another directory", code="tune.not_written") from error
    finally:
        draft.unlink(missing_ok=True)
    message = f"--save-best: '{file}' would load to another recipe"
    raise CseError(message, f"write it to {tuned.base.path.parent}", code="tune.not_written")


def _text(parent: str, tuned: TunedRecipe, search: Search, best: Trial, day: str) -> str:
    steps = f", {search.config.steps} steps" if search.config.steps else ""
    own = "" if search.own is None else f" Score of the recipe's values: {search.own.score:.2f}."
    score, about = f"{search.metric} {best.score:.2f} ({search.config.scored_by}{steps}).{own}", verdict(search)
    wrap = textwrap.TextWrapper(_WIDTH, initial_indent="# ", subsequent_indent="# ", break_long_words=False)
    comment = [f"{_MADE_BY}{search.name}, trial {best.number} of {len(search.trials)}, {day}."]
    for sentence in (score, f"{about[:1].upper()}{about[1:]}."):
        comment += wrap.wrap(sentence)
    paper = ["paper"] if tuned.base.recipe.paper is not None else []  # the values are not those of the paper
    removed = [*paper, *tuned.unset]
    head = {"extends": parent, **({"remove": removed} if removed else {})}
    tables = {**head, "title": f"{tuned.base.recipe.title}, tuned", **_changed_tables(tuned)}
    return "\n".join(comment) + "\n" + tomlkit.dumps(tables)


def _changed_tables(tuned: TunedRecipe) -> dict[str, Any]:
    """Return the changed tables of the recipe. Arrays are whole, because `extends` replaces them."""
    changes = parse_overrides(tuned.changes, tuned.unset)
    tables, paths = apply_overrides(tuned.base.tables, changes)
    changed: dict[str, Any] = {}
    for path, change in zip(paths, changes, strict=True):
        if change.unset:
            continue
        value, target = tables, changed
        *tail, last = map(str, takewhile(lambda key: not isinstance(key, int), path))
        for key in tail:
            value, target = value[key], target.setdefault(key, {})
        if last in value:  # `train.steps` replaces an earlier `train.epochs`
            target[last] = value[last]
    if "file" in changed.get("data", {}):
        file = tuned.load().recipe.data.file  # relative to this directory, not to that of the new file
        changed["data"]["file"] = list(file) if isinstance(file, tuple) else file
    return changed


def new_seeds(search: Search, number: int) -> list[int]:
    """Return the first seeds from 0 that no trial had."""
    return list(islice((seed for seed in count() if seed not in search.config.seeds), number))


def verify(search: Search, seeds: int, request: RunRequest, screen: TuneScreen) -> Verification:
    """Train the recipe in full length with its own values and with the best ones, and compare them seed by seed.

    Finished runs are not repeated. The number of seeds is recorded as a plan before the first run starts.
    """
    best = search.require_best()
    if best.own:
        message = "the recipe's values are the best, so there is no gain to verify"
        raise CseError(message, "run more trials with --trials", code="tune.no_gain")
    chosen = new_seeds(search, seeds)
    own = _tasks(search, "own", tuned_recipe(search), chosen)
    found = _tasks(search, "found", tuned_recipe(search, best), chosen)
    results = _results([task for pair in zip(own, found, strict=True) for task in pair], request, screen)
    pairs = [(results[first], results[second]) for first, second in zip(own, found, strict=True)]
    plan = plan_of([first for first, _ in pairs]).paired_with(plan_of([second for _, second in pairs]))
    mode: Mode = "planned" if plan.mode == "planned" else "anytime"
    paired = _compared(search, pairs, mode)
    return Verification(trial=best.number, values=best.values, main=search.metric, paired=paired, mode=mode)


def _tasks(search: Search, side: str, recipe: TunedRecipe, seeds: Sequence[int]) -> list[Task]:
    """Return the runs of one side with the plan of their seeds. They are results of the recipe."""
    known = identify_known(recipe.load().recipe)
    jobs = [
        Job(
            recipe.load([Override.of("train.seed", seed)]),
            seed,
            parent=search.run_id or "",
            run_name=f"{side}, seed {seed} of {search.name}",
            confirms=search.name,
        )
        for seed in seeds
    ]
    return planned([Task(job, known) for job in jobs])


def _results(tasks: Sequence[Task], request: RunRequest, screen: TuneScreen) -> dict[Task, Result]:
    """Return the results of all tasks. Unfinished ones are run now."""
    done = finished(tasks, all_runs())
    if left := [task for task in tasks if task not in done]:
        with Engine(place_runs(len(left), request)) as engine:

            def begin(task: Task, _run_id: str) -> Listener:
                side = task.job.run_name.partition(",")[0]
                screen.verifying(f"{side} values", task.job.seed, tasks.index(task) + 1, len(tasks))
                return screen.receiver(task.job.name, alone=engine.slots == 1)

            for task, end in run_tasks(left, engine, begin):
                if isinstance(end, CseError):
                    raise end
                done[task] = end
    return done


def _compared(search: Search, pairs: Sequence[tuple[Result, Result]], mode: Mode) -> dict[str, Paired]:
    """Return metric → comparison, for every metric that all runs have."""
    compared: dict[str, Paired] = {}
    for name in dict.fromkeys([search.metric, *shared_metrics([run for pair in pairs for run in pair])]):
        own, found = ([metric_value(pair[side].scores, name) for pair in pairs] for side in (0, 1))
        known = [number for number in (*own, *found) if number is not None]
        if len(known) == 2 * len(pairs):
            seeds = [first.seed for first, _ in pairs]
            compared[name] = compare_paired(seeds, known[: len(pairs)], known[len(pairs) :], mode)
    return compared
