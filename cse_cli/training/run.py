"""The life of one run, from its record to its result."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from cse_cli.core.devices import choose, missing_memory
from cse_cli.core.distributed import explain_lost_rank, run_on_rank0
from cse_cli.core.environment import environment
from cse_cli.core.garbage import usual_collection
from cse_cli.core.part_errors import part_errors
from cse_cli.core.results import SERIES_FOLDER, Result, Scores, Versions, write_series
from cse_cli.core.threads import is_portable, torch_threads_restored
from cse_cli.data.identity import ENGINE, identify
from cse_cli.evaluation.evaluate import evaluate, word_overlaps
from cse_cli.mirrors.mirror import Follower
from cse_cli.recipe.load import load
from cse_cli.recipe.schema import Recipe
from cse_cli.runs.claim import open_run
from cse_cli.runs.events import Listener
from cse_cli.runs.index import asked, read_run
from cse_cli.runs.record import ENVIRONMENT, MODEL, RECIPE, RESULT, About, RunRecord, folder_of, read_about
from cse_cli.runs.signals import ending
from cse_cli.runs.system import sampled
from cse_cli.training import checkpoint
from cse_cli.training.build import Experiment, Prepared, prepare
from cse_cli.training.health import loss_not_finite
from cse_cli.training.train_step import TrainStep
from cse_cli.training.trainer import Trainer
from registry.distributed import rank, world_size
from registry.errors import CseError, DiskError, RunFailedError
from registry.machinery import plugins
from registry.paths import no_room
from registry.resources import hub
from registry.types import Encoder, Evaluator

SCORING = "scoring the selected state"
"""Progress line of a run after its last step."""
OF_TRAINING = (
    "curve", "selected_step", "steps", "early_stop", "last_state", "measures", "seconds", "speed",
    "sentences_per_second",
)  # fmt: skip
"""Fields of a result that a run has from the one whose model it scores again."""


def train(run_id: str, device: str = "auto", listener: Listener | None = None) -> Result:
    """Do a claimed run, from the start or from its last checkpoint: build, train, score, record.

    If a process group is initialized, every process of it calls this with the same run: they train together, only the
    first one writes, and all return its result. A run that ends otherwise raises an error, and its record has the
    reason.
    """
    own: list[RunRecord] = []  # the record is open only in the first process

    def begin() -> tuple[About, Recipe, str]:
        about, given = read_about(run_id), {Path(file).name for file in plugins.named()}
        for file in about.plugins:
            if Path(file).name not in given:
                plugins.add(file)
        recipe = load(str(about.path / RECIPE)).recipe
        precision: str = recipe.train.precision
        with suppress(OSError, ValueError):  # a run that is resumed keeps its precision, also on another device
            recorded = json.loads((about.path / ENVIRONMENT).read_text(encoding="utf-8"))
            precision = recorded.get("precision", precision)
        if recipe.train.portable and not (is_portable() and torch.backends.cpu.get_cpu_capability() == "AVX2"):
            raise CseError(
                "train.portable needs a processor with AVX2, and a separate process whose settings torch reads first",
                "use `cse run` without --cluster and torchrun, on x86-64",
                code="training.not_portable",
            )
        own.append(open_run(run_id, listener))
        return about, recipe, precision

    about, recipe, precision = run_on_rank0(begin)  # another machine of torchrun has neither the record nor the recipe
    record = own[0] if own else RunRecord(run_id, None, is_trial=about.trial is not None)
    with (
        ExitStack() as after_end, ending(record), torch_threads_restored(), _explained(run_id),
        explain_lost_rank(), part_errors(), ExitStack() as before_end,
    ):  # fmt: skip
        before_end.enter_context(hub.pinned(about.commits))
        compute = choose("cpu", "fp32") if recipe.train.portable else choose(device, precision)
        prepared = prepare(recipe, about.seed or 0, compute, record, about.scores_again)
        one, text = prepared.experiment, prepared.text
        now = run_on_rank0(lambda: identify(recipe, None if text is None else text.fingerprint))
        if about.identity is not None and (changed := about.identity.differences(now)):
            raise experiment_changed(about, map(str, changed))
        if rank() == 0:
            follower = Follower(run_id)
            # If several processes fail, the first one does not wait: the others end before it.
            after_end.push(lambda kind, *_: (follower.leave if kind and world_size() > 1 else follower.close)())
            before_end.enter_context(sampled(record))
            if not (record.path / ENVIRONMENT).exists():
                record_inputs(record, prepared, about.source)
        trainer = None
        if prepared.batches is None:
            one.method.to(compute.device)
        else:
            trainer = Trainer(prepared, record.path, record)
            if run_on_rank0(lambda: bool(checkpoint.saved(record.path))):
                trainer.restore()
        record.started(
            0 if trainer is None else trainer.progress.step, prepared.steps, device=compute.describe(),
            precision=compute.precision, sentences=prepared.sentences,
            hint=compute.hint if recipe.train.precision == "auto" and not recipe.train.portable else "",
        )  # fmt: skip
        if trainer is not None:
            with usual_collection():
                trainer.run()
            trainer.finish()
        record.progress(SCORING)

        def scores_of(encoder: Encoder) -> Scores:
            return evaluate(
                encoder, one.evaluators, one.recipe.evaluate, compute, specs=one.specs,
                show=lambda _, share: record.progress(SCORING, share, 1), columns=prepared.own_columns,
            )  # fmt: skip

        changes: dict[str, Any] = {}
        if one.trained is not None and (earlier := read_run(about.scores_again).result) is not None:
            changes = {name: getattr(earlier, name) for name in OF_TRAINING}
            before = scores_of(one.method.encoder(one.recipe.evaluate.encoder)) if earlier.untrained else {}
            changes["untrained"] = {name: before[name] for name in earlier.untrained}
        scores = scores_of(one.scored)  # evaluators keep the series of the last encoder

        def finish() -> Result:
            result = make_result(prepared, trainer, scores, about).model_copy(update=changes)
            record_outcome(record, prepared, result, about.name)
            return result

        return run_on_rank0(finish)


def experiment_changed(about: About, changed: Iterable[str]) -> CseError:
    """Return the error that a run cannot be resumed with these changes."""
    return CseError(
        f"cannot resume run {about.short} because the experiment changed:\n  " + "\n  ".join(changed),
        "restore the experiment, or start a new run without --resume",
        code="training.experiment_changed",
    )


@contextmanager
def _explained(run_id: str) -> Iterator[None]:
    """Turn a lack of memory or disk space into one message. On a full disk, free space to record the end of the run."""
    try:
        yield
    except Exception as error:
        if (reason := missing_memory(error)) is not None:
            raise RunFailedError(
                f"run {run_id[:8]}: {reason}",
                "lower train.batch_size or data.max_length, or train in bf16",
                code="training.out_of_memory",
            ) from error
        if (reason := no_room(error)) is None:
            raise
        folder = folder_of(run_id)
        for file in (folder / checkpoint.FILE).with_suffix(".partial"), folder / checkpoint.PREVIOUS:
            with suppress(OSError):
                file.unlink()
        target = getattr(error, "filename", None) or folder
        raise DiskError(
            f"run {run_id[:8]} stopped because {target} could not be written: {reason}",
            f"free space, then resume it: cse run --resume {run_id[:8]}",
            code="training.disk_full",
        ) from error


@part_errors()
def try_step(prepared: Prepared) -> dict[str, float]:
    """Take the first step of a training, and return label → loss. Without training, return nothing."""
    if prepared.batches is None:
        return {}
    one, compute = prepared.experiment, prepared.compute
    method = one.method.to(compute.device).train()
    stepper = TrainStep(method, prepared.batches, one.recipe.train, compute, prepared.seed, prepared.steps)
    with closing(stepper):
        taken = stepper.take(0)
    losses = {label: loss.item() for label, loss in taken.losses.items()}
    if not torch.isfinite(taken.loss):
        raise loss_not_finite(taken.loss.item(), 1, losses)
    return losses


AVERAGE = "eval/avg"
"""Metric by which tables of runs are sorted: `Result.average`."""
_DIGITS = 4
"""Decimals of averages in the metrics, which are means of scores rounded to two."""


def record_inputs(record: RunRecord, prepared: Prepared, source: str) -> None:
    """Record the environment, and the digests of the data, before the first step. `source` is the recipe's file."""
    recipe = prepared.experiment.recipe
    facts = {**environment(Path(source)), "precision": prepared.compute.precision}
    record.file(ENVIRONMENT, json.dumps(facts, indent=1))
    if prepared.text is not None:
        name, digest = recipe.data.named, prepared.text.fingerprint
        record.event("dataset", name=Path(name).name, digest=digest, context="training", source=name)
    for name, digest in _fingerprints(prepared.experiment).items():
        record.event("dataset", name=name, digest=digest, context="evaluation", source=name)


def record_outcome(record: RunRecord, prepared: Prepared, result: Result, name: str) -> None:
    """Write the scores and the result of a run and, unless it is a trial, its model and score series.

    `result.json` has every metric. The events have the metrics that tables show. `name` is the name of the run.
    """
    experiment, folder = prepared.experiment, record.path
    record.metrics(final_metrics(result, experiment.evaluators), prepared.steps)
    if not record.is_trial:
        experiment.scored.export(folder / MODEL, experiment.recipe.evaluate.max_length)
        step = prepared.steps if result.selected_step is None else result.selected_step
        facts = {"recipe": result.recipe, "seed": str(result.seed), "encoder": result.model, "step": str(step)}
        record.event("model", name=MODEL, title=name, about=facts)
        series = {name: evaluator.series() for name, evaluator in experiment.evaluators.items()}
        write_series(series, folder / SERIES_FOLDER)
        if (folder / SERIES_FOLDER).is_dir():
            record.file(SERIES_FOLDER)
    record.file(RESULT, result.to_json())


def final_metrics(result: Result, evaluators: Mapping[str, Evaluator]) -> dict[str, float]:
    """Return the metrics of a result: averages, and the metrics of each evaluator that tables show."""
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


def make_result(prepared: Prepared, trainer: Trainer | None, scores: Scores, about: About) -> Result:
    """Return the result of a finished run."""
    recipe = prepared.experiment.recipe
    now = environment(Path(about.source))
    rate = None
    if trainer is not None and trainer.progress.step_seconds > 0:
        rate = trainer.progress.step * recipe.train.batch_size / trainer.progress.step_seconds
    fingerprints = _fingerprints(prepared.experiment)
    assert about.identity is not None
    if about.identity.text:
        fingerprints["training"] = about.identity.text
    return Result(
        **asked(about),
        title=recipe.title,
        language=recipe.language,
        model=recipe.model,
        scores=scores,
        untrained=trainer.progress.untrained if trainer else {},
        word_overlap=word_overlaps(prepared.experiment.evaluators),
        curve=trainer.selection.curve if trainer else {},
        selected_step=trainer.selection.step if trainer else None,
        metric_for_best_model=recipe.evaluate.metric_for_best_model,
        steps=prepared.steps,
        early_stop=trainer.early_stop if trainer else None,
        last_state=trainer.last_state if trainer else None,
        fingerprints=fingerprints,
        scored_on={name: each.fingerprints() for name, each in prepared.experiment.evaluators.items()},
        measures=trainer.measures if trainer else {},
        versions=Versions(
            cse=now["cse"], python=now["python"], torch=now["torch"], transformers=now["transformers"], git=now["git"],
            engine=ENGINE,
        ),
        device=prepared.compute.describe(),
        processor=now["processor"],
        precision=prepared.compute.precision,
        seconds=trainer.progress.seconds if trainer else 0.0,
        sentences_per_second=rate,
        speed=trainer.stepper.watch.speed() if trainer else None,
        finished=datetime.now(UTC),
    )  # fmt: skip


def _fingerprints(experiment: Experiment) -> dict[str, str]:
    read = [evaluator.fingerprints() for evaluator in experiment.evaluators.values()]
    return {name: digest for each in [experiment.scored.fingerprints(), *read] for name, digest in each.items()}
