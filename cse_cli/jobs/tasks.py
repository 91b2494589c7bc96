"""Execute the runs that are not finished, together with other processes that execute the same runs.

For example, the jobs of a Slurm array may start one command on a shared disk. Each process takes the next run that no
other process holds, and finally waits for the runs of the others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from time import sleep

from cse_cli.core.events import Observer
from cse_cli.core.identity import Difference, Plan
from cse_cli.core.results import Result
from cse_cli.data.identity import Known, identify_known
from cse_cli.jobs.executor import Executor
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
    """Run to execute. `known` is the identity of its experiment, as far as it is known on this machine."""

    job: Job
    known: Known
    accept_changed: bool = False

    @property
    def key(self) -> tuple[str, int]:
        """Experiment, as far as it is known, and seed: tasks with the same key are the same run."""
        return self.known.model_dump_json(), self.job.seed

    def same(self, recorded: Iterable[RecordedRun]) -> list[RecordedRun]:
        """Return the records of this run, newest first. With `--resume` that is the named run."""
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

    def unfinished(self, recorded: Iterable[RecordedRun]) -> list[RecordedRun]:
        """Return the unfinished records of this run, newest first. `--again` and `--resume` ignore them."""
        if self.job.again or self.job.resume is not None:
            return []
        return [run for run in self.same(recorded) if run.end not in ("finished", "pruned")]

    def result(self, recorded: Iterable[RecordedRun]) -> Result | None:
        """Return the result of the run, or None if it is not finished."""
        return next((run.result for run in self.same(recorded) if run.end == "finished" and run.result), None)

    def changes(self, recorded: Iterable[RecordedRun]) -> list[Difference]:
        """Return the differences to a finished run with the same settings and seed, or an empty list."""
        for run in recorded:
            identity = run.about.identity if run.is_result and run.about.seed == self.job.seed else None
            if identity is not None and identity.settings == self.known.settings:
                return self.known.differences(identity)
        return []


def make_tasks(jobs: Sequence[Job], *, accept_changed: bool) -> list[Task]:
    """Return one task per experiment and seed, with the plan of the seeds of its experiment."""
    tasks: dict[tuple[str, int], Task] = {}
    for job in jobs:
        task = Task(job, identify_known(job.loaded.recipe), accept_changed)
        tasks.setdefault(task.key, task)
    return planned(list(tasks.values()))


def finished(tasks: Iterable[Task], recorded: Sequence[RecordedRun]) -> dict[Task, Result]:
    """Return the results of finished tasks. With `--again` no task is finished."""
    found = ((task, task.result(recorded)) for task in tasks if not task.job.again)
    return {task: result for task, result in found if result is not None}


def planned(tasks: Sequence[Task]) -> list[Task]:
    """Return tasks with the plan of the seeds of their experiment. A single seed needs no plan.

    Each run records the plan before it starts. If a plan for the same seeds is already recorded, that one is used.
    """
    seeds = defaultdict[str, list[int]](list)
    for task in tasks:
        seeds[task.key[0]].append(task.job.seed)
    now = datetime.now(UTC)
    plans = {key: Plan(seeds=tuple(sorted(several)), made=now) for key, several in seeds.items() if len(several) > 1}
    return [replace(task, job=replace(task.job, plan=plans.get(task.key[0]))) for task in tasks]


def run_tasks(
    tasks: Sequence[Task],
    executor: Executor,
    begin: Callable[[Task], Observer],
    wait_for: Callable[[Task, RecordedRun], None] = lambda *_: None,
) -> Iterator[tuple[Task, Result | CseError]]:
    """Execute tasks and yield the result or error of each. No task is executed twice.

    An exception of a run that is not a `CseError` is raised.

    Args:
        tasks: Tasks in the order in which they start.
        executor: Executor of the runs.
        begin: Called when a run starts. Returns its observer.
        wait_for: Called once for each task of another process, when no other task is left.
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
            sleep(POLL_SECONDS if left else 0.0)  # other processes execute the rest
            continue
        executor.wait()
        for future in [future for future in running if future.done()]:
            task, end = running.pop(future), _end_of(future)
            if isinstance(end, BusyError) and task.job.resume is None:
                left.append(task)
            else:
                yield task, end


def _end_of(future: Future[Result]) -> Result | CseError:
    try:
        return future.result()
    except CseError as error:
        return error


def _holder(task: Task, recorded: Sequence[RecordedRun]) -> RecordedRun | None:
    """Return the record of the task if another process executes it, or None.

    A run that another process is about to resume has only a lock.
    """
    unfinished = task.unfinished(recorded)
    return next((run for run in unfinished if run.state == "RUNNING" or is_held(lock_of(run.run_id))), None)


def _resuming(task: Task, recorded: Sequence[RecordedRun]) -> Job:
    """Return the job of a task, which resumes the newest unfinished record."""
    found = next((run for run in task.unfinished(recorded) if not run.about.pulled), None)
    return task.job if found is None else replace(task.job, resume=found.run_id, may_restart=True)
