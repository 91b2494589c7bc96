"""Execute the recipes or studies of `cse run`, and print their results."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from time import sleep

from cse_cli.core.console import Observer, Screen, SilentObserver, print_error, to_json, write_json
from cse_cli.core.devices import choose
from cse_cli.core.distributed import LostRankError, announce_failure, is_first_refused, joined, run_on_rank0
from cse_cli.core.paths import require_home
from cse_cli.core.processes import ProcessRank
from cse_cli.core.results import Result
from cse_cli.data.identity import identify_known
from cse_cli.data.requirements import fetch
from cse_cli.jobs.placement import Placement, choose_placement, place_runs
from cse_cli.jobs.request import RunRequest
from cse_cli.jobs.screen import RunsScreen
from cse_cli.jobs.study import (
    StudyOutcome,
    StudyPlan,
    plan_lines,
    plan_study,
    print_outcomes,
    print_study_plans,
    write_outcomes,
    write_study_plans,
)
from cse_cli.jobs.tasks import Task, finished, planned, run_tasks
from cse_cli.jobs.view import (
    describe_run,
    next_steps,
    print_plans,
    print_results,
    shown_metrics,
)
from cse_cli.recipe.lint import lint, lint_study
from cse_cli.recipe.requirements import requirements
from cse_cli.recipe.schema import Recipe
from cse_cli.recipe.study import find_study
from cse_cli.runs.index import all_runs
from cse_cli.runs.record import read_about
from cse_cli.training.build import Job
from cse_cli.training.run import execute, prepare
from registry.errors import CseError, DiskError, MissingError, TrackingError
from registry.resources import hub

_EXIT_SECONDS = 60.0
"""Time for torchrun to end a process that has nothing to print."""


def run_jobs(request: RunRequest) -> int:
    """Run the jobs of a request, or print what would run, and return the exit code."""
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
    """Download what jobs need, execute those that are not finished, and return the result or error of each.

    Jobs with the same experiment and seed are one run, with one result. The error of an only job is raised, and those
    of a full disk or a state directory that cannot be written.
    """
    require_home()
    tasks = _tasks(jobs, accept_changed=accept_changed)
    with RunsScreen(several=len(tasks) > 1, quiet=quiet) as screen:
        for warning in dict.fromkeys(line for job in jobs for line in lint(job.loaded.recipe)):
            screen.warned(warning)
        _download([job.loaded.recipe for job in jobs], screen, jobs[0].resume)
        ends: dict[Task, Result | CseError] = {**finished(tasks, all_runs())}
        for task, result in ends.items():
            if isinstance(result, Result):
                screen.skip(task.job.name, result)
        left = {task: task.job.name for task in tasks if task not in ends}
        ends |= _execute(left, placement, screen)[0]
    if len(tasks) == 1 and isinstance(error := ends[tasks[0]], CseError):
        raise error
    return [ends[task] for task in tasks]


def _execute(
    labels: Mapping[Task, str], placement: Placement, screen: RunsScreen
) -> tuple[dict[Task, Result | CseError], int]:
    """Execute tasks, and return the result or error of each, and the number of runs that this process executed.

    A run that fails does not stop the others. Parallel runs begin with the longest, so that the last ones end at about
    the same time.
    """
    if not labels:
        return {}, 0
    ends: dict[Task, Result | CseError] = {}
    begun: set[Task] = set()
    screen.expect(len(labels))
    with placement.open() as executor:

        def begin(task: Task) -> Observer:
            begun.add(task)
            return screen.begin(labels[task], alone=executor.one_by_one)

        tasks = list(labels) if executor.one_by_one else sorted(labels, key=_length, reverse=True)
        for task, end in run_tasks(tasks, executor, begin, lambda task, run: screen.wait_for(labels[task], run)):
            if isinstance(end, TrackingError | DiskError):
                raise end
            ends[task] = end
            screen.end(labels[task], end)
    return ends, len(begun & {task for task, end in ends.items() if isinstance(end, Result)})


def _length(task: Task) -> float:
    """Return the approximate number of tokens of a run, which is infinite without a number of steps."""
    recipe = task.job.loaded.recipe
    steps = math.inf if recipe.train.steps is None else recipe.train.steps
    return steps * recipe.train.batch_size * recipe.data.max_length


def _tasks(jobs: Sequence[Job], *, accept_changed: bool) -> list[Task]:
    """Return one task per experiment and seed, with the plan of the seeds of its experiment."""
    tasks: dict[tuple[str, int], Task] = {}
    for job in jobs:
        task = Task(job, identify_known(job.loaded.recipe), accept_changed)
        tasks.setdefault(task.key, task)
    return planned(list(tasks.values()))


def _download(recipes: Iterable[Recipe], screen: Screen, resume: str | None = None) -> None:
    """Download what recipes need, before the first run starts. A resumed run uses the commits of its first start.

    If one of several recipes lacks something, only its runs fail. If all do, this raises `MissingError`.
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
    """Build and read everything that jobs need, print what would run and where, and return the exit code."""
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
        write_json({"plans": plans, "place": placement.describe()})
    else:
        print_plans(plans, placement.describe())
    return code


def _show(jobs: Sequence[Job], results: Sequence[Result], request: RunRequest) -> None:
    """Print results on stdout and the next commands on stderr."""
    if request.as_json:
        write_json({"results": [result.model_dump(mode="json") for result in results]})
    elif results:
        recipes = [job.loaded.recipe for job in jobs]
        print_results(results, {recipe.hash(): shown_metrics(recipe) for recipe in recipes})
        Screen(quiet=request.quiet).advise(next_steps(results, request.settings()))


# Under torchrun: its processes share each run.


def run_as_rank(request: RunRequest, here: ProcessRank) -> int:
    """Run the jobs of a request together with the other processes, one by one, and return the exit code.

    The first failure ends all jobs, because the processes may no longer agree.
    """
    try:
        if request.dry_run:
            return _plan_jobs(request.jobs(), Placement(), as_json=request.as_json) if here.rank == 0 else 0
        with joined(here, request.device):
            # The recipes of rank 0 count, even if those of another machine differ.
            planned_jobs = run_on_rank0(lambda: _checked_jobs(request))
            with Screen(quiet=request.quiet) as screen:
                observer = screen if here.rank == 0 else SilentObserver()
                results = [execute(job, observer) if done is None else done for job, done in planned_jobs]
    except CseError as error:
        if not is_first_refused(here, request.device):
            sleep(_EXIT_SECONDS)  # the first process prints the error, and torchrun then ends this one
        elif _prints(error, here):
            print_error(error)
        return error.exit_code
    if here.rank == 0:
        _show([job for job, _ in planned_jobs], results, request)
    return 0


def _checked_jobs(request: RunRequest) -> list[tuple[Job, Result | None]]:
    """Return the jobs of a request, each with its result if it is finished."""
    for name in request.recipes:
        if find_study(name) is not None:
            raise CseError(
                f"'{name}' is a study, which cannot share runs among the processes of torchrun",
                "run it without torchrun, with --workers for parallel runs",
                code="jobs.study_under_torchrun",
            )
    jobs = request.jobs()
    choose_placement(jobs, request)
    tasks = _tasks(jobs, accept_changed=request.accept_changed)
    done = finished((task for task in tasks if not task.known.unknown), all_runs())
    return [(task.job, done.get(task)) for task in tasks]


def _prints(error: CseError, here: ProcessRank) -> bool:
    """Return whether this process prints an error: the first to fail, or rank 0 if that one is on another machine."""
    if isinstance(error, LostRankError):
        return here.rank == 0 and not error.shown
    return announce_failure(error)


# Studies.


def run_studies(request: RunRequest) -> int:
    """Run studies one after the other, or print what would run, and return the exit code."""
    recipes = [name for name in request.recipes if find_study(name) is None]
    if recipes:
        raise CseError(
            f"'{recipes[0]}' is not a study and cannot be combined with studies",
            f"run it separately: cse run {recipes[0]}",
            code="jobs.recipes_and_studies",
        )
    if request.processes is not None:
        raise CseError(
            "--processes cannot be combined with a study",
            "use --workers 2 for two runs in parallel",
            code="jobs.option_of_single_runs",
        )
    if request.resume is not None:
        raise CseError(
            "--resume cannot be combined with a study",
            "omit --resume: a study resumes its runs automatically",
            code="jobs.option_of_single_runs",
        )
    plans = [plan_study(name, request) for name in request.recipes]
    if request.dry_run:
        places = [place_runs(len(plan.open), request).describe() for plan in plans]
        (write_study_plans if request.as_json else print_study_plans)(plans, places)
        return 0
    require_home()
    if request.cluster is None:
        choose(request.device)
    outcomes = [_run_study(plan, request) for plan in plans]
    if request.as_json:
        write_outcomes(outcomes)
    else:
        print_outcomes(outcomes, quiet=request.quiet)
    return int(any(outcome.failures for outcome in outcomes))


def _run_study(plan: StudyPlan, request: RunRequest) -> StudyOutcome:
    runs = {run.task: run for run in plan.open}
    with RunsScreen(several=True, quiet=request.quiet) as screen:
        for line in plan_lines(plan):
            screen.write(line)
        for warning in lint_study(plan.cells, len(plan.seeds)):
            screen.warned(warning)
        _download((task.job.loaded.recipe for task in runs), screen)
        labels = {task: run.label for task, run in runs.items()}
        ends, ran = _execute(labels, place_runs(len(runs), request), screen)
    failures = {runs[task]: end for task, end in ends.items() if isinstance(end, CseError)}
    return StudyOutcome(plan, plan.results(), ran, failures)
