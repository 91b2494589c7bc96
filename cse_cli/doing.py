"""Does runs one after the other, several at once, or each in several processes, and prints what came of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from cse_cli.data.requirements import fetch, requirements
from cse_cli.job import Job
from cse_cli.jobs import Asked
from cse_cli.launch.spread import spread
from cse_cli.launch.way import way
from cse_cli.progress import Screen
from cse_cli.render.dry_run import plan, print_plan, write_plans
from cse_cli.render.run import print_results, shown_metrics, write_json
from cse_cli.results import Result
from cse_cli.running import execute, prepare
from registry import hub
from registry.errors import CseError, MissingError

Made = TypeVar("Made")


def run_all(queue: Sequence[Job], asked: Asked, *, as_json: bool) -> int:
    """Run jobs and print their results, in order; return the exit code.

    Raises:
        CseError: The only job failed, or the processes asked for cannot be had.
    """
    chosen = way(queue, asked.device, asked.processes, asked.workers)
    with Screen() as screen:
        _provide(queue, screen)
    if chosen.places:
        results, code = _at_once(queue, chosen.places)
    else:
        results, code = _each(queue, execute if chosen.processes == 1 else partial(_together, chosen.processes))
    show(queue, results, as_json=as_json)
    return code


def _provide(queue: Sequence[Job], screen: Screen) -> None:
    """Download what jobs need, before the first one starts.

    Raises:
        MissingError: The only job cannot have it; one of several says so when its turn comes.
    """
    for job in {job.loaded.recipe.hash(): job for job in queue}.values():
        try:
            with hub.pinned(job.resume.commits if job.resume is not None else {}):
                fetch(requirements(job.loaded.recipe), screen.downloading)
        except MissingError:
            if len(queue) == 1:
                raise


def show(queue: Sequence[Job], results: Sequence[Result], *, as_json: bool) -> None:
    """Print results on stdout."""
    if as_json:
        write_json(results)
    elif results:
        recipes = [job.loaded.recipe for job in queue]
        parts = {recipe.hash(): {key: part.name for key, part in recipe.evaluators.items()} for recipe in recipes}
        print_results(results, {identity: shown_metrics(names) for identity, names in parts.items()})


def plan_all(queue: Sequence[Job], *, as_json: bool) -> int:
    """Build and read what jobs need, and print what they would do; return the exit code."""
    plans, code = _each(queue, lambda job, screen: plan(prepare(job, screen)))
    if as_json:
        write_plans(plans)
    else:
        for one in plans:
            print_plan(one)
    return code


def _together(processes: int, job: Job, _: Screen) -> Result:
    """Do a job in several processes; the first of them shows it."""
    from cse_cli.launch.together import together  # torch's agent: only where it is needed

    return together(job, processes)


def _at_once(queue: Sequence[Job], places: Sequence[str]) -> tuple[list[Result], int]:
    """Return the results of the jobs that came to their end, and the exit code."""
    with Screen() as screen:
        ended = spread(queue, places, screen.heard)
        failed = [(job, one) for job, one in zip(queue, ended, strict=True) if isinstance(one, CseError)]
        for job, error in failed:
            screen.failed(job.name, error)
    return [one for one in ended if isinstance(one, Result)], failed[-1][1].exit_code if failed else 0


def _each(queue: Sequence[Job], act: Callable[[Job, Screen], Made]) -> tuple[list[Made], int]:
    """Return what `act` makes of each job, and the exit code; one of several that fails does not stop the next."""
    made: list[Made] = []
    code = 0
    with Screen() as screen:
        for job in queue:
            try:
                made.append(act(job, screen))
            except CseError as error:
                if len(queue) == 1:
                    raise
                screen.failed(job.name, error)
                code = error.exit_code
    return made, code
