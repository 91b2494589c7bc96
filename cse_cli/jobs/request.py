"""Options of `cse run`: the jobs that they describe, and where these run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from cse_cli.core.devices import worker_devices
from cse_cli.core.formatting import differences
from cse_cli.core.processes import torchrun_rank
from cse_cli.jobs.job import Job
from cse_cli.recipe.cells import Cell
from cse_cli.recipe.load import load
from cse_cli.recipe.overrides import Override, parse_overrides
from cse_cli.recipe.schema import Recipe, settings
from cse_cli.recipe.study import MOST_SEEDS
from cse_cli.runs.index import RecordedRun, find_run
from cse_cli.runs.record import RECIPE, About, read_recipe
from cse_cli.training.run import experiment_changed
from registry.accelerators import ACCELERATORS, device_count
from registry.errors import CseError
from registry.machinery import plugins

STALL_SECONDS = 7200.0
"""Default time without an event after which a run is continued in a new process. An evaluation takes less."""
RESERVED = ("recipe", "method", "encoder", "data", "seed", "avg")
"""Tags that `cse` sets in MLflow."""


@dataclass(frozen=True)
class RunRequest:
    """Options of `cse run`, as its help describes them."""

    recipes: Sequence[str] = ()
    overrides: Sequence[str | Override] = ()
    unset: Sequence[str] = ()
    seed: int | None = None
    seeds: str | None = None
    device: str = "auto"
    resume: str | None = None
    rows: Sequence[str] = ()
    workers: int | None = None
    processes: int | None = None
    cluster: str | None = None
    stall_timeout: float = STALL_SECONDS
    dry_run: bool = False
    as_json: bool = False
    quiet: bool = False
    name: str | None = None
    tags: Sequence[str] = ()
    again: bool = False
    fast_dev_run: bool = False
    written: str = ""
    """Command line that continues these runs, if it is not that of `cse run`."""

    def settings(self) -> list[str]:
        """Return the options that change the recipes, as words of a command."""
        overrides = [word for text in self.overrides for word in ("--set", str(text))]
        removals = [word for key in self.unset for word in ("--unset", key)]
        return overrides + removals + [word for file in plugins.named() for word in ("--plugin", file)]

    def command(self) -> str:
        """Return the command of this request, which skips finished runs and resumes interrupted ones."""
        if self.written:
            return self.written
        options = {"--seed": self.seed, "--seeds": self.seeds, "--name": self.name,
                   "--workers": self.workers, "--processes": self.processes, "--cluster": self.cluster}  # fmt: skip
        options |= {"--device": self.device} if self.device != "auto" else {}
        words = ["cse", "run", *self.recipes, *self.settings()]
        words += [word for option, value in options.items() if value is not None for word in (option, str(value))]
        words += [word for row in self.rows for word in ("--row", row)]
        words += [word for tag in self.tags for word in ("--tag", tag)]
        words += ["--fast-dev-run"] if self.fast_dev_run else []
        return shlex.join([*words, "--again"] if self.again else words)

    def jobs(self) -> list[Job]:
        """Return one job per recipe and seed."""
        if self.resume is not None:
            return [self.labeled(self._resumed(find_run(self.resume)), several=False)]
        return self.jobs_of(self.recipes)

    def jobs_of(self, recipes: Sequence[str]) -> list[Job]:
        """Return one job per seed of some recipes."""
        if not recipes:
            action = "name one: cse run quickstart. List all: cse list recipes"
            raise CseError("no recipe given", action, code="jobs.no_recipe")
        if self.rows:
            message = f"--row names a row of a study, and '{recipes[0]}' is a recipe"
            raise CseError(message, "omit --row", code="jobs.row_of_recipe")
        seeds: Sequence[int | None] = self.seed_list() or [None]
        jobs = [self._job(recipe, seed) for recipe in recipes for seed in seeds]
        return [self.labeled(job, several=len(jobs) > 1) for job in jobs]

    def labeled(self, job: Job, *, several: bool) -> Job:
        """Return a job with the requested name (a prefix of several jobs' names) and tags."""
        name = job.run_name if self.name is None else f"{self.name}: {job.name}" if several else self.name
        labels = {**job.tags, **parse_tags(self.tags), **(TAGS if self.fast_dev_run else {})}
        return replace(job, run_name=name, tags=labels, again=self.again)

    def seed_list(self) -> list[int]:
        """Return the requested seeds, or an empty list for the recipe's own."""
        if self.seeds is None:
            return [] if self.seed is None else [self.seed]
        if self.seed is not None:
            action = "use --seed 7 for one run, or --seeds 3 for seeds 0, 1 and 2"
            raise CseError("--seed cannot be combined with --seeds", action, code="jobs.exclusive_options")
        return parse_seeds(self.seeds)

    def _job(self, recipe: str, seed: int | None, first: Sequence[Override] = ()) -> Job:
        """Return a job. A seed of the command line replaces the recipe's own, so that the record repeats the run."""
        last = [] if seed is None else [Override.of("train.seed", seed)]
        loaded = load(recipe, given := [*first, *self.overrides, *last], self.unset)
        if self.fast_dev_run:
            loaded = load(recipe, [*given, *reductions(loaded.recipe, given)], self.unset)
        return Job(loaded, loaded.recipe.train.seed)

    def _resumed(self, run: RecordedRun) -> Job:
        about = run.about
        if len(self.recipes) > 1 or self.seeds is not None:
            action = "omit --seeds, and name at most one recipe"
            raise CseError("--resume takes one run", action, code="jobs.resume_several")
        if run.end == "pruned":
            message = f"cannot resume run {about.short} ({about.name}): it was pruned ({run.reason})"
            raise CseError(message, f"start a new run: cse run {about.recipe}", code="jobs.resume_pruned")
        _add_plugins_of(about)
        recipe = self.recipes[0] if self.recipes else str(about.path / RECIPE)
        # The seed of the run comes first: a seed of the command line is a changed setting.
        job = self._job(recipe, self.seed, [Override.of("train.seed", about.seed)])
        both = read_recipe(about.run_id), job.recipe.resolved()
        ran, now = ({**settings(resolved), "train.seed": resolved["train"]["seed"]} for resolved in both)
        if changed := list(differences(ran, now)):
            raise experiment_changed(about, changed)
        loaded = replace(job.loaded, name=about.recipe, path=Path(about.source), changes=about.changes)
        return replace(job, loaded=loaded, resume=run.run_id, group=about.group)


@dataclass(frozen=True)
class Placement:
    """Placement of jobs on processes, devices or a cluster.

    `processes` share each run. `devices` execute one run each, or none of them if one run follows the other. `workers`
    is the number of parallel runs on the cluster, and of processes that make columns; the default is one per device.
    """

    processes: int = 1
    devices: tuple[str, ...] = ()
    cluster: str | None = None
    workers: int | None = None
    device: str = "auto"
    stall_timeout: float = STALL_SECONDS

    def describe(self) -> str:
        """Return where jobs run, in one line."""
        if self.cluster is not None:
            runs = "one run per free device" if self.workers is None else f"{self.workers} runs in parallel"
            each = f", {self.processes} processes each" if self.processes > 1 else ""
            return f"on cluster {self.cluster}: {runs}{each}"
        if self.devices:
            return f"{len(self.devices)} runs in parallel: {', '.join(self.devices)}"
        return "one run after the other" + (f", {self.processes} processes each" if self.processes > 1 else "")


def choose_placement(jobs: Sequence[Job], request: RunRequest) -> Placement:
    """Return where jobs run: a single run on all accelerators, several runs on one device each.

    The options `--processes`, `--workers` and `--cluster` take precedence.
    """
    device, processes, workers = request.device, request.processes, request.workers
    if torchrun_rank() is not None:
        options = {"--processes": processes, "--workers": workers, "--cluster": request.cluster}
        if given := [name for name, value in options.items() if value is not None]:
            message = f"{given[0]} cannot be combined with torchrun, which has started the processes"
            raise CseError(message, f"omit {given[0]}", code="jobs.option_under_torchrun")
        return Placement()
    if request.cluster is None and processes is not None and workers is not None:
        raise CseError(
            "--processes cannot be combined with --workers",
            "use --processes 2 for two processes per run, or --workers 2 for two runs in parallel",
            code="jobs.exclusive_options",
        )
    found = device_count() if device in ("auto", *ACCELERATORS) else int(device != "cpu")
    if request.cluster is None and processes is not None and processes > found > 0:
        message = f"--processes {processes}: each process needs its own device, {found} available"
        action = f"use --processes {found}" + ("" if device in ("auto", *ACCELERATORS) else " or --device auto")
        raise CseError(message, action, code="jobs.too_few_devices")
    if processes is not None:
        for job in jobs:
            _check_divisible(job, processes)
    if request.cluster is not None:
        return replace(place_runs(len(jobs), request), processes=processes or 1)
    if processes is not None:
        return Placement(processes, device=device)
    if len(jobs) == 1:  # the largest number of processes that divides the batch
        size = jobs[0].recipe.train.batch_size
        processes = max(count for count in range(1, max(1, found) + 1) if size % count == 0)
        return Placement(processes, workers=workers, device=device)
    return place_runs(len(jobs), request)


def place_runs(count: int, request: RunRequest) -> Placement:
    """Return where runs of one process each run: those of a study, or the trials of a search."""
    if request.cluster is not None:
        return Placement(1, (), request.cluster, request.workers, request.device, request.stall_timeout)
    device = "auto" if request.device in ACCELERATORS else request.device
    devices = tuple(worker_devices(device, request.workers)[:count])
    return Placement(1, devices if len(devices) > 1 else (), None, request.workers, device, request.stall_timeout)


def _check_divisible(job: Job, processes: int) -> None:
    size = job.recipe.train.batch_size
    if size % processes:
        near = min((count for count in range(1, size + 1) if size % count == 0), key=lambda one: abs(one - processes))
        message = f"--processes {processes}: cannot divide train.batch_size = {size} of {job.loaded.name} evenly"
        raise CseError(message, f"use --processes {near}", code="jobs.indivisible_batch")


def _add_plugins_of(about: About) -> None:
    """Name the plug-in files of a run, except those that the command line replaces by a file of the same name."""
    given = {Path(file).name for file in plugins.named()}
    for file in () if about.pulled else about.plugins:
        if Path(file).name in given:
            continue
        if not Path(file).is_file():
            message = f"run {about.short} needs the plug-in '{file}', which does not exist"
            action = f"restore it, or name its new place: cse run --resume {about.short} --plugin {Path(file).name}"
            raise CseError(message, action, code="jobs.missing_plugin")
        plugins.add(file)


def options_of(changes: Sequence[str]) -> list[str]:
    """Return recorded changes, such as "train.steps=10" or "no queue", as words of a command."""
    pairs = (("--unset", one.removeprefix("no ")) if one.startswith("no ") else ("--set", one) for one in changes)
    return [word for pair in pairs for word in pair]


def parse_seeds(text: str) -> list[int]:
    """Return the seeds of `--seeds`: a number of seeds from 0, or a list with commas."""
    numbers: list[int] = []
    with suppress(ValueError):
        numbers = [int(part) for part in text.split(",")]
    if numbers and "," not in text:
        numbers = list(range(numbers[0])) if numbers[0] <= MOST_SEEDS else []
    if not numbers or min(numbers) < 0 or max(numbers) >= 2**32 or len(set(numbers)) < len(numbers):
        message = f"--seeds '{text}': not a number from 1 to {MOST_SEEDS:,} or a list of different seeds"
        raise CseError(message, "use 3 for seeds 0, 1 and 2, or a list such as 1,5,7", code="jobs.invalid_seeds")
    return numbers


def parse_tags(texts: Sequence[str]) -> dict[str, str]:
    """Return the tags of `key=value` strings."""
    found: dict[str, str] = {}
    for text in texts:
        key, _, value = (part.strip() for part in text.partition("="))
        if not value or not re.fullmatch(r"[\w. /-]+", key):
            action = "use letters, digits, '_', '-', '.' and '/' in the key: --tag paper=v2"
            raise CseError(f"--tag '{text}': not KEY=VALUE", action, code="jobs.invalid_tag")
        if key.startswith(("cse.", "mlflow.")) or key in RESERVED:
            raise CseError(f"--tag '{text}': cse sets '{key}' itself", "use another key", code="jobs.reserved_tag")
        found[key] = value
    return found


# Short runs of `--fast-dev-run`.

TAGS = {"fast_dev_run": "true"}
"""Tags of runs that `--fast-dev-run` shortens."""

SENTENCES = 2000
"""Rows of their training text."""
STEPS = 20
EVALUATE_EVERY = 10
PAIRS = 256
"""Pairs or rows of each evaluator. `mutual_information` needs 128."""


def reductions(recipe: Recipe, given: Sequence[str | Override] = ()) -> list[Override]:
    """Return the settings that make a recipe short, except those that `given` sets."""
    data, train, evaluate = recipe.data, recipe.train, recipe.evaluate
    short: dict[str, int] = {"evaluate.limit": min(PAIRS, evaluate.limit or PAIRS)}
    if train.steps != 0:
        short["train.steps"] = min(STEPS, train.steps or STEPS)
        if train.evaluate_every:
            short["train.evaluate_every"] = min(EVALUATE_EVERY, train.evaluate_every)
        sentences = max(SENTENCES, train.batch_size)
        short["data.limit"] = min(sentences, data.limit or sentences)
    chosen = {override.path for override in parse_overrides(given)}
    return [Override.of(path, value) for path, value in short.items() if path not in chosen]


def reduced(cell: Cell, given: Sequence[str | Override] = ()) -> Cell:
    """Return the cell of a study with a short recipe."""
    assert cell.resolved is not None
    short = replace(cell, overrides=(*cell.overrides, *reductions(cell.resolved, given)))
    recipe = short.load(cell.resolved.train.seed).recipe
    return replace(short, hash=recipe.hash(), resolved=recipe)
