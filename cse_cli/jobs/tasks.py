"""Runs to be done: which of them are finished, which another process does, and doing the rest.

Several processes may do the same runs, such as the jobs of a Slurm array that start one command on a shared disk. Each
process takes the next run that no other holds, and at the end waits for the runs of the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from cse_cli.core.console import Observer
from cse_cli.core.identity import Difference, Plan
from cse_cli.core.results import Result
from cse_cli.data.identity import Known
from cse_cli.jobs.executor import Executor, outcome
from cse_cli.runs.claim import BusyError
from cse_cli.runs.index import RecordedRun, all_runs
from cse_cli.runs.lock import is_held
from cse_cli.runs.record import lock_of
from cse_cli.training.build import Job
from registry.errors import CseError

POLL_SECONDS = 1.0
"""Time between two checks for the runs of other processes."""


@dataclass(frozen=True, eq=False)
class Task:
    """A run to be done.

    Args:
        job: What is to be run.
        known: Identity of its experiment, as far as it is known on this machine.
        accept_changed: Whether a run that other code made counts as this one.
    """

    job: Job
    known: Known
    accept_changed: bool = False

    @property
    def key(self) -> tuple[str, int]:
        """Experiment, as far as it is known, and seed: tasks with the same key are the same run."""
        return self.known.model_dump_json(), self.job.seed

    def same(self, recorded: Iterable[RecordedRun]) -> list[RecordedRun]:
        """Return the recorded runs that are this one, newest first. With `--resume` that is the named run."""
        if self.job.resume is not None:
            return [run for run in recorded if run.run_id == self.job.resume]
        return [
            run
            for run in recorded
            if run.about.identity is not None
            and run.about.is_result
            and run.about.seed == self.job.seed
            and self.known.matches(run.about.identity, code=not self.accept_changed)
        ]

    def result(self, recorded: Iterable[RecordedRun]) -> Result | None:
        """Return the result of the run, or None if it is not finished."""
        return next((run.result for run in self.same(recorded) if run.end == "finished" and run.result), None)

    def changes(self, recorded: Iterable[RecordedRun]) -> list[Difference]:
        """Return how a finished run with the same settings and seed differs, if there is only such a run."""
        return next(
            (
                self.known.differences(run.about.identity)
                for run in recorded
                if run.is_result and run.about.identity is not None
                and run.about.seed == self.job.seed and run.about.identity.settings == self.known.settings
            ),
            [],
        )  # fmt: skip


def finished(tasks: Iterable[Task], recorded: Sequence[RecordedRun]) -> dict[Task, Result]:
    """Return the tasks that are finished, with their results. With `--again` no task is."""
    found = ((task, task.result(recorded)) for task in tasks if not task.job.again)
    return {task: result for task, result in found if result is not None}


def planned(tasks: Sequence[Task]) -> list[Task]:
    """Return tasks of one experiment, one per seed, with the plan of their seeds. A single seed needs no plan.

    The plan is recorded with each run before the run starts. If one is recorded for the same seeds, that one is kept.
    """
    seeds = tuple(sorted(task.job.seed for task in tasks))
    if len(seeds) < 2:
        return list(tasks)
    plan = Plan(seeds=seeds, made=datetime.now(UTC))
    return [replace(task, job=replace(task.job, plan=plan)) for task in tasks]


def run_tasks(
    tasks: Sequence[Task],
    executor: Executor,
    begin: Callable[[Task], Observer],
    wait_for: Callable[[Task, RecordedRun], None] = lambda *_: None,
) -> Iterator[tuple[Task, Result | CseError]]:
    """Do tasks, each when the executor has a free slot, and yield the end of each. No task is done twice.

    Args:
        tasks: Tasks in the order in which they start.
        executor: Executor of the runs.
        begin: Called when a run starts. It returns the run's observer.
        wait_for: Called once for each task that another process does while this one has nothing left to do.

    Raises:
        Exception: If a run ended with an exception that is not a `CseError`.
    """
    left, running, awaited = list(tasks), dict[Future[Result], Task](), set[Task]()
    held: dict[Task, RecordedRun] = {}
    while left or running:
        while left and len(running) < executor.slots:
            recorded = all_runs()
            done = finished(left, recorded)
            yield from done.items()
            left = [task for task in left if task not in done]
            held = {task: run for task in left if (run := _holder(task, recorded)) is not None}
            task = next((task for task in left if task not in held), None)
            if task is None:
                break
            left.remove(task)
            running[executor.submit(_resuming(task, recorded), begin(task))] = task
        if not running:
            for task in [task for task in held if task not in awaited]:
                awaited.add(task)
                wait_for(task, held[task])
            time.sleep(POLL_SECONDS if left else 0.0)  # other processes do the rest
            continue
        executor.wait()
        for future in [future for future in running if future.done()]:
            task, end = running.pop(future), outcome(future)
            if isinstance(end, BusyError) and task.job.resume is None:
                left.append(task)
            else:
                yield task, end


def _holder(task: Task, recorded: Sequence[RecordedRun]) -> RecordedRun | None:
    """Return the run in which another process does the task, or None. With `--resume` such a run is an error later.

    A run that another process is about to resume is recognized by its lock.
    """
    if task.job.again or task.job.resume is not None:
        return None
    same = (run for run in task.same(recorded) if run.end not in ("finished", "pruned"))
    return next((run for run in same if run.state == "RUNNING" or is_held(lock_of(run.run_id))), None)


def _resuming(task: Task, recorded: Sequence[RecordedRun]) -> Job:
    """Return the job of a task, which resumes the newest unfinished run."""
    if task.job.again or task.job.resume is not None:
        return task.job
    unfinished = (run for run in task.same(recorded) if run.end not in ("finished", "pruned") and not run.about.pulled)
    found = next(unfinished, None)
    return task.job if found is None else replace(task.job, resume=found.run_id, may_restart=True)
