"""One run of one recipe with one seed: build, train, score, record."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from cse_cli import recording, tracking
from cse_cli.data import Batches, open_text
from cse_cli.devices import choose
from cse_cli.evaluation import evaluate
from cse_cli.home import home
from cse_cli.job import Job, Prepared
from cse_cli.observer import Observer, Pruned, Started
from cse_cli.resolve import resolve
from cse_cli.results import Result
from cse_cli.run_folder import RunFolder
from cse_cli.tracking import tags
from cse_cli.training import checkpoint
from cse_cli.training.loop import Trainer, state_digest
from registry.errors import RunFailedError


def prepare(job: Job, observer: Observer) -> Prepared:
    """Build and read all that a job needs; nothing is recorded and no run exists yet.

    Raises:
        CseError: A model or data set is missing, or parts do not fit.
    """
    recipe = job.loaded.recipe
    compute = choose(job.device, recipe.train.precision)
    observer.preparing("building the method")
    experiment = resolve(recipe, job.seed)
    if recipe.train.steps == 0:
        return Prepared(job, compute, experiment, None, None, 0)
    text = open_text(recipe.data, experiment.columns)
    batches = Batches(
        text,
        experiment.plans,
        recipe.train.batch_size,
        recipe.data.max_length,
        job.seed,
        progress=_tokenising(observer),
    )
    steps = recipe.train.steps or recipe.train.epochs * batches.steps_per_epoch
    return Prepared(job, compute, experiment, text, batches, steps)


def execute(job: Job, observer: Observer) -> Result:
    """Run a job to its end and record it.

    Raises:
        CseError: It could not start, or failed on the way; the record then says FAILED.
        Pruned: The observer ended it; the record then says FINISHED, marked as pruned.
    """
    prepared = prepare(job, observer)
    recipe = job.loaded.recipe
    tracker, folder = _begin(prepared)
    with _explained(folder, observer), tracking.ending(tracker), _pruned(folder, tracker):
        if job.resume is None:
            recording.record_inputs(tracker, prepared)
            folder.create()  # after its inputs are recorded: what can be taken up again has them
        trainer = _train(prepared, folder.path, tracker, observer)
        observer.preparing("scoring the selected state")
        one = prepared.experiment
        scores = evaluate(one.scored, one.evaluators, recipe.evaluate, prepared.compute, plans=one.plans)
        result = recording.make_result(prepared, trainer, scores, tracker.run_id)
        recording.record_outcome(tracker, prepared, result, folder.path)
        for told in [] if job.lean else recording.record_details(tracker, prepared, result, folder.path):
            observer.warned(told)
    folder.close()
    return result


@contextmanager
def _pruned(folder: RunFolder, tracker: tracking.Tracker) -> Iterator[None]:
    """Mark a run that its observer ended, and leave nothing to take up."""
    try:
        yield
    except Pruned:
        tracker.tags({tags.PRUNED: "true"})
        folder.close()
        raise


@contextmanager
def _explained(folder: RunFolder, observer: Observer) -> Iterator[None]:
    """Say how to go on after an interruption; turn a device without memory into a message."""
    try:
        yield
    except (KeyboardInterrupt, tracking.Terminated):
        observer.stopped(folder.run_id if folder.path.is_dir() else None)
        raise
    except torch.OutOfMemoryError as error:
        raise RunFailedError(
            f"run {folder.run_id[:8]}: {error}", "lower train.batch_size or data.max_length, or train in bf16"
        ) from error


def _begin(prepared: Prepared) -> tuple[tracking.Tracker, RunFolder]:
    job = prepared.job
    name = job.below.name if job.below else f"{job.loaded.name} seed {job.seed}"
    if job.resume is not None:
        return tracking.start(name, {}, {}, job.resume.run_id), job.resume
    resolved = job.loaded.recipe.resolved()
    parent = job.below.parent if job.below else None
    tracker = tracking.start(name, recording.params(resolved), recording.tags(job), parent=parent)
    return tracker, RunFolder(tracker.run_id, job.loaded.name, job.loaded.path.absolute(), resolved)


def _train(prepared: Prepared, folder: Path, tracker: tracking.Tracker, observer: Observer) -> Trainer | None:
    if prepared.batches is None or prepared.text is None:
        prepared.experiment.method.to(prepared.compute.device)
        return None
    job = prepared.job
    trainer = Trainer(prepared, folder, tracker, observer)
    if job.resume is not None and (folder / checkpoint.FILE).exists():  # else it was killed before its first one
        trainer.restore()
    observer.started(
        Started(
            recipe=job.loaded.name,
            title=job.loaded.recipe.title,
            seed=job.seed,
            device=prepared.compute.describe(),
            precision=prepared.compute.precision,
            run_id=tracker.run_id,
            home=str(home()),
            steps=prepared.steps,
            done=trainer.progress.step,
            sentences=prepared.text.rows,
        )
    )
    trainer.run()
    trainer.last_state = state_digest(checkpoint.method_state(trainer.method))
    trainer.selection.restore(prepared.experiment.scored)
    return trainer


def _tokenising(observer: Observer) -> Callable[[int, int], None]:
    return lambda done, total: observer.preparing("tokenising", done, total)
