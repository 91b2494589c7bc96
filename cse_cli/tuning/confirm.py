"""The values found against the recipe's own, with seeds that the search has not used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count, islice

from cse_cli.analysis.evidence import shared_metrics
from cse_cli.core.console import Observer
from cse_cli.core.results import Result, metric_value
from cse_cli.core.run_folder import RunFolder, unfinished_runs
from cse_cli.core.stats import Paired, compare_paired
from cse_cli.jobs.executor import as_ended
from cse_cli.jobs.placement import place_runs
from cse_cli.jobs.request import RunRequest
from cse_cli.jobs.study import Key, finished_runs
from cse_cli.tracking import tags
from cse_cli.tracking.reader import list_names
from cse_cli.training.build import Job
from cse_cli.tuning.live import TuneScreen
from cse_cli.tuning.observer import RunWarnings
from cse_cli.tuning.results import Confirmation, Search
from cse_cli.tuning.save_recipe import tuned_recipe
from registry.errors import CseError

_ENDED = ("KILLED", "GONE", "FAILED")
_SIDES = ("own", "found")


def fresh_seeds(search: Search, wanted: int) -> list[int]:
    """Return seeds that no trial had, from 0 on."""
    return list(islice((seed for seed in count() if seed not in search.seeds), wanted))


def confirm(search: Search, seeds: int, request: RunRequest, screen: TuneScreen) -> Confirmation:
    """Run the recipe in full length with its own values and with the best ones, and compare them seed by seed.

    Runs that the tracking store has are not repeated.

    Args:
        search: What was found.
        seeds: How many.
        request: Says where they are run.
        screen: Shows the runs.

    Raises:
        CseError: The best values are the recipe's own, or a run fails.
    """
    best = search.demand_best()
    if best.own:
        raise CseError("the recipe's own values are the best: there is no gain to confirm", "search on with --trials")
    recipes = dict(zip(_SIDES, (tuned_recipe(search), tuned_recipe(search, best)), strict=True))
    jobs: list[Job] = []
    for seed in fresh_seeds(search, seeds):
        for side, recipe in recipes.items():
            # Below the search, and a result of its recipe: its seed chose nothing.
            jobs.append(
                Job(
                    recipe.load([f"train.seed={seed}"]),
                    seed,
                    request.device,
                    may_restart=True,
                    parent=search.run_id,
                    run_name=f"{side}, seed {seed} of {search.study}",
                    tags={tags.CONFIRMS: search.study},
                )
            )
    results = _results(jobs, request, screen)
    pairs = list(zip(results[0::2], results[1::2], strict=True))
    return Confirmation(trial=best.number, values=best.values, main=search.metric, paired=_compared(search, pairs))


def _results(jobs: Sequence[Job], request: RunRequest, screen: TuneScreen) -> list[Result]:
    """Return the results of all jobs, in order; those that the tracking store does not have are run now."""
    done = finished_runs(map(_key, jobs))
    left = [(number, job) for number, job in enumerate(jobs) if _key(job) not in done]
    if left:
        with place_runs(len(left), request).open() as executor:
            for key, end in as_ended(executor, _begun(left, len(jobs), screen, alone=executor.one_by_one)):
                if isinstance(end, CseError):
                    raise end
                done[key] = end
    return [done[_key(job)] for job in jobs]


def _begun(
    left: Sequence[tuple[int, Job]], total: int, screen: TuneScreen, *, alone: bool
) -> Iterator[tuple[Key, Job, Observer]]:
    """Say of each job that it begins as it is taken."""
    for number, job in left:
        screen.confirming(f"{_SIDES[number % 2]} values", job.seed, number + 1, total)
        observer = screen if alone else RunWarnings(job.name, screen)
        yield _key(job), replace(job, resume=_unfinished_run(job)), observer


def _key(job: Job) -> Key:
    return job.loaded.recipe.hash(), job.seed


def _unfinished_run(job: Job) -> RunFolder | None:
    """Return the run of a confirmation that was killed, where its checkpoint lies on this machine."""
    folders = unfinished_runs(job.loaded.recipe.resolved())
    if not folders:
        return None
    ended = {run.run_id for run in list_names() if run.status in _ENDED and tags.TUNE not in run.tags}
    return next((folder for folder in folders if folder.run_id in ended), None)


def _compared(search: Search, pairs: Sequence[tuple[Result, Result]]) -> dict[str, Paired]:
    """Return metric → comparison, for every metric that all runs have."""
    compared: dict[str, Paired] = {}
    for name in dict.fromkeys([search.metric, *shared_metrics([run for pair in pairs for run in pair])]):
        own, found = ([metric_value(pair[side].scores, name) for pair in pairs] for side in (0, 1))
        known = [number for number in (*own, *found) if number is not None]
        if len(known) == 2 * len(pairs):
            seeds = [first.seed for first, _ in pairs]
            compared[name] = compare_paired(seeds, known[: len(pairs)], known[len(pairs) :])
    return compared
