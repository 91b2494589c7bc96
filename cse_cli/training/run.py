"""One run of one recipe with one seed: build, train, score, and record its inputs and its outcome."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cse_cli import tracking
from cse_cli.core.console import Observer, Pruned, RunInfo
from cse_cli.core.devices import choose, limit_torch_threads, missing_memory
from cse_cli.core.distributed import explain_lost_rank, rank0_first, run_on_rank0
from cse_cli.core.environment import environment, git_commit, without_password
from cse_cli.core.formatting import to_toml
from cse_cli.core.paths import home
from cse_cli.core.results import SERIES_FOLDER, PaperRow, Result, Scores, Versions, write_series
from cse_cli.core.run_folder import MODEL, MODEL_DIGESTS, RunFolder, note_model_digests
from cse_cli.core.run_log import RunLog
from cse_cli.data.batches import Batches
from cse_cli.data.requirements import fetch
from cse_cli.data.sources import Text, open_text
from cse_cli.data.stream import Stream, open_stream
from cse_cli.evaluation.evaluate import evaluate
from cse_cli.recipe.requirements import merged_requirements
from cse_cli.recipe.schema import Recipe
from cse_cli.recipe.validate import is_test_split
from cse_cli.tracking import location, tags
from cse_cli.training import checkpoint, room
from cse_cli.training.build import Experiment, Job, Prepared, resolve
from cse_cli.training.trainer import Trainer
from registry import ENCODERS, hub
from registry.distributed import rank, world_size
from registry.errors import CseError, RunFailedError
from registry.model_files import weights_sha256
from registry.models import locate
from registry.types import Evaluator

AVERAGE = "eval/avg"
"""The metric by which tables of runs are sorted: `Result.average`."""
_DIGITS = 4
"""Of averages: MLflow's pages show all that there are, and these are means of scores rounded to two."""

SCORING = "scoring the selected state"
"""What a run tells it is doing after its last step."""


def prepare(job: Job, observer: Observer) -> Prepared:
    """Build and read all that a job needs; nothing is recorded and no run exists yet.

    Raises:
        CseError: A model or data set is missing, or parts do not fit.
    """
    recipe = job.loaded.recipe
    limit_torch_threads()
    compute = choose(job.device, recipe.train.precision)
    hub.forget()
    hub.pin(job.resume.commits if job.resume is not None else {})
    rank0_first(lambda: fetch(merged_requirements([recipe]), observer.downloading))
    observer.preparing("building the method")
    experiment = resolve(recipe, job.seed)
    if recipe.train.steps == 0:
        return Prepared(job, compute, experiment, None, None, 0)
    settings = experiment.plans, recipe.train.batch_size, recipe.data.max_length, job.seed, rank(), world_size()
    if recipe.data.streaming:
        if recipe.train.steps is None:
            raise CseError(
                "data.streaming needs train.steps: the length of a stream is not known",
                "n sentences are n / train.batch_size steps",
            )
        stream = open_stream(recipe.data, experiment.columns)
        return Prepared(job, compute, experiment, stream, Stream(stream, *settings), recipe.train.steps)

    def read() -> tuple[Text, Batches]:
        text = open_text(recipe.data, experiment.columns)
        for notice in text.notices:
            observer.warned(notice)
        return text, Batches(text, *settings, lambda done, total: observer.preparing("tokenising", done, total))

    text, batches = rank0_first(read)
    steps = recipe.train.steps or recipe.train.epochs * batches.steps_per_epoch
    return Prepared(job, compute, experiment, text, batches, steps)


def execute(job: Job, observer: Observer) -> Result:
    """Run a job to its end and record it.

    Where a process group is initialised, every process of it calls this with the same job: they train together, the
    first one alone writes and reports, and all return its result.

    Raises:
        CseError: It could not start, or failed later; the record then says FAILED.
        DiskError: There is no room for it, before it starts or later.
        Pruned: The observer ended it; the record then says FINISHED, marked as pruned.
        StopRequested: `cse runs stop` ended it; the record then says KILLED.
    """
    log = RunLog(observer, speaks=rank() == 0)
    prepared = prepare(job, log)
    run_on_rank0(lambda: room.demand(prepared))
    tracker, folder = _open_run(job)
    with (
        log, _messages(folder, log), tracking.ending(tracker), room.told_where_full(folder, room.needed(prepared)),
        explain_lost_rank(), _pruning(folder, tracker),
    ):  # fmt: skip
        if job.resume is None:
            run_on_rank0(lambda: record_inputs(tracker, prepared, folder))
        trainer = _trainer(prepared, folder.path, tracker, log)
        if trainer is not None:
            trainer.run()
            trainer.finish()
        log.preparing(SCORING)
        one, settings = prepared.experiment, job.loaded.recipe.evaluate
        scores = evaluate(
            one.scored, one.evaluators, settings, prepared.compute, plans=one.plans,
            show=lambda _, share: log.scoring(SCORING, share),
        )  # fmt: skip

        def record() -> Result:
            result = make_result(prepared, trainer, scores, folder)
            record_outcome(tracker, prepared, result, folder.path, log)
            return result

        result = run_on_rank0(record)
    if rank() == 0:
        folder.close()
    return result


def _open_run(job: Job) -> tuple[tracking.Tracker, RunFolder]:
    """Return the tracker of a new run, or of the one that is resumed, and its folder.

    Raises:
        CseError: The weights that the resumed run started from are others now; untrained parts come of them again.
    """
    base = run_on_rank0(lambda: _base_sha256(job.loaded.recipe))
    if job.resume is not None and job.resume.base_sha256 not in ("", base):
        raise CseError(
            f"the weights that run {job.resume.run_id[:8]} started from are no longer those that it notes",
            f"put them back, or start it again: cse run {job.resume.recipe}",
        )

    def start() -> tracking.Tracker:
        if rank() > 0:
            return tracking.NullTracker()
        if job.resume is not None:  # by another trial of a search, perhaps
            return tracking.start(job.run_name, {}, job.tags, job.resume.run_id)
        recipe = job.loaded.recipe
        place = job.experiment or location.experiment(family(job.loaded.name, recipe.language))
        own = params(recipe.resolved())
        return tracking.start(job.name, own, run_tags(job), parent=job.parent, experiment=place)

    tracker = rank0_first(start)
    tracker.run_id = run_on_rank0(lambda: tracker.run_id)
    if job.resume is not None:
        return tracker, job.resume
    source, resolved = job.loaded.path.absolute(), job.loaded.recipe.resolved()
    store = without_password(location.kept(location.uri()))
    return tracker, RunFolder(tracker.run_id, job.loaded.name, source, resolved, hub.used(), store, base)


def _trainer(prepared: Prepared, folder: Path, tracker: tracking.Tracker, observer: Observer) -> Trainer | None:
    """Return what trains, at its last checkpoint if there is one; None for a recipe without training."""
    if prepared.batches is None:
        prepared.experiment.method.to(prepared.compute.device)
        return None
    job = prepared.job
    trainer = Trainer(prepared, folder, tracker, observer)
    if job.resume is not None and run_on_rank0(lambda: bool(checkpoint.saved(folder))):  # else killed before its first
        trainer.restore()
    observer.started(
        RunInfo(
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
    return trainer


@contextmanager
def _messages(folder: RunFolder, observer: Observer) -> Iterator[None]:
    """Say how to go on after an interruption; turn memory that is not there into a message."""
    try:
        yield
    except (KeyboardInterrupt, tracking.Terminated):
        observer.stopped(folder.run_id if folder.is_made() else None)
        raise
    except (RuntimeError, MemoryError) as error:
        if (said := missing_memory(error)) is None:
            raise
        raise RunFailedError(
            f"run {folder.run_id[:8]}: {said}", "lower train.batch_size or data.max_length, or train in bf16"
        ) from error


@contextmanager
def _pruning(folder: RunFolder, tracker: tracking.Tracker) -> Iterator[None]:
    """Mark a run that its observer ended, and leave nothing to resume."""
    try:
        yield
    except Pruned:
        tracker.tags({tags.PRUNED: "true"})
        if rank() == 0:
            folder.close()
        raise


# --- what is recorded -------------------------------------------------------------------------------------------------


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


def family(name: str, language: str) -> str:
    """Return the experiment in which a recipe's runs are recorded: "mini/ifcl_en" of "mini/ifcl_en_no_tl".

    It is the recipe's name up to its language: folder, method and language. What follows is a variant, to be compared
    with the others: another model, or a part left out.
    """
    before, found, _ = f"{name}_".partition(f"_{language}_")
    return f"{before}_{language}" if found else name


def run_tags(job: Job) -> dict[str, str]:
    """Return how the tracking store finds the run again, and what a person reads of it first."""
    recipe = job.loaded.recipe
    commit = git_commit(job.loaded.path) or ""
    run_tags = {
        "recipe": job.loaded.name,
        "method": recipe.title.partition(",")[0],
        "encoder": Path(_model(recipe, recipe.evaluate.encoder)).name,
        "data": Path(recipe.data.named).name,
        "seed": str(job.seed),
        "cse.recipe": job.loaded.name,
        "cse.recipe_hash": recipe.hash(),
        "cse.seed": str(job.seed),
        "cse.git": commit,
        "mlflow.note.content": recipe.description or recipe.title,
    }
    if commit:
        run_tags["mlflow.source.git.commit"] = commit
    if recipe.paper is not None:
        run_tags["cse.paper"] = f"{recipe.paper.key}/{recipe.paper.table}/{recipe.paper.row}"
    if job.study is not None:
        run_tags["cse.study"] = job.study
    if job.loaded.changes:
        run_tags[tags.SET] = "; ".join(job.loaded.changes)
    run_tags |= job.tags
    if _test_selected(recipe):
        run_tags["cse.test_selected"] = "true"
    return run_tags


def record_inputs(tracker: tracking.Tracker, prepared: Prepared, folder: RunFolder) -> None:
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
    if folder.base_sha256:
        tracker.tags({tags.BASE: folder.base_sha256})
    folder.create()  # after its inputs are recorded: what can be resumed has them


def record_outcome(
    tracker: tracking.Tracker, prepared: Prepared, result: Result, folder: Path, observer: Observer
) -> None:
    """Write scores and the typed result; unless the job is lean, also the selected model and what explains its scores.

    Those are the numbers behind the scores and figures of what there is data for. A figure that fails is a warning and
    costs no run its scores. `result.json` has every metric, the store those that a table shows.
    """
    final = final_metrics(result, prepared.experiment.evaluators)
    tracker.metrics(final, prepared.steps)
    if AVERAGE in final:
        tracker.tags({tags.AVERAGE: f"{final[AVERAGE]:.2f}"})
    tracker.text("result.json", result.to_json())
    if prepared.job.lean:
        return
    prepared.experiment.scored.export(folder / MODEL, prepared.job.loaded.recipe.evaluate.max_length)
    tracker.text(MODEL_DIGESTS, note_model_digests(folder))
    step = prepared.steps if result.selected_step is None else result.selected_step
    about = {"recipe": result.recipe, "seed": str(result.seed), "encoder": result.model, "step": str(step)}
    tracker.model(folder / MODEL, prepared.job.name, about)
    evaluators = prepared.experiment.evaluators
    numbers = {name: evaluator.series() for name, evaluator in evaluators.items()}
    write_series(numbers, folder / SERIES_FOLDER)
    try:
        from cse_cli.analysis.run_figures import draw_run  # matplotlib: only now, and it may be broken

        draw_run(result, numbers, folder / "figures", {name: list(e.fingerprints()) for name, e in evaluators.items()})
    except Exception as error:
        observer.warned(f"figures are missing: {type(error).__name__}: {error}")
    for made in (SERIES_FOLDER, "figures"):
        if (folder / made).is_dir():
            tracker.folder(folder / made, made)


def final_metrics(result: Result, evaluators: Mapping[str, Evaluator]) -> dict[str, float]:
    """Return what the tracking store gets of a result: averages, and what a table shows of each evaluator.

    Args:
        result: Of the finished run.
        evaluators: Say which of their metrics a table shows; the others repeat these, or explain them.
    """
    averages = {
        AVERAGE: result.average(),
        "eval/untrained_avg": result.average(untrained=True),
        "eval/gain": result.gain,
    }
    scores = {
        f"eval/{name}.{metric}": result.scores[name][metric]
        for name, evaluator in evaluators.items()
        for metric in evaluator.shown_metrics()
        if metric in result.scores[name]
    }
    known = {name: round(value, _DIGITS) for name, value in averages.items() if value is not None}
    return {**known, **scores}


def make_result(prepared: Prepared, trainer: Trainer | None, scores: Scores, folder: RunFolder) -> Result:
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
        base_sha256=folder.base_sha256 or None,
        measures=trainer.measures if trainer else {},
        versions=Versions(
            cse=now["cse"], python=now["python"], torch=now["torch"], transformers=now["transformers"], git=now["git"]
        ),
        device=prepared.compute.describe(),
        precision=prepared.compute.precision,
        seconds=trainer.progress.seconds if trainer else 0.0,
        sentences_per_second=rate,
        speed=trainer.stepper.watch.speed() if trainer else None,
        run_id=folder.run_id,
        finished=datetime.now(UTC),
    )


def _fingerprints(experiment: Experiment) -> dict[str, str]:
    read = [evaluator.fingerprints() for evaluator in experiment.evaluators.values()]
    return {name: digest for each in [experiment.scored.fingerprints(), *read] for name, digest in each.items()}


def _model(recipe: Recipe, encoder: str) -> str:
    """Return the model that an encoder starts from, through the encoders it is made of."""
    return str(_with_model(recipe, encoder).get("model", ""))


def _with_model(recipe: Recipe, encoder: str) -> Mapping[str, Any]:
    """Return the parameters of the encoder that names the model."""
    part = recipe.encoders[encoder]
    inner = [str(part.params[r.parameter]) for r in ENCODERS[part.name].references if r.kind == "encoder"]
    return part.params if "model" in part.params or not inner else _with_model(recipe, inner[0])


def _base_sha256(recipe: Recipe) -> str:
    """Return the digest of the weights that training starts from; empty where they are random or no model's."""
    of = _with_model(recipe, recipe.evaluate.encoder)
    return "" if "model" not in of or of.get("random_weights") else weights_sha256(locate(str(of["model"])))


def _test_selected(recipe: Recipe) -> bool:
    if recipe.evaluate.select is None:
        return False
    return is_test_split(recipe.evaluators[recipe.evaluate.select.rpartition(".")[0]].params)
