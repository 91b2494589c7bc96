"""Execute the recipes or studies of `cse run`, and print their results."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
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
from cse_cli.jobs.job import Job, distinct, finished
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
from cse_cli.runs.claim import BusyError, Claimed
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
    different = distinct(jobs)
    with RunsScreen(several=len(different) > 1, command=request.command, quiet=request.quiet) as screen:
        screen.advise(_notes(jobs))
        _download([job.loaded for job in jobs], screen, jobs[0].resume)
        ends: dict[Job, Result | CseError] = {**finished(different, all_runs())}
        for job, result in ends.items():
            if isinstance(result, Result):
                screen.skip(job.label, result)
        if ends and request.name is not None:
            screen.advise(["note: --name has no effect on finished runs"])
        ends |= _execute([job for job in different if job not in ends], placement, screen)[0]
    if len(different) == 1 and isinstance(error := ends[different[0]], CseError):
        raise error
    return [ends[job] for job in different]


def _execute(jobs: Sequence[Job], placement: Placement, screen: RunsScreen) -> tuple[dict[Job, Result | CseError], int]:
    """Execute jobs, and return the result or error of each, and the number of runs that this process executed.

    A run that fails does not stop the others. Parallel runs begin with the longest, so that the last ones end at about
    the same time.
    """
    ends: dict[Job, Result | CseError] = {}
    if not jobs:
        return ends, 0
    _make_columns([job.recipe for job in jobs], placement, screen)
    with Engine(placement) as engine:
        alone = engine.slots == 1
        screen.expect(len(jobs), alone=alone)
        for job, end in run_each(jobs if alone else sorted(jobs, key=_length, reverse=True), engine, screen):
            if isinstance(end, TrackingError | DiskError):
                raise end
            ends[job] = end
            screen.end(job.label, end)
    results = {job: end for job, end in ends.items() if isinstance(end, Result)}
    for result in results.values():
        draw_figures(result)
    return ends, sum(result.run_id in screen.begun for result in results.values())


def run_each(jobs: Iterable[Job], engine: Engine, screen: RunScreen) -> Iterator[tuple[Job, Result | CseError]]:
    """Execute jobs in their order, and yield the result or error of each. An unknown exception is raised.

    Other processes may execute the same jobs. For example, the jobs of a Slurm array may start one command on a shared
    disk. Each process takes the next run that no other one holds, and finally waits for the runs of the others.
    """
    left, running, awaited = list(jobs), dict[str, tuple[Job, Listener]](), set[Job]()
    busy: dict[Job, RecordedRun] = {}
    while left or running:
        while left and len(running) < engine.slots:
            done = finished(left, all_runs())
            yield from done.items()
            left, busy = [job for job in left if job not in done], {}
            for job in left:
                try:
                    claim = job.claim(engine.device)
                except CseError as error:
                    if isinstance(error, BusyError) and job.resume is None:
                        busy[job] = error.run
                        continue
                    yield job, error
                    break
                if isinstance(claim, Claimed):
                    running[claim.run_id] = job, screen.begin(job.label, job.heading, claim.run_id)
                    engine.start(claim, running[claim.run_id][1])
                elif claim.result is not None:
                    yield job, claim.result
                break
            else:
                break
            left.remove(job)
        if not running:
            for job in [job for job in busy if job not in awaited]:
                awaited.add(job)
                screen.wait_for(job.label, busy[job])
            sleep(POLL_SECONDS if left else 0.0)  # other processes execute the rest
        for run_id, end in engine.ended():
            job, listener = running.pop(run_id)
            if isinstance(end, BusyError) and job.resume is None:
                left.append(job)
            elif job.resume is None and lacks_checkpoint(end, run_id):
                listener("warning", {"text": f"run {run_id[:8]} starts again from its first step: {end.message}"})
                left.append(job)
            elif isinstance(end, Result | CseError):
                yield job, end
            else:
                raise end


def lacks_checkpoint(end: object, run_id: str) -> TypeGuard[CseError]:
    """Return whether a run ended because all its checkpoints are damaged. They are deleted: it can start again."""
    if not (isinstance(end, CseError) and end.code == "training.no_usable_checkpoint"):
        return False
    delete_checkpoints(run_id)
    return True


def _length(job: Job) -> float:
    """Return the approximate number of tokens of a run, which is infinite without a number of steps."""
    recipe = job.recipe
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
    different, failed = {to_json(recipe.resolved()["data"]): recipe for recipe in with_columns}.values(), []
    for recipe in different:
        try:
            open_text(recipe.data, columns_read(recipe), making)
        except CseError as error:
            failed.append(error)
    if failed and len(failed) == len(different):
        raise failed[0]


def _notes(jobs: Sequence[Job]) -> list[str]:
    return [f"note: {note}" for note in dict.fromkeys(note for job in jobs for note in job.loaded.notes)]


def _preview(jobs: Sequence[Job], placement: Placement, device: str, *, as_json: bool) -> int:
    """Build and read everything that jobs need, print what would run and where, and return the exit code."""
    previews, code = [], 0
    with RunScreen() as screen:
        screen.advise(_notes(jobs))
        for job in jobs:
            try:
                with part_errors():
                    compute = choose(device, job.recipe.train.precision)
                    prepared = prepare(job.recipe, job.seed, compute, RunRecord("unrecorded", None, screen.show))
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
            jobs, done = run_on_rank0(lambda: _checked_jobs(request))
            with RunScreen(quiet=request.quiet) as screen:
                results = [done.get(job) or _run_together(job, request, screen) for job in jobs]
    except CseError as error:
        if not is_first_refused(here, request.device):
            sleep(_EXIT_SECONDS)  # the first process prints the error, and torchrun then ends this one
        # The first process to fail prints its error, or rank 0 if that one is on another machine.
        elif (here.rank == 0 and not error.shown) if isinstance(error, LostRankError) else announce_failure(error):
            print_error(error)
        return error.exit_code
    if here.rank == 0:
        _show(jobs, results, request)
    return 0


def _run_together(job: Job, request: RunRequest, screen: RunScreen) -> Result:
    held: list[Claimed] = []

    def take() -> str | Result:
        claim = job.claim(request.device, screen.downloading)
        if isinstance(claim, Claimed):
            held.append(claim)
            return claim.run_id
        assert claim.result is not None
        return claim.result

    taken = run_on_rank0(take)
    if isinstance(taken, Result):
        return taken
    try:
        return train(taken, request.device, screen.begin(job.label, job.heading, taken) if held else None)
    finally:
        for claim in held:
            release(claim)


def _checked_jobs(request: RunRequest) -> tuple[list[Job], dict[Job, Result]]:
    for name in request.recipes:
        if find_study(name) is not None:
            message = f"'{name}' is a study, which cannot share runs among the processes of torchrun"
            action = "run it without torchrun, with --workers for parallel runs"
            raise CseError(message, action, code="jobs.study_under_torchrun")
    jobs = request.jobs()
    choose_placement(jobs, request)
    different = distinct(jobs)
    return different, finished((job for job in different if not job.known.unknown), all_runs())


# Studies.


def run_studies(request: RunRequest) -> int:
    """Run studies one after the other, or print what would run, and return the exit code."""
    recipes = [name for name in request.recipes if find_study(name) is None]
    if recipes:
        message = f"'{recipes[0]}' is not a study and cannot be combined with studies"
        raise CseError(message, f"run it separately: cse run {recipes[0]}", code="jobs.recipes_and_studies")
    if request.processes is not None or request.resume is not None:
        option, action = "--processes", "use --workers 2 for two runs in parallel"
        if request.resume is not None:
            option, action = "--resume", "omit --resume: a study resumes its runs automatically"
        raise CseError(f"{option} cannot be combined with a study", action, code="jobs.option_of_single_runs")
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
        trials = None
        if plan.trials is not None:  # the trials first, and then the rows with the settings that they choose
            trials = run_study(plan.trials, request, "trial")
            plan = plan_study(plan.name, request, undecided=False)
        outcomes.append(replace(run_study(plan, request), trials=trials))
    if request.as_json:
        write_outcomes(outcomes)
    else:
        print_outcomes(outcomes, quiet=request.quiet or request.fast_dev_run)
    return int(any(outcome.failures or (outcome.trials and outcome.trials.failures) for outcome in outcomes))


def run_study(plan: StudyPlan, request: RunRequest, cells: str = "cell") -> StudyOutcome:
    """Execute the runs of a plan that are not finished, and return all results and failures."""
    with RunsScreen(several=True, command=request.command, quiet=request.quiet) as screen:
        for line in plan_lines(plan, cells):
            screen.write(line)
        _download((job.loaded for job in plan.open), screen)
        ends, ran = _execute(plan.open, place_runs(len(plan.open), request), screen)
    failures = {job: end for job, end in ends.items() if isinstance(end, CseError)}
    return StudyOutcome(plan, plan.results(), ran, failures)
