"""Execute the runs that are not finished, together with other processes that execute the same runs.

For example, the jobs of a Slurm array may start one command on a shared disk. Each process takes the next run that no
other process holds, and finally waits for the runs of the others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from time import sleep
from typing import TypeGuard

from cse_cli.core.identity import Difference
from cse_cli.core.results import Result
from cse_cli.data.identity import Known, identify_known
from cse_cli.jobs.engine import Engine
from cse_cli.jobs.job import Job
from cse_cli.runs.claim import Busy, BusyError, Claimed
from cse_cli.runs.events import Listener
from cse_cli.runs.index import RecordedRun, all_runs
from cse_cli.runs.record import delete_checkpoints
from registry.errors import CseError

POLL_SECONDS = 1.0
"""Time between two checks for the runs of other processes."""


@dataclass(frozen=True, eq=False)
class Task:
    """Run to execute.

    Args:
        known: Identity of its experiment, as far as it is known on this machine.
        seeds: Seeds of its experiment that the command starts together.
    """

    job: Job
    known: Known
    seeds: tuple[int, ...] = ()

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
            and not self.known.differences(run.about.identity)
        ]

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


def make_tasks(jobs: Sequence[Job]) -> list[Task]:
    """Return one task per experiment and seed, with the seeds of its experiment."""
    tasks: dict[tuple[str, int], Task] = {}
    for job in jobs:
        task = Task(job, identify_known(job.loaded.recipe))
        tasks.setdefault(task.key, task)
    return planned(list(tasks.values()))


def finished(tasks: Iterable[Task], recorded: Sequence[RecordedRun]) -> dict[Task, Result]:
    """Return the results of finished tasks. With `--again` no task is finished."""
    found = ((task, task.result(recorded)) for task in tasks if not task.job.again)
    return {task: result for task, result in found if result is not None}


def planned(tasks: Sequence[Task]) -> list[Task]:
    """Return tasks with the seeds of their experiment, which the claim of the first one records as a plan."""
    seeds = defaultdict[str, list[int]](list)
    for task in tasks:
        seeds[task.key[0]].append(task.job.seed)
    return [replace(task, seeds=tuple(seeds[task.key[0]])) for task in tasks]


def run_tasks(
    tasks: Sequence[Task],
    engine: Engine,
    begin: Callable[[Task, str], Listener],
    wait_for: Callable[[Task, RecordedRun], None] = lambda *_: None,
) -> Iterator[tuple[Task, Result | CseError]]:
    """Execute tasks and yield the result or error of each. No task is executed twice.

    An exception of a run that is not a `CseError` is raised.

    Args:
        tasks: Tasks in the order in which they start.
        engine: Engine that executes the runs.
        begin: Called when a run starts, with its ID. Returns the receiver of its events.
        wait_for: Called once for each task of another process, when no other task is left.
    """
    left, running, awaited = list(tasks), dict[str, tuple[Task, Listener]](), set[Task]()
    busy: dict[Task, RecordedRun] = {}
    while left or running:
        while left and len(running) < engine.slots:
            done = finished(left, all_runs())
            yield from done.items()
            left = [task for task in left if task not in done]
            busy, task = {}, None
            for task in left:
                try:
                    claim = task.job.claim(engine.device, seeds=task.seeds)
                except CseError as error:
                    yield task, error
                    break
                if isinstance(claim, Busy):
                    busy[task] = claim.run
                    continue
                if isinstance(claim, Claimed):
                    running[claim.run_id] = task, begin(task, claim.run_id)
                    engine.start(claim, running[claim.run_id][1])
                elif claim.run.result is not None:
                    yield task, claim.run.result
                break
            else:
                break
            left.remove(task)
        if not running:
            for task in [task for task in busy if task not in awaited]:
                awaited.add(task)
                wait_for(task, busy[task])
            sleep(POLL_SECONDS if left else 0.0)  # other processes execute the rest
        for run_id, end in engine.ended():
            task, listener = running.pop(run_id)
            if isinstance(end, BusyError) and task.job.resume is None:
                left.append(task)
            elif task.job.resume is None and lacks_checkpoint(end, run_id):
                listener("warning", {"text": f"run {run_id[:8]} starts again from its first step: {end.message}"})
                left.append(task)
            elif isinstance(end, Result | CseError):
                yield task, end
            else:
                raise end


def lacks_checkpoint(end: object, run_id: str) -> TypeGuard[CseError]:
    """Return whether a run ended because all its checkpoints are damaged. They are deleted: it can start again."""
    if not (isinstance(end, CseError) and end.code == "training.no_usable_checkpoint"):
        return False
    delete_checkpoints(run_id)
    return True
