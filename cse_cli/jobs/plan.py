"""`cse plan`: downloads, time, disk space and memory of runs before they start. Nothing is recorded.

A few training steps and one evaluation are measured, and multiplied by their numbers.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, NoReturn

import torch
from rich.filesize import decimal
from torch import Tensor

from cse_cli.core.console import Screen, stdout_console, write_json
from cse_cli.core.devices import Compute, choose
from cse_cli.core.formatting import UNSET, counted, duration, seed_list
from cse_cli.core.tables import as_rich, plain_table
from cse_cli.core.threads import limit_torch_threads, thread_setting, torch_threads_restored
from cse_cli.data.batches import Batches
from cse_cli.data.identity import columns_read
from cse_cli.data.requirements import availabilities, availability
from cse_cli.data.sources import find_parts, open_text
from cse_cli.evaluation.evaluate import evaluate
from cse_cli.jobs.job import distinct, finished
from cse_cli.jobs.request import RunRequest, choose_placement, place_runs
from cse_cli.jobs.study import plan_study
from cse_cli.recipe.requirements import requirements
from cse_cli.recipe.schema import PROSE, Recipe, entry_of
from cse_cli.recipe.study import find_study
from cse_cli.runs.index import all_runs
from cse_cli.training.build import Experiment, resolve
from cse_cli.training.checkpoint import method_state
from cse_cli.training.train_step import TrainStep, forget_peak, peak_memory
from registry.accelerators import is_accelerator
from registry.errors import CseError, MissingError
from registry.prompts import Side
from registry.resources import catalog
from registry.types import Evaluator

WARM_UP = 2
"""Steps that are not measured. The first ones of a process take several times as long."""
STEPS = 5
"""Measured steps. Their median is used, because the lengths of sentences vary."""
PAIRS = 256
"""Pairs or rows of the measured evaluation."""
ROWS = 4096
"""First rows of the text, which the measured steps train on, unless the batches need more."""
RECORDS = 8_000_000
"""Bytes of a run except tensors. A run of mini/simcse_en writes 1.2 MB."""
TOKENS = 25
"""Tokens of a typical sentence, for an estimate without the text."""
A100 = 5e12
"""Operations per second that an A100 is assumed to reach in batches of 64 such sentences, a fraction of its peak."""


@dataclass(frozen=True)
class Measured:
    """Measured parts of a run. Times are in seconds, sizes in bytes.

    `dev` is the time of an evaluation that selects the best checkpoint, 0 without selection. `evaluation` is that with
    all evaluators, without the parts in `unmeasured`.
    """

    rows: int
    step: float
    dev: float
    evaluation: float
    unmeasured: Sequence[str]
    memory: int
    model: int
    checkpoint: int

    def times(self, recipe: Recipe) -> dict[str, float]:
        """Return the seconds of each stage of a run: the measured times, multiplied by their numbers."""
        steps, every = steps_of(recipe, self.rows), recipe.train.evaluate_every
        selections = math.ceil(steps / every) if every else min(1, steps)
        untrained = 0.0 if steps == 0 else self.evaluation if recipe.evaluate.eval_on_start else self.dev
        scoring = untrained + selections * self.dev + self.evaluation
        return {"training": steps * self.step, "evaluation": scoring}


def steps_of(recipe: Recipe, rows: int) -> int:
    """Return the number of training steps of a recipe on a text of `rows` rows."""
    train = recipe.train
    return train.epochs * (rows // train.batch_size) if train.steps is None else train.steps


def plan(request: RunRequest) -> int:
    """Print the cost of each recipe and study of a request, and return the exit code."""
    if not request.recipes:
        request.jobs_of(())  # raises an error
    with Screen() as screen:
        plans = [make_plan(name, request, screen) for name in request.recipes]
    if request.as_json:
        write_json({"plans": plans})
    else:
        for one in plans:
            print_plan(one)
    return 0


def make_plan(name: str, request: RunRequest, screen: Screen) -> dict[str, Any]:
    """Return the cost of the runs of a recipe or a study that are not finished, as JSON values.

    Times are in seconds, sizes in bytes, and None is unknown. `steps` and `stages` are sums over the runs, `memory` is
    the largest of a run. Without their device, or something that they require on this machine, nothing is measured, and
    `rough` contains the shortest and longest time in order of magnitude.
    """
    if find_study(name) is None:
        jobs = request.jobs_of([name])
        placement = choose_placement(jobs, request)
        title, seeds = f"{jobs[0].loaded.name} · {jobs[0].recipe.title}", [job.seed for job in jobs]
    else:
        study = plan_study(name, request)
        jobs, placement = study.jobs, place_runs(study.left, request)
        title, seeds = f"{study.study.name} · {study.study.title}", list(study.seeds)
    jobs = distinct(jobs)
    done = finished(jobs, all_runs())
    left = [job for job in jobs if job not in done]
    different = {shape(job.recipe): job for job in left}
    found = availabilities(job.recipe for job in different.values())
    fetchable = [one for one in found if one.state == "fetchable"]
    slots = max(1, len(placement.devices))
    measured, rough = dict[str, Measured](), dict[str, tuple[float, float]]()
    try:
        choose(request.device)
        is_here = all(one.state == "here" for one in found) and not any(job.known.unknown for job in left)
    except CseError as error:
        if error.code != "core.no_device":
            raise
        is_here = False  # an estimate for another machine
    for key, job in different.items() if is_here else ():
        screen.preparing(f"measuring steps and evaluations of {job.loaded.name}")
        measured[key] = measure(job.recipe, job.seed, request.device, slots, placement.processes)
    runs = [(job.recipe, measured[shape(job.recipe)]) for job in left if measured]
    counts = [steps_of(recipe, one.rows) for recipe, one in runs]
    guessed = [] if measured else [operations(job.recipe) for job in left]
    if known := [one for one in guessed if one is not None]:
        counts = [steps for steps, _ in known]
    if known and len(known) == len(left):
        total = sum(count for _, count in known) / slots
        speeds = ({"this CPU": matrix_speed() / 2} if request.device in ("auto", "cpu") else {}) | {"one A100": A100}
        rough = {device: (total / speed, 2.5 * total / speed) for device, speed in speeds.items()}
    times = [one.times(recipe) for recipe, one in runs]
    each = [sum(stages.values()) for stages in times]
    disk = {
        "downloads": sum(size for _, size in {(one.origin, one.bytes or 0) for one in fetchable}),
        "models and records": sum(one.model + RECORDS for _, one in runs),
        "checkpoints": slots * max((2 * (one.checkpoint + one.model) for _, one in runs), default=0),
    }
    return {
        "title": f"{title} · {seed_list(seeds)}",
        "finished": len(done),
        "runs": len(left),
        "steps": sum(counts) if len(counts) == len(left) else None,
        "place": placement.describe(),
        "downloads": {one.requirement.title: one.bytes for one in fetchable},
        "missing": [f"{o.requirement.title}: {o.problem} → {o.action}" for o in found if o.state == "missing"],
        "stages": {stage: sum(one[stage] for one in times) for stage in ("training", "evaluation") if runs},
        "seconds": max(sum(each) / slots, *each, 0.0) if runs or not left else None,
        "disk": {part: size for part, size in disk.items() if size},
        "memory": max((one.memory for _, one in runs), default=None),
        "unmeasured": list(dict.fromkeys(part for _, one in runs for part in one.unmeasured)),
        "rough": rough,
    }


def operations(recipe: Recipe) -> tuple[int, float] | None:
    """Return the steps of a recipe and its floating-point operations in order of magnitude, or None if unknown.

    A training step takes 6 operations for each weight and token: 2 forward and 4 backward. A made column, such as a
    translation, takes 2 for each weight and token, read and written.
    """
    data = recipe.data
    if data.files:
        try:
            rows = open_text(data, set(find_parts(data)[0].columns[:1])).rows
        except MissingError:
            return None
    elif any(name not in catalog.names() for name in data.dataset):
        return None
    else:
        rows = sum(catalog.entry(name).splits[data.split].rows for name in data.dataset)
        rows = min(rows, data.limit or rows)
    steps = steps_of(recipe, rows)
    sizes: dict[str, int] = {}  # model → number of weights, from the size of its files in single precision
    for found in (availability(one) for one in requirements(recipe) if one.kind == "model"):
        files = (file for path in found.paths for file in path.glob("*") if file.suffix in (".safetensors", ".bin"))
        size = sum(file.stat().st_size for file in files) if found.state == "here" else found.bytes
        if size is None:
            return None
        sizes[found.requirement.name] = size // 4
    makers = [str(part.params.get("model")) for part in data.columns.values()]
    made = sum(sizes.get(model, 0) for model in makers)
    trained = max((size for name, size in sizes.items() if name not in makers), default=0)
    sentences = steps * recipe.train.batch_size * len(recipe.views)
    return steps, 6.0 * trained * TOKENS * sentences + 2.0 * made * 2 * TOKENS * rows


def matrix_speed() -> float:
    """Return the operations per second of this CPU in a product of matrices, from three products."""
    one, took = torch.ones(1024, 1024), []
    for _ in range(3):
        began = time.perf_counter()
        one @ one
        took.append(time.perf_counter() - began)
    return 2.0 * 1024**3 / min(took)


def shape(recipe: Recipe) -> str:
    """Return the settings that decide how long a step and an evaluation take: all except real numbers and lengths."""
    tables = {key: value for key, value in recipe.resolved().items() if key not in PROSE}
    lengths = {"seed", "steps", "epochs", "evaluate_every", "checkpoint_every"}
    tables["train"] = {key: value for key, value in tables["train"].items() if key not in lengths}
    return re.sub(r": -?\d+(\.\d+(e-?\d+)?|e-?\d+)", ": real", json.dumps(tables, sort_keys=True))


def measure(recipe: Recipe, seed: int, device: str, slots: int = 1, processes: int = 1) -> Measured:
    """Train and score a separate experiment for a few seconds. Everything that it requires is on this machine.

    With `slots` parallel runs, each has its share of the threads. `processes` on separate devices share each batch.
    """
    compute = choose(device, recipe.train.precision)
    with torch.random.fork_rng(), torch_threads_restored():
        threads = limit_torch_threads()
        if slots > 1 and thread_setting() is None:
            torch.set_num_threads(max(1, threads // slots))
        text = None if recipe.train.steps == 0 else open_text(recipe.data, columns_read(recipe))
        forget_peak(compute.device)
        with suppress(OSError):  # only on Linux: the peak of this process becomes its current memory
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        experiment, step, checkpoint = resolve(recipe, seed), 0.0, 0
        method = experiment.method.to(compute.device)
        if text is not None:
            share = processes if is_accelerator(compute.device) else 1
            sample = replace(text, rows=min(text.rows, max(ROWS, 16 * recipe.train.batch_size)))
            settings = recipe.train.batch_size, recipe.data.max_length, seed, 0, share
            step = step_seconds(experiment, Batches(sample, experiment.specs, *settings), compute, seed)
            trained = _bytes(weights for weights in method.parameters() if weights.requires_grad)
            checkpoint = _bytes(method_state(method).values())
            checkpoint += entry_of(recipe.train, "optimizer").cls.copies * trained
        dev, evaluation, unmeasured = evaluation_seconds(experiment, compute)
        return Measured(
            rows=0 if text is None else text.rows,
            step=step,
            dev=dev,
            evaluation=evaluation,
            unmeasured=unmeasured,
            memory=peak_memory(compute.device),
            model=_bytes(experiment.scored.state_dict().values()),
            checkpoint=checkpoint,
        )


def _bytes(tensors: Iterable[Tensor]) -> int:
    """Return the bytes of tensors. Weights that are used twice count once."""
    return sum({each.data_ptr(): each.numel() * each.element_size() for each in tensors}.values())


def step_seconds(experiment: Experiment, batches: Batches, compute: Compute, seed: int) -> float:
    """Return the median seconds of a training step with a full queue, without compilation."""
    method, settings = experiment.method, experiment.recipe.train.model_copy(update={"compile": "off"})
    with closing(TrainStep(method, batches, settings, compute, seed, total=1_000_000)) as stepper:
        method.train()
        each = []
        for done in range(WARM_UP + STEPS):
            began = time.perf_counter()
            taken = stepper.take(done)
            if is_accelerator(compute.device):
                torch.accelerator.synchronize(compute.device)
            each.append(time.perf_counter() - began)
            if done == WARM_UP - 1 and method.queue is not None:
                for _ in range((method.queue.length or 0) // batches.batch_size + 1):
                    method.queue.after_step(taken.step)
        return median(each[WARM_UP:])


def evaluation_seconds(experiment: Experiment, compute: Compute) -> tuple[float, float, list[str]]:
    """Return the seconds of a dev score and of all evaluators together, and the parts that they leave out.

    A part of the dev split is scored. Other evaluations take as long per sentence.
    """
    settings, scored = experiment.recipe.evaluate, experiment.scored
    encoder = scored.foundation if scored.fits == "once" else scored
    sentences = {name: first_request(evaluator) for name, evaluator in experiment.evaluators.items()}
    unmeasured = [f"fit of encoder {settings.encoder}"] if scored.fits == "once" else []
    unmeasured += [f"evaluator {name}" for name, found in sentences.items() if not found]
    selecting = (settings.metric_for_best_model or "").rpartition(".")[0]
    name = selecting or next((name for name, found in sentences.items() if found), "")
    if not sentences.get(name):
        return 0.0, 0.0, unmeasured
    evaluator = experiment.evaluators[name]
    whole, evaluator.limit = evaluator.limit, min(PAIRS, evaluator.limit or PAIRS)
    for _ in range(2):  # the first time, libraries are imported
        began = time.perf_counter()
        evaluate(encoder, {name: evaluator}, settings, compute, specs=experiment.specs)
        took = time.perf_counter() - began
    each = took / len(first_request(evaluator))
    evaluator.limit = whole
    groups = sentences.values() if scored.fits == "each" else [set[str]().union(*sentences.values())]
    return each * len(sentences.get(selecting, ())), each * sum(map(len, groups)), unmeasured


class _FirstRequest(BaseException):
    """An `Encode` that ends an evaluation: it is raised with the first sentences that it receives.

    It is not an `Exception`, so that evaluators do not handle it.
    """

    def __call__(self, sentences: Sequence[str], side: Side | None = None, prompts: Sequence[str] = ()) -> NoReturn:  # noqa: ARG002
        raise _FirstRequest(*sentences)

    def encode_view(self, view: str, columns: Mapping[str, Sequence[str]], training: bool = False) -> NoReturn:  # noqa: ARG002
        self(next(iter(columns.values())))


def first_request(evaluator: Evaluator) -> set[str]:
    """Return the distinct sentences of the evaluator's first request."""
    try:
        evaluator(_FirstRequest())
    except _FirstRequest as request:
        return set(request.args)
    return set()


def print_plan(one: dict[str, Any]) -> None:
    """Print the downloads and the stages with their times, then the totals."""
    rows = [(f"download {name}", UNSET if size is None else decimal(size)) for name, size in one["downloads"].items()]
    rows += [(name, duration(seconds)) for name, seconds in one["stages"].items()]
    what = f"{counted(one['runs'], 'run')}, {one['place']}"
    what += "" if one["steps"] is None else f", {one['steps']:,} steps"
    if one["seconds"] is None:
        about = [f"{duration(low)} to {duration(high)} on {device}" for device, (low, high) in one["rough"].items()]
        guess = f"{', '.join(about)}, in order of magnitude" if about else "unknown"
        took = f"{guess} ({what}). Measured steps say more, after the download and the columns"
    else:
        left_out = f", without {', '.join(one['unmeasured'])}" if one["unmeasured"] else ""
        took = f"about {duration(one['seconds'])} for {what}{left_out}"
    parts = ", ".join(f"{name} {decimal(size)}" for name, size in one["disk"].items())
    disk = f"about {decimal(sum(one['disk'].values()))} ({parts})" if one["disk"] else "unknown"
    memory = "unknown" if one["memory"] is None else f"about {decimal(one['memory'])} for each run"
    with stdout_console() as out:
        out.print(one["title"], style="bold", markup=False, soft_wrap=True)
        if one["finished"]:
            out.print(f"{counted(one['finished'], 'run')} finished, {one['runs']} to run", soft_wrap=True)
        if not one["runs"]:
            return
        if rows:
            out.print(as_rich(plain_table(("stage", "time or size"), rows, align="lr"), gap=1))
            out.print()
        for line in (f"time    {took}", f"disk    {disk}", f"memory  {memory}"):
            out.print(line, markup=False, soft_wrap=not out.is_terminal)
        for missing in one["missing"]:
            out.print(f"missing {missing}", style="yellow", markup=False, soft_wrap=True)
