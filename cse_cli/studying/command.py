"""What `cse run STUDY` does: plan, run, report."""

from __future__ import annotations

from collections.abc import Sequence

from cse_cli import tracking
from cse_cli.completion import remember
from cse_cli.devices import choose, worker_devices
from cse_cli.jobs import Asked, seeds
from cse_cli.processes.leaving import end_with_parent
from cse_cli.render.study import StudyScreen, WorkerLines, print_outcomes, print_plans
from cse_cli.study.documents import write_outcomes, write_plans, write_report
from cse_cli.study.load import find_study
from cse_cli.study.plan import Failure, Outcome, Plan, outcome, plan
from cse_cli.study.tasks import Task
from cse_cli.studying.run import Share
from cse_cli.studying.workers import Ended, share
from cse_cli.tracking.sync import sync
from registry.errors import CseError


def run_studies(asked: Asked, *, dry_run: bool, as_json: bool) -> int:
    """Run studies one after the other; return the exit code.

    Raises:
        CseError: Studies that are not valid, or options that do not go with studies.
    """
    _check(asked)
    sync()  # what a run could not send to its store yet counts as finished only there
    given = [seed for seed in seeds(asked) if seed is not None]
    plans = [plan(name, given, asked.overrides, asked.unset) for name in asked.recipes]
    remember()
    if dry_run:
        (write_plans if as_json else print_plans)(plans)
        return 0
    choose(asked.device)
    if asked.worker:
        return _work(asked, plans)
    outcomes = [_run(asked, one) for one in plans]
    (write_outcomes if as_json else print_outcomes)(outcomes)
    return next((failure.exit_code for one in outcomes for failure in one.failures), 0)


def _check(asked: Asked) -> None:
    recipes = [name for name in asked.recipes if find_study(name) is None]
    if recipes:
        raise CseError(f"'{recipes[0]}' is not a study, but others here are", "run recipes and studies separately")
    if asked.processes is not None:
        raise CseError("--processes is for single runs", "a study has many: --workers 2 does two of them at once")
    if asked.resume is not None:
        raise CseError("--resume takes up one run", "a study goes on by itself: run it again without --resume")


def _run(asked: Asked, one: Plan) -> Outcome:
    with StudyScreen(one.asked) as screen:
        screen.planned(one)
        places = worker_devices(asked.device, asked.workers)
        try:
            ran, failures = _shared(asked, one, places, screen) if len(places) > 1 else _alone(one, places[0], screen)
        except (KeyboardInterrupt, tracking.Terminated):
            screen.left()
            raise
        return outcome(one, ran, failures)


def _alone(one: Plan, device: str, screen: StudyScreen) -> tuple[int, list[Failure]]:
    mine = Share(one.open, device, screen)
    mine.work()
    return mine.ran, mine.failures


def _work(asked: Asked, plans: Sequence[Plan]) -> int:
    """Do one worker's share and report it to the process that started it."""
    end_with_parent()
    ran, failures = 0, list[Failure]()
    for one in plans:
        with WorkerLines(one.asked) as screen:
            more, failed = _alone(one, asked.device, screen)
        ran, failures = ran + more, failures + failed
    write_report(ran, failures)
    return 0


def _shared(asked: Asked, one: Plan, places: Sequence[str], screen: StudyScreen) -> tuple[int, list[Failure]]:
    if not one.open:
        return 0, []
    ended = share(_arguments(asked, one), places, screen.heard)
    tasks = {task.key: task for task in one.tasks}
    failures = {failure.task.key: failure for worker in ended for failure in _failures(worker, tasks)}
    lost = [worker for worker in ended if worker.report is None]
    for worker in lost:
        screen.warned(f"worker {worker.name} ended with code {worker.code} before its work was done")
    done = sum(worker.report["ran"] for worker in ended if worker.report)
    if len(lost) == len(ended):
        raise CseError("no worker came to its end", f"their messages are above; `cse run {one.asked}` goes on")
    return done, list(failures.values())


def _failures(worker: Ended, tasks: dict[tuple[str, int], Task]) -> list[Failure]:
    told = worker.report["failures"] if worker.report else []
    return [Failure(tasks[one["hash"], one["seed"]], one["message"], one["exit_code"]) for one in told]


def _arguments(asked: Asked, one: Plan) -> list[str]:
    """Return the command line that means the same plan, whatever the study's file says meanwhile of its seeds."""
    chosen = ["--seed", str(one.seeds[0])] if len(one.seeds) == 1 else ["--seeds", ",".join(map(str, one.seeds))]
    overrides = [part for text in asked.overrides for part in ("--set", text)]
    removed = [part for key in asked.unset for part in ("--unset", key)]
    return [one.asked, *chosen, *overrides, *removed]
