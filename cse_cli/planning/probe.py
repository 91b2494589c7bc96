"""Probe: a few steps and evaluations of a recipe on a device. Nothing is recorded."""

from __future__ import annotations

import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, cast

import torch

from cse_cli.core.devices import Compute, choose
from cse_cli.core.paths import require_home
from cse_cli.core.threads import limit_torch_threads
from cse_cli.data.batches import Batches, BatchSource
from cse_cli.data.sources import Text, open_text
from cse_cli.data.stream import Stream, open_stream
from cse_cli.planning.disk_space import DiskSpace, needed
from cse_cli.planning.sample import SENTENCES, Sample
from cse_cli.planning.scoring import ScoringTimes, measure_scoring
from cse_cli.training import checkpoint
from cse_cli.training.build import Experiment, Job, Prepared, resolve
from cse_cli.training.timing import forget_peak, peak_memory
from cse_cli.training.train_step import TrainStep
from registry.accelerators import is_accelerator

WARM_UP = 2
"""Steps that are not measured. The first ones of a process take several times as long."""
FEWEST = 3
"""Fewest measured steps, because the lengths of sentences vary."""
TOTAL = 1_000_000
"""Steps of the training that the probe begins, more than it takes."""
WRITTEN = 64_000_000
"""Bytes of the file that measures the speed of the disk."""


@dataclass(frozen=True)
class Probe:
    """Seconds of each part of a run, measured on a device.

    Args:
        device: Name of the device, as in records.
        precision: Precision of the training.
        build: Loading models and opening the text.
        tokenizing: Tokenizing the text, without what is cached.
        step: One training step.
        scoring: Evaluations.
        write: Writing one byte of a checkpoint.
        rows: Number of rows of the text. None for a stream.
        memory: Peak memory in bytes.
        space: Disk space of the run.
        cache: Bytes of the token files that are missing.
        seconds: Duration of the probe.
    """

    device: str
    precision: str
    build: float
    tokenizing: float
    step: float
    scoring: ScoringTimes
    write: float
    rows: int | None
    memory: int
    space: DiskSpace
    cache: int
    seconds: float


def probe(job: Job, seconds: float, world: int = 1, missing: Collection[str] = ()) -> Probe:
    """Train and score with a separate experiment for about `seconds` each, and return the times.

    Args:
        job: Job whose models, data and files are on this machine.
        seconds: Measured time of the steps, and of all evaluators together.
        world: Number of processes that share each batch on separate devices.
        missing: Columns of the text that do not exist yet.

    Raises:
        CseError: If parts of the recipe do not fit.
    """
    began = time.perf_counter()
    recipe = job.loaded.recipe
    with torch.random.fork_rng():
        limit_torch_threads()
        _forget_peak(choose(job.device, "fp32").device)
        experiment = resolve(recipe, job.seed)
        compute = choose(job.device, recipe.train.precision)
        sample, batches = _batches(job, experiment, world, missing)
        experiment.method.to(compute.device)
        build = time.perf_counter() - began
        step = 0.0
        if batches is not None:
            step = _step_seconds(experiment, batches, compute, job.seed, seconds)
        scoring = measure_scoring(experiment, compute, seconds)
        prepared = Prepared(job, compute, experiment, None, batches, 1)
        return Probe(
            device=compute.describe(),
            precision=compute.precision,
            build=build,
            tokenizing=sample.seconds if sample is not None else 0.0,
            step=step,
            scoring=scoring,
            write=_write_seconds(),
            rows=sample.text.rows if sample is not None else None,
            memory=peak_memory(compute.device),
            space=needed(prepared),
            cache=sample.bytes if sample is not None else 0,
            seconds=time.perf_counter() - began,
        )


def _batches(
    job: Job, experiment: Experiment, world: int, missing: Collection[str]
) -> tuple[Sample | None, BatchSource[Any] | None]:
    """Return a sample of the text and its batches, each None for a recipe without training."""
    data, train = job.loaded.recipe.data, job.loaded.recipe.train
    if train.steps == 0:
        return None, None
    columns = (experiment.columns - set(missing)) or {"text"}
    settings = experiment.plans, train.batch_size, data.max_length, job.seed, 0, world
    if data.streaming:
        stream = open_stream(data, columns)
        return None, Stream(stream, *settings)
    sample = Sample(open_text(data, columns), max(SENTENCES, 16 * train.batch_size))
    return sample, Batches(cast("Text", sample), *settings)


def _step_seconds(
    experiment: Experiment, batches: BatchSource[Any], compute: Compute, seed: int, seconds: float
) -> float:
    """Return the median seconds of a training step with a full queue."""
    method = experiment.method
    # Compilation takes a minute.
    settings = experiment.recipe.train.model_copy(update={"compile": None})
    stepper = TrainStep(method, batches, settings, compute, seed, TOTAL)
    method.train()
    try:
        for done in range(WARM_UP):
            taken = stepper.take(done)
        if method.queue is not None:
            for _ in range((method.queue.length or 0) // batches.batch_size + 1):
                method.queue.after_step(taken.step)
        each: list[float] = []
        while len(each) < FEWEST or sum(each) < seconds:
            _wait(compute)
            began = time.perf_counter()
            stepper.take(WARM_UP + len(each))
            _wait(compute)
            each.append(time.perf_counter() - began)
        return median(each)
    finally:
        stepper.close()


def _wait(compute: Compute) -> None:
    if is_accelerator(compute.device):
        torch.accelerator.synchronize(compute.device)


def _write_seconds() -> float:
    """Return the seconds for writing one byte of a checkpoint to the state directory."""
    with TemporaryDirectory(dir=require_home(), prefix=".probe-") as folder:
        began = time.perf_counter()
        checkpoint.write(Path(folder) / checkpoint.FILE, {"bytes": torch.zeros(WRITTEN, dtype=torch.uint8)})
        return (time.perf_counter() - began) / WRITTEN


def _forget_peak(device: torch.device) -> None:
    """Set the peak memory to the current memory."""
    forget_peak(device)
    with suppress(OSError):  # only on Linux
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
