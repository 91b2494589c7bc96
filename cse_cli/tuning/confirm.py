"""The values found against the recipe's own, with seeds that the search has not seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from typing import Protocol

from cse_cli.analysis.evidence import metric_value, shared_metrics
from cse_cli.core.console import Observer
from cse_cli.core.results import Result
from cse_cli.core.run_folder import RunFolder, unfinished
from cse_cli.core.stats import Paired, paired
from cse_cli.recipe.load import load
from cse_cli.runs.executor import spread
from cse_cli.runs.study import finished
from cse_cli.tracking import location as tags
from cse_cli.tracking.reader import list_names
from cse_cli.training.build import Below, Job
from cse_cli.tuning.objective import resumed
from cse_cli.tuning.results import Confirmation, Search, Trial
from cse_cli.tuning.save_recipe import Found
from cse_cli.tuning.space import Knob
from registry.errors import CseError, RunFailedError

_OVER = ("KILLED", "STALE", "FAILED")


class Watcher(Observer, Protocol):
    """Hears of a confirmation's progress, and of that of its runs."""

    def confirms(self, what: str, seed: int, number: int, total: int) -> None:
        """A run of a confirmation begins."""

    def heard(self, worker: str, line: str) -> None:
        """One of several runs at once has written a line."""


@dataclass(frozen=True)
class _Run:
    """One of the runs that are compared.

    Args:
        number: Its place among them.
        side: Whose values it has.
    """

    number: int
    side: str
    job: Job

    @property
    def key(self) -> tuple[str, int]:
        return self.job.loaded.recipe.hash(), self.job.seed

    def taken_up(self) -> _Run:
        """Return it with the run that it goes on with, where one was killed."""
        return replace(self, job=replace(self.job, resume=_unfinished(self.job)))


def best_of(search: Search) -> Trial:
    """Return the best trial.

    Raises:
        RunFailedError: None ran to its end.
    """
    if search.best is None:
        reasons = [trial.reason for trial in search.trials if trial.reason]
        last = f"; the last one that failed: {reasons[-1]}" if reasons else ""
        raise RunFailedError(f"no trial of study '{search.study}' ran to its end{last}", "`cse tune --best` shows it")
    return search.best


def found(search: Search, trial: Trial | None = None) -> Found:
    """Return a search's recipe as it would be run: with a trial's values, or with its own.

    Raises:
        CseError: The recipe is not what it was.
    """
    steps = [] if search.steps is None else [f"train.steps={search.steps}"]
    now = load(search.recipe, [*search.overrides, *steps], search.unset)
    if now.recipe.hash() != search.recipe_hash:
        raise CseError(
            f"{search.recipe} has changed since study '{search.study}': what was found belongs to another recipe",
            f"undo the change in {now.path}, or tune it anew",
        )
    return Found(load(search.recipe), (*search.overrides, *_sets(search, trial)), search.unset)


def _sets(search: Search, trial: Trial | None) -> list[str]:
    """Return the `--set` texts of a trial's values; those of the recipe itself need none."""
    if trial is None or trial.own:
        return []
    texts: list[str] = []
    for parameter in search.parameters:
        chosen = trial.values.get(parameter.name)
        if chosen is not None:
            texts += Knob(**parameter.model_dump()).overrides(chosen)
    return texts


def fresh_seeds(search: Search, wanted: int) -> list[int]:
    """Return seeds that no trial had, from 0 on."""
    return list(islice((seed for seed in count() if seed not in search.seeds), wanted))


def confirm(search: Search, seeds: int, places: Sequence[str], watcher: Watcher) -> Confirmation:
    """Run the recipe with its own values and with the best ones, all of it and in full, and compare them seed by seed.

    Runs that the tracking store has are not repeated.

    Args:
        search: What was found.
        seeds: How many.
        places: Devices, as many as runs are to be done at once.
        watcher: Is told of the runs.

    Raises:
        CseError: The best values are the recipe's own, or a run fails.
    """
    best = best_of(search)
    if best.own:
        raise CseError("the recipe's own values are the best: there is no gain to confirm", "search on with --trials")
    wanted = fresh_seeds(search, seeds)
    sides = {"own": found(search), "found": found(search, best)}
    each = [(side, _job(search, side, which, seed)) for seed in wanted for side, which in sides.items()]
    results = _results([_Run(number, side, job) for number, (side, job) in enumerate(each, 1)], places, watcher)
    pairs = list(zip(results[0::2], results[1::2], strict=True))
    return Confirmation(trial=best.number, values=best.values, main=search.metric, paired=_compared(search, pairs))


def _job(search: Search, side: str, which: Found, seed: int) -> Job:
    """Return a run of one side: below the search, and a result of its recipe, as its seed chose nothing."""
    loaded = which.load([f"train.seed={seed}"])
    below = Below(search.run_id, f"{side}, seed {seed} of {search.study}", {tags.CONFIRMS: search.study})
    return Job(loaded, seed, below=below)


def _results(runs: Sequence[_Run], places: Sequence[str], watcher: Watcher) -> list[Result]:
    """Return the results of all runs, in order; those that the tracking store does not have are done now."""
    done = finished(run.key for run in runs)
    left = [run.taken_up() for run in runs if run.key not in done]
    at_once = len(places) > 1 and len(left) > 1
    ended = spread([run.job for run in left], places, watcher.heard) if at_once else [None] * len(left)
    for run, result in zip(left, ended, strict=True):
        if isinstance(result, CseError) and (run.job.resume is None or result.exit_code != CseError.exit_code):
            raise result
        if not isinstance(result, Result):  # one after the other, or what it was to take up cannot go on
            watcher.confirms(f"{run.side} values", run.job.seed, run.number, len(runs))
            result = resumed(replace(run.job, device=places[0]), watcher)
        done[run.key] = result
    return [done[run.key] for run in runs]


def _unfinished(job: Job) -> RunFolder | None:
    """Return the run of a confirmation that was killed, where its checkpoint lies on this machine."""
    folders = unfinished(job.loaded.recipe.resolved())
    if not folders:
        return None
    over = {run.run_id for run in list_names() if run.status in _OVER and tags.TUNE not in run.tags}
    return next((folder for folder in folders if folder.run_id in over), None)


def _compared(search: Search, pairs: Sequence[tuple[Result, Result]]) -> dict[str, Paired]:
    metrics = dict.fromkeys([search.metric, *shared_metrics([run for pair in pairs for run in pair])])
    seeds = [own.seed for own, _ in pairs]
    compared: dict[str, Paired] = {}
    for name in metrics:
        first, second = ([metric_value(pair[side].scores, name) for pair in pairs] for side in (0, 1))
        known = [number for number in (*first, *second) if number is not None]
        if len(known) == 2 * len(pairs):
            compared[name] = paired(seeds, known[: len(pairs)], known[len(pairs) :])
    return compared
