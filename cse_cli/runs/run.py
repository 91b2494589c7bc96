"""`cse run`: recipes one after another, several at once or each in several processes; under torchrun; and studies."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from time import sleep
from typing import Any

import torch.distributed as dist

from cse_cli import tracking
from cse_cli.core.console import Screen, SilentObserver
from cse_cli.core.devices import choose, worker_devices
from cse_cli.core.distributed import LostRankError, announce_failure, is_first_refused, joined
from cse_cli.core.processes import ProcessRank, end_with_parent
from cse_cli.core.results import Result
from cse_cli.data.requirements import fetch, requirements
from cse_cli.recipe.study import find_study
from cse_cli.runs.executor import run_jobs_at_once, start_process, write_lines
from cse_cli.runs.placement import choose_placement
from cse_cli.runs.request import RunRequest
from cse_cli.runs.study import StudyFailure, StudyOutcome, StudyPlan, StudyWorker, plan_study
from cse_cli.runs.study_view import (
    StudyScreen,
    WorkerLines,
    print_outcomes,
    print_plans,
    write_outcomes,
    write_report,
    write_study_plans,
)
from cse_cli.runs.view import describe_run, print_plan, print_results, shown_metrics, write_plans, write_results
from cse_cli.tracking.unsent import sync
from cse_cli.training.build import Job
from cse_cli.training.run import execute, prepare
from registry import hub
from registry.errors import CseError, MissingError

_TOLD_SECONDS = 60.0
"""How long a rank that has nothing to say waits for torchrun to end it."""


class _Failures:
    """Errors of one job after another: each is shown, and the next job runs; the error of a single job is raised."""

    def __init__(self, jobs: Sequence[Job], screen: Screen) -> None:
        self.code = 0
        self._alone = len(jobs) == 1
        self._screen = screen

    @contextmanager
    def shown(self, job: Job) -> Iterator[None]:
        try:
            yield
        except CseError as error:
            if self._alone:
                raise
            self._screen.failed(job.name, error)
            self.code = error.exit_code


def run_jobs(request: RunRequest) -> int:
    """Run the jobs of a request, or print what they would do; print results in order and return the exit code.

    Raises:
        CseError: The request is not valid, its only job failed, or the processes asked for are not possible.
    """
    jobs = request.jobs()
    if request.dry_run:
        return _plan_jobs(jobs, as_json=request.as_json)
    placement = choose_placement(jobs, request)
    results: list[Result] = []
    with Screen() as screen:
        _download(jobs, screen)
    with Screen() as screen:
        failures = _Failures(jobs, screen)
        if placement.devices:
            for job, end in zip(jobs, run_jobs_at_once(jobs, placement.devices, screen.heard), strict=True):
                with failures.shown(job):
                    if isinstance(end, CseError):
                        raise end
                    results.append(end)
        for job in () if placement.devices else jobs:
            with failures.shown(job):
                if placement.processes == 1:
                    results.append(execute(job, screen))
                else:
                    from cse_cli.runs.distributed import run_in_processes  # torch's agent

                    results.append(run_in_processes(job, placement.processes))
    _show(jobs, results, as_json=request.as_json)
    return failures.code


def _download(jobs: Sequence[Job], screen: Screen) -> None:
    """Download what jobs need, before the first one starts.

    Raises:
        MissingError: The only job cannot have it; one of several says so when its turn comes.
    """
    for job in {job.loaded.recipe.hash(): job for job in jobs}.values():
        try:
            with hub.pinned(job.resume.commits if job.resume is not None else {}):
                fetch(requirements(job.loaded.recipe), screen.downloading)
        except MissingError:
            if len(jobs) == 1:
                raise


def _plan_jobs(jobs: Sequence[Job], *, as_json: bool) -> int:
    """Build and read what jobs need, and print what they would do; return the exit code."""
    plans = []
    with Screen() as screen:
        failures = _Failures(jobs, screen)
        for job in jobs:
            with failures.shown(job):
                plans.append(describe_run(prepare(job, screen)))
    if as_json:
        write_plans(plans)
    else:
        for plan in plans:
            print_plan(plan)
    return failures.code


def _show(jobs: Sequence[Job], results: Sequence[Result], *, as_json: bool) -> None:
    if as_json:
        write_results(results)
    elif results:
        recipes = [job.loaded.recipe for job in jobs]
        parts = {recipe.hash(): {key: part.name for key, part in recipe.evaluators.items()} for recipe in recipes}
        print_results(results, {identity: shown_metrics(names) for identity, names in parts.items()})


# Under torchrun: the processes that it has started do each run together.


def run_as_rank(request: RunRequest, here: ProcessRank) -> int:
    """Run the jobs of a request together with the other processes; return the exit code.

    One run follows the other. None follows one that failed: the processes may not agree any more.
    """
    try:
        if request.dry_run:  # nothing to share
            return _plan_jobs(request.jobs(), as_json=request.as_json) if here.rank == 0 else 0
        with joined(here, request.device):
            jobs = _jobs_of_rank_0(request, here)
            with Screen() as screen:
                results = [execute(job, screen if here.rank == 0 else SilentObserver()) for job in jobs]
    except CseError as error:
        if not is_first_refused(here, request.device):
            sleep(_TOLD_SECONDS)  # the first one says why; when it has ended, torchrun ends this one
        elif _shows(error, here):
            sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    if here.rank == 0:
        _show(jobs, results, as_json=request.as_json)
    return 0


def _jobs_of_rank_0(request: RunRequest, here: ProcessRank) -> Sequence[Job]:
    """Return the jobs as rank 0 reads them: its recipes hold for all, also where another machine's differ."""
    box: list[Sequence[Job] | CseError] = [[]]
    if here.rank == 0:
        try:
            box = [_checked_jobs(request)]
        except CseError as error:
            box = [error]
    dist.broadcast_object_list(box)
    if isinstance(box[0], CseError):
        raise box[0]
    return box[0]


def _checked_jobs(request: RunRequest) -> Sequence[Job]:
    for name in request.recipes:
        if find_study(name) is not None:
            raise CseError(
                f"'{name}' is a study, and torchrun has started processes to share each run",
                "start it without torchrun: it does several runs at once by itself",
            )
    jobs = request.jobs()
    choose_placement(jobs, request)
    return jobs


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
        raise CseError("--resume takes one run", "a study goes on by itself: run it again without --resume")
    sync()  # what a run could not send to its store yet counts as finished only there
    plans = [plan_study(name, request) for name in request.recipes]
    if request.dry_run:
        (write_study_plans if request.as_json else print_plans)(plans)
        return 0
    choose(request.device)
    if request.worker:
        _run_share(request, plans)
        return 0
    outcomes = [_run_study(plan, request) for plan in plans]
    (write_outcomes if request.as_json else print_outcomes)(outcomes)
    return next((failure.exit_code for outcome in outcomes for failure in outcome.failures), 0)


def _run_study(plan: StudyPlan, request: RunRequest) -> StudyOutcome:
    devices = worker_devices(request.device, request.workers)
    with StudyScreen(plan.name) as screen:
        screen.planned(plan)
        try:
            if len(devices) == 1:
                worker = StudyWorker(plan.open, devices[0], screen)
                worker.work()
                ran, failures = worker.ran, worker.failures
            else:
                ran, failures = _run_workers(plan, request, devices, screen) if plan.open else (0, [])
        except (KeyboardInterrupt, tracking.Terminated):
            screen.left()
            raise
        return StudyOutcome(plan, plan.results(), ran, failures)


def _run_share(request: RunRequest, plans: Sequence[StudyPlan]) -> None:
    """Do the share of one of several processes, and report it to the process that started it."""
    end_with_parent()
    ran, failures = 0, list[StudyFailure]()
    for plan in plans:
        with WorkerLines(plan.name) as screen:
            worker = StudyWorker(plan.open, request.device, screen)
            worker.work()
        ran, failures = ran + worker.ran, failures + worker.failures
    write_report(ran, failures)


def _run_workers(
    plan: StudyPlan, request: RunRequest, devices: Sequence[str], screen: StudyScreen
) -> tuple[int, list[StudyFailure]]:
    """Run a study in a process per device, and return how many runs they did and what failed.

    Raises:
        CseError: No process came to its end.
    """
    runs = {run.key: run for run in plan.runs}
    ran, lost, failures = 0, 0, dict[tuple[str, int], StudyFailure]()
    for name, code, report in _worker_reports(plan, request, devices, screen):
        if report is None:
            lost += 1
            screen.warned(f"worker {name} ended with code {code} before its work was done")
            continue
        ran += report["ran"]
        for one in report["failures"]:
            key = one["hash"], one["seed"]
            failures[key] = StudyFailure(runs[key], one["message"], one["exit_code"])
    if lost == len(devices):
        raise CseError("no worker came to its end", f"their messages are above; `cse run {plan.name}` goes on")
    return ran, list(failures.values())


def _worker_reports(
    plan: StudyPlan, request: RunRequest, devices: Sequence[str], screen: StudyScreen
) -> list[tuple[str, int, dict[str, Any] | None]]:
    """Run `cse run STUDY --worker` on every device at once; return name, exit code and report of each."""
    # The same plan, even if the study's file has other seeds by now.
    seeds = ",".join(map(str, plan.seeds))
    options = ["--seed" if len(plan.seeds) == 1 else "--seeds", seeds]
    options += [part for text in request.overrides for part in ("--set", text)]
    options += [part for key in request.unset for part in ("--unset", key)]
    started: list[tuple[str, subprocess.Popen[str], Thread]] = []
    with TemporaryDirectory() as folder:
        try:
            for number, device in enumerate(devices, 1):
                command = [sys.executable, "-m", "cse_cli", "run", plan.name, *options, "--device", device, "--worker"]
                name = f"{number} {device}"
                with Path(folder, name).open("wb") as out:
                    process = start_process(command, device, len(devices), stdout=out.fileno())
                reader = Thread(target=write_lines, args=(process, name, screen.heard), daemon=True)
                reader.start()
                started.append((name, process, reader))
            for _, process, _ in started:
                process.wait()
        except BaseException:
            for _, process, _ in started:
                process.terminate()  # they record the end of their run, so that it can be resumed
            raise
        finally:
            for _, process, reader in started:
                process.wait()
                reader.join()  # they say how to go on
        return [(name, process.returncode, _report(Path(folder, name))) for name, process, _ in started]


def _report(file: Path) -> dict[str, Any] | None:
    """Return what a worker wrote on stdout; None where it died before."""
    try:
        report: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        return None
    return report
