"""Record of a run: description, inputs and outcome."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cse_cli.core.environment import environment, git_commit
from cse_cli.core.events import Observer, Warned
from cse_cli.core.identity import Identity
from cse_cli.core.results import SERIES_FOLDER, PaperRow, Result, Scores, Versions, write_series
from cse_cli.data.identity import ENGINE, plugin_poolings
from cse_cli.evaluation.evaluate import word_overlaps
from cse_cli.recipe.schema import Recipe
from cse_cli.recipe.train_parts import train_entries
from cse_cli.recipe.validate import is_test_split
from cse_cli.runs.record import ENVIRONMENT, MODEL, RESULT, About, RunRecord
from cse_cli.training.build import Experiment, Job, Prepared
from cse_cli.training.trainer import Trainer
from registry import ENCODERS, plugins
from registry.core import POOLINGS
from registry.resources import hub
from registry.types import Evaluator

AVERAGE = "eval/avg"
"""Metric by which tables of runs are sorted: `Result.average`."""
_DIGITS = 4
"""Decimals of averages in the metrics, which are means of scores rounded to two."""


def about_run(job: Job, identity: Identity, precision: str = "") -> About:
    """Return the description of a new run, or of a search, which has no precision."""
    recipe, loaded = job.loaded.recipe, job.loaded
    group = job.group or os.environ.get("MLFLOW_EXPERIMENT_NAME") or family(loaded.name, recipe.language)
    paper = recipe.paper
    entries = [*(placed.entry for placed in recipe.parts()), *train_entries(recipe.train)]
    named = [(entry.kind, entry.name) for entry in entries]
    named += [(POOLINGS.kind, pooling.name) for pooling in plugin_poolings(recipe)]
    selecting = recipe.evaluate.metric_for_best_model
    return About(
        name=job.name,
        recipe=loaded.name,
        source=str(loaded.path.absolute()),
        seed=job.seed,
        group=group,
        parent=job.parent,
        study=job.study,
        search=job.search,
        trial=job.trial,
        confirms=job.confirms,
        changes=loaded.changes,
        tags=dict(job.tags),
        note=recipe.description or recipe.title,
        method=recipe.title.partition(",")[0],
        encoder=Path(_model(recipe, recipe.evaluate.encoder)).name,
        data=Path(recipe.data.named).name,
        paper="" if paper is None else f"{paper.key}/{paper.table}/{paper.row}",
        test_selected=selecting is not None and is_test_split(recipe.evaluators[selecting.rpartition(".")[0]].params),
        limited=recipe.evaluate.limit is not None,
        precision=precision,
        commits=hub.used(),
        git=git_commit(loaded.path) or "",
        plugins=plugins.files_of(named),
        identity=identity,
        plan=job.plan,
    )


def family(name: str, language: str) -> str:
    """Return the group of a recipe's runs: "mini/ifcl_en" for "mini/ifcl_en_no_tl".

    It is the recipe's name up to its language. What follows is a variant, to be compared with the others.
    """
    before, found, _ = f"{name}_".partition(f"_{language}_")
    return f"{before}_{language}" if found else name


def record_inputs(record: RunRecord, prepared: Prepared) -> None:
    """Record the environment and the digests of the data before the first step."""
    recipe = prepared.job.loaded.recipe
    facts = {**environment(prepared.job.loaded.path), "precision": prepared.compute.precision}
    record.file(ENVIRONMENT, json.dumps(facts, indent=1))
    if prepared.text is not None:
        source = recipe.data.named
        record.dataset(Path(source).name, prepared.text.fingerprint, "training", source)
    for name, digest in _fingerprints(prepared.experiment).items():
        record.dataset(name, digest, "evaluation", name)


def record_outcome(record: RunRecord, prepared: Prepared, result: Result, observer: Observer) -> None:
    """Write the scores and the result of a run and, unless `scores_only`, its model, score series and figures.

    A figure that fails is a warning. `result.json` has every metric. The events have the metrics that tables show.
    """
    record.metrics(final_metrics(result, prepared.experiment.evaluators), prepared.steps)
    folder = record.path
    if not prepared.job.scores_only:
        prepared.experiment.scored.export(folder / MODEL, prepared.job.loaded.recipe.evaluate.max_length)
        step = prepared.steps if result.selected_step is None else result.selected_step
        about = {"recipe": result.recipe, "seed": str(result.seed), "encoder": result.model, "step": str(step)}
        record.model(MODEL, prepared.job.name, about)
        _explain(record, prepared, result, observer)
    record.file(RESULT, result.to_json())


def _explain(record: RunRecord, prepared: Prepared, result: Result, observer: Observer) -> None:
    """Write the values behind the scores and the figures."""
    evaluators, folder = prepared.experiment.evaluators, record.path
    numbers = {name: evaluator.series() for name, evaluator in evaluators.items()}
    write_series(numbers, folder / SERIES_FOLDER)
    try:
        from cse_cli.analysis.run_figures import draw_run  # imports matplotlib, which may fail

        draw_run(result, numbers, folder / "figures", {name: list(e.fingerprints()) for name, e in evaluators.items()})
    except Exception as error:
        observer.observe(Warned(f"figures are missing: {type(error).__name__}: {error}"))
    for made in (SERIES_FOLDER, "figures"):
        if (folder / made).is_dir():
            record.file(made)


def final_metrics(result: Result, evaluators: Mapping[str, Evaluator]) -> dict[str, float]:
    """Return the metrics of a result: averages, and the metrics of each evaluator that tables show.

    Args:
        result: Result of the run.
        evaluators: Name → evaluator. It declares which of its metrics tables show.
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


def make_result(prepared: Prepared, trainer: Trainer | None, scores: Scores, about: About) -> Result:
    """Return the result of a finished run."""
    recipe = prepared.job.loaded.recipe
    now = environment(prepared.job.loaded.path)
    rate = None
    if trainer is not None and trainer.progress.step_seconds > 0:
        rate = trainer.progress.step * recipe.train.batch_size / trainer.progress.step_seconds
    fingerprints = _fingerprints(prepared.experiment)
    if prepared.text is not None:
        fingerprints["training"] = prepared.text.fingerprint
    assert about.identity is not None
    return Result(
        recipe=about.recipe,
        source=about.source,
        title=recipe.title,
        identity=about.identity,
        plan=about.plan,
        started=about.created,
        language=recipe.language,
        seed=prepared.job.seed,
        paper=None if recipe.paper is None else PaperRow(**recipe.paper.model_dump()),
        model=_model(recipe, recipe.evaluate.encoder),
        scores=scores,
        untrained=trainer.progress.untrained if trainer else {},
        word_overlap=word_overlaps(prepared.experiment.evaluators),
        curve=trainer.selection.curve if trainer else {},
        selected_step=trainer.selection.step if trainer else None,
        metric_for_best_model=recipe.evaluate.metric_for_best_model,
        test_selected=about.test_selected,
        steps=prepared.steps,
        early_stop=trainer.early_stop if trainer else None,
        last_state=trainer.last_state if trainer else None,
        fingerprints=fingerprints,
        commits=hub.used(),
        measures=trainer.measures if trainer else {},
        versions=Versions(
            cse=now["cse"], python=now["python"], torch=now["torch"], transformers=now["transformers"], git=now["git"],
            engine=ENGINE,
        ),
        device=prepared.compute.describe(),
        precision=prepared.compute.precision,
        seconds=trainer.progress.seconds if trainer else 0.0,
        sentences_per_second=rate,
        speed=trainer.stepper.watch.speed() if trainer else None,
        run_id=about.run_id,
        finished=datetime.now(UTC),
    )  # fmt: skip


def _fingerprints(experiment: Experiment) -> dict[str, str]:
    read = [evaluator.fingerprints() for evaluator in experiment.evaluators.values()]
    return {name: digest for each in [experiment.scored.fingerprints(), *read] for name, digest in each.items()}


def _model(recipe: Recipe, encoder: str) -> str:
    """Return the model that an encoder, or the innermost encoder that it wraps, starts from."""
    return str(_with_model(recipe, encoder).get("model", ""))


def _with_model(recipe: Recipe, encoder: str) -> Mapping[str, Any]:
    """Return the parameters of the encoder that names the model."""
    part = recipe.encoders[encoder]
    inner = [str(part.params[r.parameter]) for r in ENCODERS[part.name].references if r.kind == "encoder"]
    return part.params if "model" in part.params or not inner else _with_model(recipe, inner[0])
