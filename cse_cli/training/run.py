"""One run of one recipe with one seed: build, train, score, record.

What is written down of a run: its inputs before the first step, its outcome after the last.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from cse_cli import tracking
from cse_cli.core import distributed as lost
from cse_cli.core import results as series
from cse_cli.core.console import Observer, Pruned, Silent, Started
from cse_cli.core.devices import choose, settle
from cse_cli.core.distributed import after_first, from_first
from cse_cli.core.environment import environment, git_commit
from cse_cli.core.formatting import to_toml
from cse_cli.core.paths import home
from cse_cli.core.results import PaperRow, Result, Scores, Versions
from cse_cli.core.run_folder import RunFolder
from cse_cli.data.batches import Batches
from cse_cli.data.requirements import fetch, merged_requirements
from cse_cli.data.sources import Text, open_text
from cse_cli.data.stream import Stream, open_stream
from cse_cli.evaluation.evaluate import evaluate
from cse_cli.recipe.schema import Recipe
from cse_cli.recipe.validate import is_test_split
from cse_cli.tracking import location as tags
from cse_cli.training import checkpoint
from cse_cli.training.build import Below, Experiment, Job, Prepared, resolve
from cse_cli.training.trainer import Trainer, state_digest
from registry import ENCODERS, hub
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
    after_first(lambda: fetch(merged_requirements([recipe]), observer.downloading))
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
    record_inputs(tracker, prepared)
    folder.create()  # after its inputs are recorded: what can be taken up again has them


def _record_outcome(
    prepared: Prepared,
    trainer: Trainer | None,
    scores: Scores,
    tracker: tracking.Tracker,
    folder: RunFolder,
    observer: Observer,
) -> Result:
    result = make_result(prepared, trainer, scores, tracker.run_id)
    record_outcome(tracker, prepared, result, folder.path)
    for told in [] if prepared.job.lean else record_details(tracker, prepared, result, folder.path):
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
    parent = job.below.parent if job.below else None
    return tracking.start(job.name, params(job.loaded.recipe.resolved()), run_tags(job), parent=parent)


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


def params(resolved: Mapping[str, Any]) -> dict[str, str]:
    """Return every leaf of the resolved recipe by dotted key, as a tracking store's parameters."""

    def leaves(tables: Mapping[str, Any], prefix: str) -> dict[str, str]:
        found: dict[str, str] = {}
        for key, value in tables.items():
            if isinstance(value, Mapping):
                found |= leaves(value, f"{prefix}{key}.")
            else:
                found[f"{prefix}{key}"] = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        return found

    return leaves({k: v for k, v in resolved.items() if k not in {"description", "tune"}}, "")


def run_tags(job: Job) -> dict[str, str]:
    """Return how the tracking store finds the run again."""
    recipe = job.loaded.recipe
    run_tags = {
        "cse.recipe": job.loaded.name,
        "cse.recipe_hash": recipe.hash(),
        "cse.seed": str(job.seed),
        "cse.git": git_commit(job.loaded.path) or "",
        "mlflow.note.content": recipe.description or recipe.title,
    }
    if recipe.paper is not None:
        run_tags["cse.paper"] = f"{recipe.paper.key}/{recipe.paper.table}/{recipe.paper.row}"
    if job.study is not None:
        run_tags["cse.study"] = job.study
    if job.below is not None:
        run_tags |= job.below.tags
    if _test_selected(recipe):
        run_tags["cse.test_selected"] = "true"
    return run_tags


def record_inputs(tracker: tracking.Tracker, prepared: Prepared) -> None:
    """Write recipe, environment and data digests before the first step."""
    recipe = prepared.job.loaded.recipe
    tracker.text("recipe.toml", prepared.job.loaded.text)
    tracker.text("resolved.toml", to_toml(recipe.resolved()))
    tracker.text("commits.json", json.dumps(hub.used(), indent=1))
    tracker.text("environment.json", json.dumps(environment(prepared.job.loaded.path), indent=1))
    if prepared.text is not None:
        source = recipe.data.named
        tracker.dataset(Path(source).name, prepared.text.fingerprint, "training", source)
    for name, digest in _fingerprints(prepared.experiment).items():
        tracker.dataset(name, digest, "evaluation", name)


def record_outcome(tracker: tracking.Tracker, prepared: Prepared, result: Result, folder: Path) -> None:
    """Write scores, the typed result and the selected model, if that is to be kept."""
    recipe = prepared.job.loaded.recipe
    final = {f"eval/{name}.{metric}": v for name, values in result.scores.items() for metric, v in values.items()}
    tracker.metrics(final | _shares(result), prepared.steps)
    tracker.text("result.json", result.model_dump_json(indent=1))
    if not prepared.job.lean:
        model = folder / "model"
        prepared.experiment.scored.export(model, recipe.evaluate.max_length)
        tracker.folder(model, "model")


def record_details(tracker: tracking.Tracker, prepared: Prepared, result: Result, folder: Path) -> list[str]:
    """Write the numbers behind the scores, and figures of them; return what the user should be told."""
    record_series(tracker, prepared, folder)
    return record_figures(tracker, prepared, result, folder)


def record_series(tracker: tracking.Tracker, prepared: Prepared, folder: Path) -> None:
    """Write the numbers behind the scores of the selected state."""
    series.write({name: one.series() for name, one in prepared.experiment.evaluators.items()}, folder / series.FOLDER)
    if (folder / series.FOLDER).is_dir():
        tracker.folder(folder / series.FOLDER, series.FOLDER)


def record_figures(tracker: tracking.Tracker, prepared: Prepared, result: Result, folder: Path) -> list[str]:
    """Draw what there is data for; return what the user should be told: a figure that fails costs no run its scores."""
    from cse_cli.analysis.run_figures import draw  # matplotlib: only where a run has come to its end

    evaluators = prepared.experiment.evaluators
    numbers = {name: evaluator.series() for name, evaluator in evaluators.items()}
    data = {name: list(evaluator.fingerprints()) for name, evaluator in evaluators.items()}
    figures = folder / "figures"
    told: list[str] = []
    try:
        draw(result, numbers, figures, data)
    except Exception as error:
        told.append(f"figures are missing: {type(error).__name__}: {error}")
    if figures.is_dir():
        tracker.folder(figures, "figures")
    return told


def make_result(prepared: Prepared, trainer: Trainer | None, scores: Scores, run_id: str) -> Result:
    """Return all a leaderboard needs of a finished run."""
    recipe = prepared.job.loaded.recipe
    now = environment(prepared.job.loaded.path)
    rate = None
    if trainer is not None and trainer.progress.step_seconds > 0:
        rate = trainer.progress.step * recipe.train.batch_size / trainer.progress.step_seconds
    fingerprints = _fingerprints(prepared.experiment)
    if prepared.text is not None:
        fingerprints["training"] = prepared.text.fingerprint
    return Result(
        recipe=prepared.job.loaded.name,
        title=recipe.title,
        recipe_hash=recipe.hash(),
        language=recipe.language,
        seed=prepared.job.seed,
        paper=None if recipe.paper is None else PaperRow(**recipe.paper.model_dump()),
        model=_model(recipe, recipe.evaluate.encoder),
        scores=scores,
        untrained=trainer.progress.untrained if trainer else {},
        curve=trainer.selection.curve if trainer else {},
        selected_step=trainer.selection.step if trainer else None,
        select=recipe.evaluate.select,
        test_selected=_test_selected(recipe),
        steps=prepared.steps,
        last_state=trainer.last_state if trainer else None,
        fingerprints=fingerprints,
        commits=hub.used(),
        measures=trainer.measures if trainer else {},
        versions=Versions(
            cse=now["cse"], python=now["python"], torch=now["torch"], transformers=now["transformers"], git=now["git"]
        ),
        device=prepared.compute.describe(),
        precision=prepared.compute.precision,
        seconds=trainer.progress.seconds if trainer else 0.0,
        sentences_per_second=rate,
        speed=trainer.stepper.watch.speed() if trainer else None,
        run_id=run_id,
        finished=datetime.now(UTC),
    )


def _shares(result: Result) -> dict[str, float]:
    """Return each part's share of the training's time, as a tracking store's metrics."""
    return {} if result.speed is None else {f"speed/share_{k}": v for k, v in result.speed.shares.items()}


def _fingerprints(experiment: Experiment) -> dict[str, str]:
    read = [evaluator.fingerprints() for evaluator in experiment.evaluators.values()]
    return {name: digest for each in [experiment.scored.fingerprints(), *read] for name, digest in each.items()}


def _model(recipe: Recipe, encoder: str) -> str:
    """Return the model that an encoder starts from, through the encoders it is made of."""
    part = recipe.encoders[encoder]
    if "model" in part.params:
        return str(part.params["model"])
    inner = [str(part.params[r.parameter]) for r in ENCODERS[part.name].references if r.kind == "encoder"]
    return _model(recipe, inner[0]) if inner else ""


def _test_selected(recipe: Recipe) -> bool:
    if recipe.evaluate.select is None:
        return False
    return is_test_split(recipe.evaluators[recipe.evaluate.select.rpartition(".")[0]].params)
