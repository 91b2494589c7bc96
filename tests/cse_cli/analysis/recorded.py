"""Finished runs put into a store without training: scores, recipe and sentence pairs of your choice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from cse_cli import tracking
from cse_cli.core import results as series
from cse_cli.core.formatting import to_toml
from cse_cli.core.paths import runs
from cse_cli.core.results import STS_TASKS
from cse_cli.recipe.load import load
from registry.statistics import correlations
from tests.cse_cli.tracking.stores import result

PAIRS = 80
START = datetime(2026, 11, 21, tzinfo=UTC)


def gold(evaluator: str) -> np.ndarray:
    """Return the gold scores of an evaluator's pairs: steps of a half, so with ties."""
    return np.round(2 * np.random.default_rng(len(evaluator) * 7 + ord(evaluator[-1])).uniform(0, 5, PAIRS)) / 2


def pairs(evaluator: str, seed: int, noise: float) -> dict[str, list[float]]:
    """Return a model's cosines, which follow the gold scores the less the more noise there is."""
    truth = gold(evaluator)
    drawn = np.random.default_rng([seed, len(evaluator), ord(evaluator[-1])]).normal(size=PAIRS)
    return {"gold": truth.tolist(), "cosine": (truth + noise * drawn).tolist()}


def record(
    recipe: str,
    seed: int,
    *,
    noise: float = 1.0,
    overrides: Sequence[str] = (),
    evaluators: Sequence[str] = ("stsb_dev", *STS_TASKS),
    keep: Sequence[str] = ("local",),
    asked: str | None = None,
    **changes: Any,
) -> str:
    """Record a finished run and return its id.

    Args:
        recipe: Name of a shipped recipe.
        seed: Its seed.
        noise: How bad the model is.
        overrides: `--set` texts.
        evaluators: What it scored.
        asked: What it was asked for by, if not by `recipe`.
        keep: Where it keeps its pairs: "local" for the run's folder, "store" for the tracking store.
        changes: Fields of its result.
    """
    loaded = load(recipe, [*overrides, f"train.seed={seed}"])
    kept = {name: pairs(name, seed, noise) for name in evaluators}
    scores = {name: {"spearman": 100 * correlations(p["gold"], p["cosine"])["spearman"]} for name, p in kept.items()}
    tracker = tracking.start(f"{recipe} seed {seed}", {}, {"cse.recipe": recipe, "cse.seed": str(seed)})
    plain: dict[str, Any] = {
        "recipe": asked or recipe,
        "recipe_hash": loaded.recipe.hash(),
        "seed": seed,
        "scores": scores,
        "run_id": tracker.run_id,
        "finished": START + timedelta(minutes=seed),
        "fingerprints": {"stsb/test": "d" * 64, "training": "t" * 64},
    }
    tracker.text("resolved.toml", to_toml(loaded.recipe.resolved()))
    tracker.text("result.json", result(**{**plain, **changes}).model_dump_json())
    _keep(tracker, kept, keep)
    tracker.finish("FINISHED")
    return tracker.run_id


def _keep(tracker: tracking.Tracker, kept: Mapping[str, series.Series], where: Sequence[str]) -> None:
    folder = runs() / tracker.run_id / series.SERIES_FOLDER
    if where:
        series.write_series(kept, folder)
    if "store" in where:
        tracker.folder(folder, series.SERIES_FOLDER)
    if where and "local" not in where:
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
