"""`cse plan`, and the three lines and the question before `cse run` begins."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context

import psutil
import torch

from cse_cli.core.console import Screen, write_json
from cse_cli.core.events import Preparing
from cse_cli.core.formatting import duration, seed_list
from cse_cli.core.garbage import free_memory
from cse_cli.core.threads import limit_torch_threads, thread_setting, torch_threads_restored
from cse_cli.data.requirements import Availability, availabilities, download_size
from cse_cli.jobs.placement import Placement, choose_placement, place_runs
from cse_cli.jobs.request import RunRequest
from cse_cli.jobs.study import plan_study
from cse_cli.jobs.tasks import Task, finished, make_tasks
from cse_cli.planning.data_steps import data_steps
from cse_cli.planning.forecast import Forecast, Place, forecast
from cse_cli.planning.probe import Probe, probe
from cse_cli.planning.view import print_forecast, summary, to_document
from cse_cli.recipe.schema import Recipe
from cse_cli.recipe.study import find_study
from cse_cli.runs.index import all_runs
from cse_cli.training.build import Job
from registry.accelerators import accelerator
from registry.errors import CseError

LONG = 12 * 3600.0
"""Seconds beyond which `cse run` asks."""
SHORT = 1e14
"""Floating-point operations of a few minutes on two cores. The quickstart has 3e13, BERT base takes 40 steps."""
EVALUATED = 10_000
"""Sentences of an evaluator."""
LENGTH = 20
"""Tokens of a sentence of an evaluator."""
SENTENCE = 30
"""Bytes of a sentence of a training text in a compressed file."""


def plan(request: RunRequest) -> int:
    """Print the forecasts of the recipes and studies of a request, and return the exit code. Nothing is recorded."""
    documents = []
    for title, tasks, placement in _planned(request):
        done = finished(tasks, all_runs())
        left = [task for task in tasks if task not in done]
        with Screen() as screen:
            found = estimate(left, placement, request.device, screen, _process_age())
        if request.as_json:
            documents.append(to_document(found, title, len(done)))
        else:
            print_forecast(found, title, len(done))
    if request.as_json:
        write_json({"plans": documents})
    return 0


def _planned(request: RunRequest) -> Iterator[tuple[str, list[Task], Placement]]:
    """Yield title, tasks and placement of all recipes together, and of each study."""
    recipes = [name for name in request.recipes if find_study(name) is None]
    for name in request.recipes:
        if name not in recipes:
            study = plan_study(name, request)
            title = f"{study.study.name} · {study.study.title} · {seed_list(study.seeds)}"
            yield title, study.tasks, place_runs(study.left, request)
    if recipes or not request.recipes:
        jobs = request.jobs_of(recipes)
        names = dict.fromkeys(f"{job.loaded.name} · {job.loaded.recipe.title}" for job in jobs)
        title = next(iter(names)) if len(names) == 1 else ", ".join(dict.fromkeys(job.loaded.name for job in jobs))
        title += f" · {seed_list(sorted({job.seed for job in jobs}))}"
        yield title, make_tasks(jobs, accept_changed=request.accept_changed), choose_placement(jobs, request)


def estimate(tasks: Sequence[Task], placement: Placement, device: str, screen: Screen, start: float = 0.0) -> Forecast:
    """Return the forecast of tasks that are not finished. `start` is the time for the start of the process."""
    slots = max(1, len(placement.devices))
    apart = accelerator() is not None and (slots > 1 or placement.processes > 1)

    def measure(job: Job, seconds: float, missing: Sequence[str]) -> Probe:
        screen.observe(Preparing(f"measuring steps and evaluations of {job.loaded.name}"))
        world = 1 if accelerator() is None else placement.processes
        return (_probe_apart if apart else probe)(job, seconds, world, missing)

    place = Place(placement.describe(), device, slots)
    runs = [(task.job, task.known) for task in tasks]
    with _threads_of_a_worker(slots):
        found = forecast(runs, place, all_runs(), measure, start)
    free_memory()
    return found


def _probe_apart(job: Job, seconds: float, world: int, missing: Sequence[str]) -> Probe:
    """Probe in another process, because one that only starts others must not use the memory of a GPU."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as other:
        return other.submit(probe, job, seconds, world, missing).result()


def _process_age() -> float:
    """Return the seconds since this process started."""
    return time.time() - psutil.Process().create_time()


@contextmanager
def _threads_of_a_worker(slots: int) -> Iterator[None]:
    """Give torch the share of threads that each of several parallel runs has."""
    threads = limit_torch_threads()
    with torch_threads_restored():
        if slots > 1 and thread_setting() is None:
            torch.set_num_threads(max(1, threads // slots))
        yield


def announce_downloads(recipes: Sequence[Recipe], screen: Screen) -> None:
    """Print the size of the downloads that follow."""
    found = availabilities(recipes)
    if size := download_size(found):
        names = ", ".join(one.requirement.name for one in found if one.state == "fetchable")
        screen.advise([f"download  {size}: {names}"])


def announce(tasks: Sequence[Task], placement: Placement, request: RunRequest, screen: Screen) -> None:
    """Print time, disk and memory of the runs that follow. Beyond twelve hours, ask whether to start.

    Runs that evidently take a few minutes, resumed runs and runs on a cluster start without it: a probe would take a
    noticeable part of the first, and does not know the rest of the others.

    Raises:
        CseError: If you decline, or without a terminal for the question.
    """
    silent = request.quiet or request.as_json
    if request.cluster is not None or request.resume is not None or (silent and request.yes):
        return
    different = {task.known.settings: task.job.loaded.recipe for task in tasks}.values()
    if all(is_short(recipe, len(tasks)) and not data_steps(recipe) for recipe in different):
        return
    found = estimate(tasks, placement, request.device, screen)
    if not silent:
        screen.advise(summary(found))
    if found.seconds is not None and found.seconds > LONG and not request.yes:
        _ask(found.seconds, screen)


def _ask(seconds: float, screen: Screen) -> None:
    question = f"this takes about {duration(seconds)}"
    if sys.stdin.isatty() and screen.live:
        if screen.console.input(f"{question}. Start? [y/N] ", markup=False).strip().lower() in ("y", "yes"):
            return
        raise CseError(f"{question}: not started", "add --yes to start without a question", code="jobs.not_started")
    raise CseError(
        f"{question}, more than {duration(LONG)}, and there is no terminal to confirm it",
        "add --yes",
        code="jobs.not_confirmed",
    )


def is_short(recipe: Recipe, runs: int) -> bool:
    """Return whether that many runs of a recipe evidently take a few minutes."""
    return runs * operations(recipe) < SHORT


def operations(recipe: Recipe) -> float:
    """Return the approximate floating-point operations of a run: 6 per weight and trained token, 2 per scored token.

    The models count by the size of their files, and texts as long as possible, so it is rather too large.
    """
    found = availabilities([recipe])
    weights = sum(_bytes(one) for one in found if one.requirement.kind == "model") / 4
    train = recipe.train
    steps = train.steps
    if steps is None:
        texts = [one for one in found if one.requirement.wanted_by[:1] in (("data.dataset",), ("data.file",))]
        steps = train.epochs * sum(map(_bytes, texts)) // (SENTENCE * train.batch_size)
    trained = steps * train.batch_size * max(1, len(recipe.views)) * recipe.data.max_length
    scored = len(recipe.evaluators) * min(EVALUATED, 2 * (recipe.evaluate.limit or EVALUATED)) * LENGTH
    return 6 * weights * trained + 2 * weights * scored


def _bytes(one: Availability) -> int:
    """Return the size of the files of a requirement."""
    files = [file for path in one.paths for file in ([path] if path.is_file() else path.rglob("*"))]
    return sum(file.stat().st_size for file in files if file.is_file())
