"""`cse run`: recipes and seeds through an executor; one run under torchrun; and studies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from time import monotonic, sleep

import torch.distributed as dist

from cse_cli.core.console import Observer, RunLines, Screen, SilentObserver, print_error, to_json
from cse_cli.core.devices import choose
from cse_cli.core.distributed import LostRankError, announce_failure, is_first_refused, joined
from cse_cli.core.paths import require_home
from cse_cli.core.processes import ProcessRank
from cse_cli.core.results import Result
from cse_cli.data.identity import identify_known
from cse_cli.data.requirements import fetch
from cse_cli.jobs.placement import Placement, choose_placement, place_runs
from cse_cli.jobs.request import RunRequest
from cse_cli.jobs.study import StudyOutcome, StudyPlan, plan_study, run_study
from cse_cli.jobs.study_view import StudyScreen, print_outcomes, print_study_plans, write_outcomes, write_study_plans
from cse_cli.jobs.tasks import Task, finished, planned, run_tasks
from cse_cli.jobs.view import (
    describe_run,
    finished_line,
    next_steps,
    print_plans,
    print_results,
    shown_metrics,
    summary_line,
    waiting_line,
    write_plans,
    write_results,
)
from cse_cli.recipe.requirements import requirements
from cse_cli.recipe.schema import Recipe
from cse_cli.recipe.study import find_study
from cse_cli.recipe.unusual import unusual, unusual_study
from cse_cli.runs.index import RecordedRun, all_runs
from cse_cli.runs.record import read_about
from cse_cli.runs.signals import Terminated
from cse_cli.training.build import Job
from cse_cli.training.run import execute, prepare
from registry import hub
from registry.errors import CseError, MissingError

_TOLD_SECONDS = 60.0
"""How long a rank that has nothing to say waits for torchrun to end it."""


def run_jobs(request: RunRequest) -> int:
    """Run the jobs of a request, or print what they would do; print results in order and return the exit code.

    Raises:
        CseError: If the request is not valid, its only job failed, or it is not possible.
    """
    jobs = request.jobs()
    placement = choose_placement(jobs, request)
    if request.dry_run:
        return _plan_jobs(jobs, placement, as_json=request.as_json)
    ends = run_all(jobs, placement, quiet=request.quiet, accept_changed=request.accept_changed)
    _show(jobs, [end for end in ends if isinstance(end, Result)], request)
    return next((end.exit_code for end in ends if isinstance(end, CseError)), 0)


def run_all(
    jobs: Sequence[Job], placement: Placement, *, quiet: bool = False, accept_changed: bool = False
) -> list[Result | CseError]:
    """Download what jobs need, do those that are not finished, and return the end of each in the order of the jobs.

    Jobs with the same experiment and seed are one run, which has one end.

    Raises:
        CseError: If the only job failed.
        TrackingError: If the state directory cannot be written.
    """
    require_home()
    with Screen(quiet=quiet) as screen:
        for warning in dict.fromkeys(line for job in jobs for line in unusual(job.loaded.recipe)):
            screen.warned(warning)
        _download([job.loaded.recipe for job in jobs], screen, jobs[0].resume)
    tasks = _tasks(jobs, accept_changed=accept_changed)
    done = finished(tasks, all_runs())
    ends: dict[Task, Result | CseError] = {**done}
    with Screen(quiet=quiet) as screen:
        for task, result in done.items():
            screen.write(finished_line(task.job.name, result))
        if len(ends) < len(tasks):
            _run_left(tasks, ends, placement, screen)
    return [ends[task] for task in tasks]


def _run_left(tasks: Sequence[Task], ends: dict[Task, Result | CseError], placement: Placement, screen: Screen) -> None:
    """Do the tasks that have no end yet, and add their ends."""
    with placement.open() as executor:
        began, alone, count = monotonic(), executor.one_by_one, len(ends)

        def begin(task: Task) -> Observer:
            return screen if alone else RunLines(task.job.name, screen.console)

        def wait_for(task: Task, run: RecordedRun) -> None:
            screen.write(waiting_line(task.job.name, run))

        for task, end in run_tasks([task for task in tasks if task not in ends], executor, begin, wait_for):
            ends[task] = end
            if isinstance(end, CseError):
                if len(tasks) == 1:
                    raise end
                screen.failed(f"run {len(ends)} of {len(tasks)}: {task.job.name}", end)
            elif len(tasks) > 1:
                seconds_left = (monotonic() - began) / (len(ends) - count) * (len(tasks) - len(ends))
                screen.ran(summary_line(end, len(ends), len(tasks), seconds_left))


def _tasks(jobs: Sequence[Job], *, accept_changed: bool) -> list[Task]:
    """Return jobs as tasks, each different one once, those of one experiment with the plan of their seeds."""
    tasks: dict[tuple[str, int], Task] = {}
    for job in jobs:
        task = Task(job, identify_known(job.loaded.recipe), accept_changed)
        tasks.setdefault(task.key, task)
    by_experiment = defaultdict[str, list[Task]](list)
    for task in tasks.values():
        by_experiment[task.key[0]].append(task)
    tasks |= {task.key: task for same in by_experiment.values() for task in planned(same)}
    return list(tasks.values())


def _download(recipes: Iterable[Recipe], screen: Screen, resume: str | None = None) -> None:
    """Download what recipes need, before the first run starts.

    Args:
        recipes: Of all runs.
        screen: Shows the bytes.
        resume: ID of the run to resume, which uses the commits that it began with.

    Raises:
        MissingError: None of them can have it all; what one of several lacks, its run says when its turn comes.
    """
    different = {to_json(recipe.resolved()): recipe for recipe in recipes}.values()
    missing: list[MissingError] = []
    for recipe in different:
        try:
            with hub.pinned(read_about(resume).commits if resume is not None else {}):
                fetch(requirements(recipe), screen.downloading)
        except MissingError as error:
            missing.append(error)
    if missing and len(missing) == len(different):
        raise missing[0]


def _plan_jobs(jobs: Sequence[Job], placement: Placement, *, as_json: bool) -> int:
    """Build and read what jobs need, and print what they would do and where; return the exit code."""
    plans, code = [], 0
    with Screen() as screen:
        for job in jobs:
            try:
                plans.append(describe_run(prepare(job, screen)))
            except CseError as error:
                if len(jobs) == 1:
                    raise
                screen.failed(job.name, error)
                code = error.exit_code
    if as_json:
        write_plans(plans, placement.describe())
    else:
        print_plans(plans, placement.describe())
    return code


def _show(jobs: Sequence[Job], results: Sequence[Result], request: RunRequest) -> None:
    """Print results on stdout, and on stderr what to do with them."""
    if request.as_json:
        write_results(results)
    elif results:
        recipes = [job.loaded.recipe for job in jobs]
        parts = {recipe.hash(): {key: part.name for key, part in recipe.evaluators.items()} for recipe in recipes}
        print_results(results, {identity: shown_metrics(names) for identity, names in parts.items()})
        Screen(quiet=request.quiet).advise(next_steps(results, request.settings()))


# Under torchrun: the processes that it has started do each run together.


def run_as_rank(request: RunRequest, here: ProcessRank) -> int:
    """Run the jobs of a request together with the other processes; return the exit code.

    One run follows the other. None follows one that failed: the processes may not agree any more.
    """
    try:
        if request.dry_run:  # nothing to share
            return _plan_jobs(request.jobs(), Placement(), as_json=request.as_json) if here.rank == 0 else 0
        with joined(here, request.device):
            planned_jobs = _jobs_of_rank_0(request, here)
            with Screen(quiet=request.quiet) as screen:
                observer = screen if here.rank == 0 else SilentObserver()
                results = [execute(job, observer) if done is None else done for job, done in planned_jobs]
    except CseError as error:
        if not is_first_refused(here, request.device):
            sleep(_TOLD_SECONDS)  # the first one says why; when it has ended, torchrun ends this one
        elif _shows(error, here):
            print_error(error)
        return error.exit_code
    if here.rank == 0:
        _show([job for job, _ in planned_jobs], results, request)
    return 0


PlannedJobs = Sequence[tuple[Job, Result | None]]
"""Jobs, each with its result if it is finished."""


def _jobs_of_rank_0(request: RunRequest, here: ProcessRank) -> PlannedJobs:
    """Return the jobs as rank 0 reads them: its recipes hold for all, also where another machine's differ."""
    box: list[PlannedJobs | CseError] = [[]]
    if here.rank == 0:
        try:
            box = [_checked_jobs(request)]
        except CseError as error:
            box = [error]
    dist.broadcast_object_list(box)
    if isinstance(box[0], CseError):
        raise box[0]
    return box[0]


def _checked_jobs(request: RunRequest) -> PlannedJobs:
    for name in request.recipes:
        if find_study(name) is not None:
            raise CseError(
                f"'{name}' is a study, and torchrun has started processes to share each run",
                "start it without torchrun: it does several runs at once by itself",
            )
    jobs = request.jobs()
    choose_placement(jobs, request)
    tasks = _tasks(jobs, accept_changed=request.accept_changed)
    done = finished((task for task in tasks if not task.known.unknown), all_runs())
    return [(task.job, done.get(task)) for task in tasks]


def _shows(error: CseError, here: ProcessRank) -> bool:
    """Return whether this process shows an error: the first to have it, or rank 0 where no other shows it here."""
    if isinstance(error, LostRankError):
        return here.rank == 0 and not error.shown
    return announce_failure(error)


# Studies.


def run_studies(request: RunRequest) -> int:
    """Run studies one after the other, or print what would be run; return the exit code.

    Raises:
        CseError: Studies that are not valid, or options that do not go with studies.
    """
    recipes = [name for name in request.recipes if find_study(name) is None]
    if recipes:
        raise CseError(f"'{recipes[0]}' is not a study, but others here are", "run recipes and studies separately")
    if request.processes is not None:
        raise CseError("--processes is for single runs", "a study has many: --workers 2 does two of them at once")
    if request.resume is not None:
        raise CseError("--resume takes one run", "a study resumes automatically: run it again without --resume")
    plans = [plan_study(name, request) for name in request.recipes]
    if request.dry_run:
        places = [place_runs(len(plan.open), request).describe() for plan in plans]
        (write_study_plans if request.as_json else print_study_plans)(plans, places)
        return 0
    require_home()
    if request.on is None:  # else the devices are on other machines
        choose(request.device)
    outcomes = [_run_study(plan, request) for plan in plans]
    if request.as_json:
        write_outcomes(outcomes)
    else:
        print_outcomes(outcomes, quiet=request.quiet)
    return int(any(outcome.failures for outcome in outcomes))


def _run_study(plan: StudyPlan, request: RunRequest) -> StudyOutcome:
    with StudyScreen(plan.name, quiet=request.quiet) as screen:
        screen.planned(plan)
        for warning in unusual_study(plan.cells, len(plan.seeds)):
            screen.warned(warning)
        _download((run.task.job.loaded.recipe for run in plan.open), screen)
        try:
            with place_runs(len(plan.open), request).open() as executor:
                return run_study(plan, executor, screen)
        except (KeyboardInterrupt, Terminated):
            screen.left()
            raise
