"""What is written down of a run: its inputs before the first step, its outcome after the last."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cse_cli import series, tracking
from cse_cli.environment import environment, git_commit
from cse_cli.job import Job, Prepared
from cse_cli.recipe.rules import is_test_split
from cse_cli.recipe.schema import Recipe
from cse_cli.recipe.toml import to_toml
from cse_cli.resolve import Experiment
from cse_cli.results import PaperRow, Result, Scores, Versions
from cse_cli.training.loop import Trainer
from registry import hub
from registry.kinds import ENCODERS


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


def tags(job: Job) -> dict[str, str]:
    """Return how the tracking store finds the run again."""
    recipe = job.loaded.recipe
    tags = {
        "cse.recipe": job.loaded.name,
        "cse.recipe_hash": recipe.hash(),
        "cse.seed": str(job.seed),
        "cse.git": git_commit(job.loaded.path) or "",
        "mlflow.note.content": recipe.description or recipe.title,
    }
    if recipe.paper is not None:
        tags["cse.paper"] = f"{recipe.paper.key}/{recipe.paper.table}/{recipe.paper.row}"
    if job.study is not None:
        tags["cse.study"] = job.study
    if job.below is not None:
        tags |= job.below.tags
    if _test_selected(recipe):
        tags["cse.test_selected"] = "true"
    return tags


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
    from cse_cli.figures import draw  # matplotlib: only where a run has come to its end

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
