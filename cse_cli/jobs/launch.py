"""Execute the recipes or studies of `cse run`, and print their results."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from time import sleep
from typing import TypeGuard

from cse_cli.analysis.draw import draw_figures
from cse_cli.core.console import Screen, print_error, to_json, write_json
from cse_cli.core.devices import choose, worker_devices
from cse_cli.core.distributed import LostRankError, announce_failure, is_first_refused, joined, run_on_rank0
from cse_cli.core.part_errors import part_errors
from cse_cli.core.paths import require_home
from cse_cli.core.processes import ProcessRank
from cse_cli.core.results import Result
from cse_cli.data.columns import Making
from cse_cli.data.identity import columns_read
from cse_cli.data.requirements import availabilities, download_size, fetch
from cse_cli.data.sources import open_text
from cse_cli.jobs.engine import Engine, release
from cse_cli.jobs.job import Job, Task, finished, make_tasks
from cse_cli.jobs.request import Placement, RunRequest, choose_placement, options_of, place_runs
from cse_cli.jobs.screen import (
    RunScreen,
    RunsScreen,
    describe_run,
    full_runs,
    next_steps,
    print_previews,
    print_results,
)
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
from cse_cli.listing.inventory import small_version
from cse_cli.recipe.load import LoadedRecipe
from cse_cli.recipe.requirements import requirements
from cse_cli.recipe.schema import Recipe
from cse_cli.recipe.study import find_study
from cse_cli.runs.claim import Busy, BusyError, Claimed, Done
from cse_cli.runs.events import Listener
from cse_cli.runs.index import RecordedRun, all_runs
from cse_cli.runs.record import RunRecord, delete_checkpoints, read_about
from cse_cli.training.build import prepare
from cse_cli.training.run import train, try_step
from registry.errors import CseError, DiskError, MissingError, TrackingError
from registry.resources import hub

POLL_SECONDS = 1.0
"""Time between two checks for the runs of other processes."""
_EXIT_SECONDS = 60.0
"""Time for torchrun to end a process that has nothing to print."""


def run_jobs(request: RunRequest) -> int:
    """Run the jobs of a request, or print what would run, and return the exit code."""
    jobs = request.jobs()
    placement = choose_placement(jobs, request)
    if request.dry_run:
        return _preview(jobs, placement, request.device, as_json=request.as_json)
    ends = run_all(jobs, placement, request)
    _show(jobs, [end for end in ends if isinstance(end, Result)], request)
    return next((end.exit_code for end in ends if isinstance(end, CseError)), 0)


def run_all(jobs: Sequence[Job], placement: Placement, request: RunRequest) -> list[Result | CseError]:
    """Download what jobs need, execute those that are not finished, and return the result or error of each.

    Jobs with the same experiment and seed are one run, with one result. The error of an only job is raised, and those
    of a full disk or a state directory that cannot be written.
    """
    require_home()
    tasks = make_tasks(jobs)
    with RunsScreen(several=len(tasks) > 1, command=request.command, quiet=request.quiet) as screen:
        _show_notes(jobs, screen)
        _download([job.loaded for job in jobs], screen, jobs[0].resume)
        ends: dict[Task, Result | CseError] = {**finished(tasks, all_runs())}
        for task, result in ends.items():
            if isinstance(result, Result):
                screen.skip(task.job.name, result)
        if ends and request.name is not None:
            screen.advise(["note: --name has no effect on finished runs"])
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
    _make_columns([task.job.loaded.recipe for task in labels], placement, screen)
    ends: dict[Task, Result | CseError] = {}
    begun: set[Task] = set()
    screen.expect(len(labels))
    with Engine(placement) as engine:
        alone = engine.slots == 1

        def begin(task: Task, run_id: str) -> Listener:
            begun.add(task)
            return screen.begin(labels[task], run_id, task.job.loaded.recipe.title, alone=alone)

        def wait_for(task: Task, run: RecordedRun) -> None:
            screen.wait_for(labels[task], run.about.short, run.host)

        tasks = list(labels) if alone else sorted(labels, key=_length, reverse=True)
        for task, end in run_tasks(tasks, engine, begin, wait_for):
            if isinstance(end, TrackingError | DiskError):
                raise end
            ends[task] = end
            screen.end(labels[task], end)
    for end in ends.values():
        if isinstance(end, Result):
            draw_figures(end)
    return ends, len(begun & {task for task, end in ends.items() if isinstance(end, Result)})


def run_tasks(
    tasks: Sequence[Task],
    engine: Engine,
    begin: Callable[[Task, str], Listener],
    wait_for: Callable[[Task, RecordedRun], None] = lambda *_: None,
) -> Iterator[tuple[Task, Result | CseError]]:
    """Execute tasks and yield the result or error of each. No task is executed twice.

    An exception of a run that is not a `CseError` is raised.

    Other processes may execute the same tasks. For example, the jobs of a Slurm array may start one command on a shared
    disk. Each process takes the next run that no other one holds, and finally waits for the runs of the others.

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


def _length(task: Task) -> float:
    """Return the approximate number of tokens of a run, which is infinite without a number of steps."""
    recipe = task.job.loaded.recipe
    steps = math.inf if recipe.train.steps is None else recipe.train.steps
    return steps * recipe.train.batch_size * recipe.data.max_length


def _download(recipes: Iterable[LoadedRecipe], screen: Screen, resume: str | None = None) -> None:
    """Download what recipes need, before the first run starts. A resumed run uses the commits of its first start.

    If one of several recipes lacks something, only its runs fail. If all do, this raises `MissingError`.
    """
    different = {tuple(requirements(loaded.recipe.wiring())): loaded for loaded in recipes}
    found = availabilities(loaded.recipe.wiring() for loaded in different.values())
    if size := download_size(found):
        names = ", ".join(one.requirement.name for one in found if one.state == "fetchable")
        screen.advise([f"download  {size}: {names}"])
    missing: list[MissingError] = []
    for required, loaded in different.items():
        try:
            with hub.pinned(read_about(resume).commits if resume is not None else {}):
                fetch(required, screen.downloading)
        except MissingError as error:
            small = small_version(loaded.name)
            action = error.next_action if small is None else f"{error.next_action}\n  → without them: cse run {small}"
            missing.append(MissingError(error.message, action, code=error.code))
    if missing and len(missing) == len(different):
        raise missing[0]


def _make_columns(recipes: Iterable[Recipe], placement: Placement, screen: Screen) -> None:
    """Make the columns that recipes declare, with all devices, before the first run starts.

    On a cluster, each run makes its own. If the columns of one of several recipes cannot be made, only its runs fail.
    """
    if placement.cluster is not None:
        return
    making = Making(worker_devices(placement.device, placement.workers), screen.preparing, screen.warned)
    with_columns = [recipe for recipe in recipes if recipe.data.columns and recipe.train.steps != 0]
    different = {to_json(recipe.resolved()["data"]): recipe for recipe in with_columns}.values()
    failed: list[CseError] = []
    for recipe in different:
        try:
            open_text(recipe.data, columns_read(recipe), making)
        except CseError as error:
            failed.append(error)
    if failed and len(failed) == len(different):
        raise failed[0]


def _show_notes(jobs: Sequence[Job], screen: Screen) -> None:
    screen.advise([f"note: {note}" for note in dict.fromkeys(note for job in jobs for note in job.loaded.notes)])


def _preview(jobs: Sequence[Job], placement: Placement, device: str, *, as_json: bool) -> int:
    """Build and read everything that jobs need, print what would run and where, and return the exit code."""
    previews, code = [], 0
    with RunScreen() as screen:
        _show_notes(jobs, screen)
        for job in jobs:
            try:
                with part_errors():
                    compute = choose(device, job.loaded.recipe.train.precision)
                    prepared = prepare(job.loaded.recipe, job.seed, compute, RunRecord("unrecorded", None, screen.show))
                previews.append({**describe_run(job, prepared), "losses": try_step(prepared)})
            except CseError as error:
                if len(jobs) == 1:
                    raise
                screen.failed(job.name, error)
                code = error.exit_code
    if as_json:
        write_json({"plans": previews, "place": placement.describe()})
    else:
        print_previews(previews, placement.describe())
    return code


def _show(jobs: Sequence[Job], results: Sequence[Result], request: RunRequest) -> None:
    """Print results on stdout and the next commands on stderr."""
    if request.as_json:
        write_json({"results": [result.model_dump(mode="json") for result in results]})
    elif results:
        print_results(results)
        settings = request.settings() if request.resume is None else options_of(jobs[0].loaded.changes)
        advice = full_runs(results) if request.fast_dev_run else next_steps(results, settings)
        Screen(quiet=request.quiet).advise(advice)


# Under torchrun: its processes share each run.


def run_as_rank(request: RunRequest, here: ProcessRank) -> int:
    """Run the jobs of a request together with the other processes, one by one, and return the exit code.

    The first failure ends all jobs, because the processes may no longer agree.
    """
    try:
        if request.dry_run:
            if here.rank > 0:
                return 0
            return _preview(request.jobs(), Placement(), request.device, as_json=request.as_json)
        with joined(here, request.device):
            # The recipes of rank 0 count, even if those of another machine differ.
            tasks = run_on_rank0(lambda: _checked_tasks(request))
            with RunScreen(quiet=request.quiet) as screen:
                results = [_run_together(task, request, screen) if done is None else done for task, done in tasks]
    except CseError as error:
        if not is_first_refused(here, request.device):
            sleep(_EXIT_SECONDS)  # the first process prints the error, and torchrun then ends this one
        # The first process to fail prints its error, or rank 0 if that one is on another machine.
        elif (here.rank == 0 and not error.shown) if isinstance(error, LostRankError) else announce_failure(error):
            print_error(error)
        return error.exit_code
    if here.rank == 0:
        _show([task.job for task, _ in tasks], results, request)
    return 0


def _run_together(task: Task, request: RunRequest, screen: RunScreen) -> Result:
    """Claim a run on rank 0, and execute it on every rank."""
    held: list[Claimed] = []

    def take() -> str | Result:
        claim = task.job.claim(request.device, screen.downloading, task.seeds)
        if isinstance(claim, Busy):
            raise BusyError(claim.run)
        if isinstance(claim, Done):
            assert claim.run.result is not None
            return claim.run.result
        held.append(claim)
        return claim.run_id

    taken = run_on_rank0(take)
    if isinstance(taken, Result):
        return taken
    try:
        return train(taken, request.device, screen.listen(taken, task.job.loaded.recipe.title) if held else None)
    finally:
        for claim in held:
            release(claim)


def _checked_tasks(request: RunRequest) -> list[tuple[Task, Result | None]]:
    """Return the tasks of a request, each with its result if it is finished."""
    for name in request.recipes:
        if find_study(name) is not None:
            raise CseError(
                f"'{name}' is a study, which cannot share runs among the processes of torchrun",
                "run it without torchrun, with --workers for parallel runs",
                code="jobs.study_under_torchrun",
            )
    jobs = request.jobs()
    choose_placement(jobs, request)
    tasks = make_tasks(jobs)
    done = finished((task for task in tasks if not task.known.unknown), all_runs())
    return [(task, done.get(task)) for task in tasks]


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
        places = [place_runs(plan.left, request).describe() for plan in plans]
        (write_study_plans if request.as_json else print_study_plans)(plans, places)
        return 0
    require_home()
    if request.cluster is None:
        choose(request.device)
    outcomes = []
    for plan in plans:
        if plan.tuning is None:
            outcomes.append(run_study(plan, request))
        else:  # the trials first, and then the rows with the settings that they choose
            trials = run_study(plan.tuning.plan, request, "trial")
            rows = plan_study(plan.name, request, undecided=False)
            outcomes.append(replace(run_study(rows, request), trials=trials))
    if request.as_json:
        write_outcomes(outcomes)
    else:
        print_outcomes(outcomes, quiet=request.quiet or request.fast_dev_run)
    failures = [outcome.failures or (outcome.trials and outcome.trials.failures) for outcome in outcomes]
    return int(any(failures))


def run_study(plan: StudyPlan, request: RunRequest, cells: str = "cell") -> StudyOutcome:
    """Execute the runs of a plan that are not finished, and return all results and failures."""
    runs = {run.task: run for run in plan.open}
    with RunsScreen(several=True, command=request.command, quiet=request.quiet) as screen:
        for line in plan_lines(plan, cells):
            screen.write(line)
        _download((task.job.loaded for task in runs), screen)
        labels = {task: run.label for task, run in runs.items()}
        placement = place_runs(len(runs), request)
        ends, ran = _execute(labels, placement, screen)
    failures = {runs[task]: end for task, end in ends.items() if isinstance(end, CseError)}
    return StudyOutcome(plan, plan.results(), ran, failures)
