"""Records of a run: its inputs before the first step, its outcome after the last."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from cse_cli.core.environment import environment
from cse_cli.core.results import SERIES_FOLDER, Result, Scores, Versions, write_series
from cse_cli.data.identity import ENGINE
from cse_cli.evaluation.evaluate import word_overlaps
from cse_cli.recipe.schema import Recipe
from cse_cli.runs.index import asked
from cse_cli.runs.record import ENVIRONMENT, MODEL, RESULT, About, RunRecord
from cse_cli.training.build import Experiment, Prepared
from cse_cli.training.trainer import Trainer
from registry import ENCODERS
from registry.types import Evaluator

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
        model=model_of(recipe),
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


def model_of(recipe: Recipe) -> str:
    """Return the model that the scored encoder, or the innermost encoder that it wraps, starts from."""
    part = recipe.encoders[recipe.evaluate.encoder]
    while "model" not in part.params:
        inner = [part.params[r.parameter] for r in ENCODERS[part.name].references if r.kind == "encoder"]
        if not inner:
            return ""
        part = recipe.encoders[str(inner[0])]
    return str(part.params["model"])
