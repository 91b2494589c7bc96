"""One run of one recipe with one seed: build, train, score, record."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from cse_cli import recording, tracking
from cse_cli.cores import settle
from cse_cli.data.batches import Batches
from cse_cli.data.requirements import fetch, merged
from cse_cli.data.sources import Text, open_text
from cse_cli.data.stream import Stream, open_stream
from cse_cli.devices import choose
from cse_cli.evaluation import evaluate
from cse_cli.home import home
from cse_cli.job import Below, Job, Prepared
from cse_cli.observer import Observer, Pruned, Silent, Started
from cse_cli.processes import lost
from cse_cli.ranks import after_first, from_first
from cse_cli.resolve import resolve
from cse_cli.results import Result, Scores
from cse_cli.run_folder import RunFolder
from cse_cli.tracking import tags
from cse_cli.training import checkpoint
from cse_cli.training.loop import Trainer, state_digest
from registry import hub
from registry.distributed import rank, world_size
from registry.errors import CseError, RunFailedError

_STEPS = "n sentences are n / train.batch_size steps"


def prepare(job: Job, observer: Observer) -> Prepared:
    """Build and read all that a job needs; nothing is recorded and no run exists yet.

    Raises:
        CseError: A model or data set is missing, or parts do not fit.
    """
    recipe = job.loaded.recipe
    settle()
    compute = choose(job.device, recipe.train.precision)
    hub.forget()
    hub.pin(job.resume.commits if job.resume is not None else {})
    after_first(lambda: fetch(merged([recipe]), observer.downloading))
    observer.preparing("building the method")
    experiment = resolve(recipe, job.seed)
    if recipe.train.steps == 0:
        return Prepared(job, compute, experiment, None, None, 0)
    place = rank(), world_size()

    settings = experiment.plans, recipe.train.batch_size, recipe.data.max_length, job.seed, *place

    def read() -> tuple[Text, Batches]:
        text = open_text(recipe.data, experiment.columns)
        for notice in text.notices:
            observer.warned(notice)
        return text, Batches(text, *settings, progress=_tokenising(observer))

    if recipe.data.streaming:
        if recipe.train.steps is None:
            raise CseError("data.streaming needs train.steps: the length of a stream is not known", _STEPS)
        stream = open_stream(recipe.data, experiment.columns)
        return Prepared(job, compute, experiment, stream, Stream(stream, *settings), recipe.train.steps)
    text, batches = after_first(read)
    steps = recipe.train.steps or recipe.train.epochs * batches.steps_per_epoch
    return Prepared(job, compute, experiment, text, batches, steps)


def execute(job: Job, observer: Observer) -> Result:
    """Run a job to its end and record it.

    Where a process group is initialised, every process of it calls this with the same job: they train together, the
    first one alone writes and tells, and all return its result.

    Raises:
        CseError: It could not start, or failed on the way; the record then says FAILED.
        Pruned: The observer ended it; the record then says FINISHED, marked as pruned.
    """
    observer = observer if rank() == 0 else Silent()
    prepared = prepare(job, observer)
    tracker, folder = _begin(prepared)
    with _explained(folder, observer), tracking.ending(tracker), lost.explained(), _pruned(folder, tracker):
        if job.resume is None:
            from_first(lambda: _record_inputs(prepared, tracker, folder))
        trainer = _train(prepared, folder.path, tracker, observer)
        observer.preparing("scoring the selected state")
        one, settings = prepared.experiment, job.loaded.recipe.evaluate
        scores = evaluate(one.scored, one.evaluators, settings, prepared.compute, plans=one.plans)
        result = from_first(lambda: _record_outcome(prepared, trainer, scores, tracker, folder, observer))
    if rank() == 0:
        folder.close()
    return result


def _record_inputs(prepared: Prepared, tracker: tracking.Tracker, folder: RunFolder) -> None:
    recording.record_inputs(tracker, prepared)
    folder.create()  # after its inputs are recorded: what can be taken up again has them


def _record_outcome(
    prepared: Prepared,
    trainer: Trainer | None,
    scores: Scores,
    tracker: tracking.Tracker,
    folder: RunFolder,
    observer: Observer,
) -> Result:
    result = recording.make_result(prepared, trainer, scores, tracker.run_id)
    recording.record_outcome(tracker, prepared, result, folder.path)
    for told in [] if prepared.job.lean else recording.record_details(tracker, prepared, result, folder.path):
        observer.warned(told)
    return result


@contextmanager
def _pruned(folder: RunFolder, tracker: tracking.Tracker) -> Iterator[None]:
    """Mark a run that its observer ended, and leave nothing to take up."""
    try:
        yield
    except Pruned:
        tracker.tags({tags.PRUNED: "true"})
        if rank() == 0:
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
    job, first = prepared.job, rank() == 0
    tracker = after_first(lambda: _open(job) if first else tracking.NullTracker())
    tracker.run_id = from_first(lambda: tracker.run_id)
    if job.resume is not None:
        return tracker, job.resume
    source, resolved = job.loaded.path.absolute(), job.loaded.recipe.resolved()
    return tracker, RunFolder(tracker.run_id, job.loaded.name, source, resolved, hub.used())


def _open(job: Job) -> tracking.Tracker:
    if job.resume is not None:  # by another trial of a search, perhaps
        below = job.below or Below(None, "")
        return tracking.start(below.name, {}, below.tags, job.resume.run_id)
    params, parent = recording.params(job.loaded.recipe.resolved()), job.below.parent if job.below else None
    return tracking.start(job.name, params, recording.tags(job), parent=parent)


def _train(prepared: Prepared, folder: Path, tracker: tracking.Tracker, observer: Observer) -> Trainer | None:
    if prepared.batches is None or prepared.text is None:
        prepared.experiment.method.to(prepared.compute.device)
        return None
    job = prepared.job
    trainer = Trainer(prepared, folder, tracker, observer)
    if job.resume is not None and from_first((folder / checkpoint.FILE).exists):  # else killed before its first one
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
            sentences=prepared.sentences,
        )
    )
    trainer.run()
    trainer.last_state = from_first(lambda: state_digest(checkpoint.method_state(trainer.method)))
    trainer.selection.restore(prepared.experiment.scored)
    return trainer


def _tokenising(observer: Observer) -> Callable[[int, int], None]:
    return lambda done, total: observer.preparing("tokenising", done, total)
