"""Best values of a search: the recipe with them, which extends the searched one, and their verification.

The verification compares them with the recipe's values on seeds that the search has not used.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from itertools import count, islice, takewhile
from pathlib import Path
from typing import Any

import tomlkit

from cse_cli.analysis.paired_tests import shared_metrics
from cse_cli.core.identity import Mode
from cse_cli.core.plans import plan_of
from cse_cli.core.stats import compare_paired
from cse_cli.data.identity import identify_known
from cse_cli.jobs.engine import Engine
from cse_cli.jobs.job import Job, Task, finished, planned
from cse_cli.jobs.launch import run_tasks
from cse_cli.jobs.request import RunRequest, place_runs
from cse_cli.recipe.files import find_parent
from cse_cli.recipe.load import LoadedRecipe, load
from cse_cli.recipe.overrides import Override, apply_overrides, parse_overrides
from cse_cli.runs.events import Listener
from cse_cli.runs.index import all_runs
from cse_cli.runs.scores import metric_value
from cse_cli.tuning.parameters import settings_of
from cse_cli.tuning.results import Search, Trial, Verification
from cse_cli.tuning.view import TuneScreen
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
    found, removed = settings_of(config.parameters, {} if trial is None or trial.own else trial.values)
    return TunedRecipe(load(config.recipe), (*config.overrides, *found), (*config.unset, *removed))


def verify(search: Search, seeds: int, request: RunRequest, screen: TuneScreen) -> Verification:
    """Train the recipe in full length with its own values and with the best ones, and compare them seed by seed.

    The seeds are the first from 0 that no trial had. Finished runs are not repeated. The number of seeds is recorded as
    a plan before the first run starts.
    """
    best = search.require_best()
    if best.own:
        message = "the recipe's values are the best, so there is no gain to verify"
        raise CseError(message, "run more trials with --trials", code="tune.no_gain")
    sides = {"own": tuned_recipe(search), "found": tuned_recipe(search, best)}
    tasks = []
    for seed in islice((seed for seed in count() if seed not in search.config.seeds), seeds):
        for side, tuned in sides.items():
            loaded = tuned.load([Override.of("train.seed", seed)])
            name = f"{side}, seed {seed} of {search.name}"
            job = Job(loaded, seed, parent=search.run_id or "", run_name=name, confirms=search.name)
            tasks.append(Task(job, identify_known(loaded.recipe)))
    tasks = planned(tasks)
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
    own, found = [done[task] for task in tasks[::2]], [done[task] for task in tasks[1::2]]
    mode: Mode = "planned" if plan_of(own).paired_with(plan_of(found)).mode == "planned" else "anytime"
    paired = {}
    for name in dict.fromkeys([search.metric, *shared_metrics([*own, *found])]):
        scores = [metric_value(result.scores, name) for result in (*own, *found)]
        known = [score for score in scores if score is not None]
        if len(known) == len(scores):
            of_seeds = [result.seed for result in own]
            paired[name] = compare_paired(of_seeds, known[: len(own)], known[len(own) :], mode)
    return Verification(trial=best.number, values=best.values, main=search.metric, paired=paired, mode=mode)


# The recipe that is written.


def check_file(file: Path, search: str) -> None:
    """Refuse a file that must not be overwritten, before the search starts."""
    if file.suffix != ".toml":
        better = file.with_suffix(".toml") if file.name else "best.toml"
        raise CseError(f"--save-best: '{file}' does not end in .toml", f"use {better}", code="tune.not_toml")
    if not file.parent.is_dir():
        message = f"--save-best: directory '{file.parent}' does not exist"
        raise CseError(message, "create it, or use another directory", code="tune.no_directory")
    first = ""
    with suppress(OSError, ValueError), file.open(encoding="utf-8") as lines:
        first = next(lines, "")
    if file.exists() and not first.startswith(f"{_MADE_BY}{search},"):
        message = f"--save-best: '{file}' exists and does not belong to this search"
        raise CseError(message, "use another name", code="tune.file_exists")


def save_recipe(file: Path, tuned: TunedRecipe, search: Search, trial: Trial) -> None:
    """Write the recipe with the values of a trial. It extends the searched recipe."""
    check_file(file, search.name)
    expected, base = tuned.load().recipe.hash(), tuned.base
    draft = file.with_name(f".{file.stem}.draft.toml")
    path = os.path.relpath(base.path.resolve(), file.absolute().parent.resolve())
    named = find_parent(base.name, file.absolute())
    # The name if it means the same file from there, then the path.
    parents = [base.name, path] if named is not None and named.resolve() == base.path.resolve() else [path]
    steps = f", {search.config.steps} steps" if search.config.steps else ""
    own = "" if search.own is None else f" Score of the recipe's values: {search.own.score:.2f}."
    comment = [f"{_MADE_BY}{search.name}, trial {trial.number} of {len(search.trials)}, {date.today()}."]
    wrap = textwrap.TextWrapper(_WIDTH, initial_indent="# ", subsequent_indent="# ", break_long_words=False)
    comment += wrap.wrap(f"{search.metric} {trial.score:.2f} ({search.config.scored_by}{steps}).{own}")
    comment += wrap.wrap(f"{search.verdict[:1].upper()}{search.verdict[1:]}.")
    # The values are not those of the paper.
    removed = [*(["paper"] if base.recipe.paper is not None else []), *tuned.unset]
    tables: dict[str, Any] = {"remove": removed} if removed else {}
    tables |= {"title": f"{base.recipe.title}, tuned", **_changed_tables(tuned)}
    try:
        for parent in parents:
            text = "\n".join([*comment, tomlkit.dumps({"extends": parent, **tables})])
            draft.write_text(text, encoding="utf-8")
            if load(str(draft)).recipe.hash() == expected:
                draft.replace(file)
                return
    except OSError as error:
        message = f"--save-best: '{file}' cannot be written: {error}"
        raise CseError(message, "use another directory", code="tune.not_written") from error
    finally:
        draft.unlink(missing_ok=True)
    message = f"--save-best: '{file}' would load to another recipe"
    raise CseError(message, f"write it to {base.path.parent}", code="tune.not_written")


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
