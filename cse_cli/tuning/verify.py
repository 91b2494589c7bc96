"""Verification of the best values: a comparison with the recipe's values on seeds that the search has not used."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count, islice

from cse_cli.analysis.headlines import metric_value
from cse_cli.analysis.paired_tests import shared_metrics
from cse_cli.core.events import Observer
from cse_cli.core.identity import Mode
from cse_cli.core.plans import plan_of
from cse_cli.core.results import Result
from cse_cli.core.stats import Paired, compare_paired
from cse_cli.data.identity import identify_known
from cse_cli.jobs.placement import place_runs
from cse_cli.jobs.request import RunRequest
from cse_cli.jobs.tasks import Task, finished, planned, run_tasks
from cse_cli.recipe.load import Override
from cse_cli.runs.index import all_runs
from cse_cli.training.build import Job
from cse_cli.tuning.live import TuneScreen
from cse_cli.tuning.results import Search, Verification
from cse_cli.tuning.save_recipe import TunedRecipe, tuned_recipe
from registry.errors import CseError


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
    own = _tasks(search, "own", tuned_recipe(search), chosen, request)
    found = _tasks(search, "found", tuned_recipe(search, best), chosen, request)
    results = _results([task for pair in zip(own, found, strict=True) for task in pair], request, screen)
    pairs = [(results[first], results[second]) for first, second in zip(own, found, strict=True)]
    plan = plan_of([first for first, _ in pairs]).paired_with(plan_of([second for _, second in pairs]))
    mode: Mode = "planned" if plan.mode == "planned" else "anytime"
    paired = _compared(search, pairs, mode)
    return Verification(trial=best.number, values=best.values, main=search.metric, paired=paired, mode=mode)


def _tasks(search: Search, side: str, recipe: TunedRecipe, seeds: Sequence[int], request: RunRequest) -> list[Task]:
    """Return the runs of one side with the plan of their seeds. They are results of the recipe."""
    known = identify_known(recipe.load().recipe)
    jobs = [
        Job(
            recipe.load([Override.of("train.seed", seed)]),
            seed,
            request.device,
            may_restart=True,
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
        with place_runs(len(left), request).open() as executor:

            def begin(task: Task) -> Observer:
                side = task.job.run_name.partition(",")[0]
                screen.verifying(f"{side} values", task.job.seed, tasks.index(task) + 1, len(tasks))
                return screen.observer_of(task.job.name, alone=executor.one_by_one)

            for task, end in run_tasks(left, executor, begin):
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
