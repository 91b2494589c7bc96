"""Finished runs recorded without training: scores, recipe and sentence pairs of your choice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import numpy as np

from cse_cli.core.identity import Identity
from cse_cli.core.results import SERIES_FOLDER, STS_TASKS, write_series
from cse_cli.recipe.files import find, shipped
from cse_cli.recipe.load import LoadedRecipe, load
from registry.statistics import correlations
from tests.support.records import recorded, result

PAIRS = 80
START = datetime(2026, 11, 21, tzinfo=UTC)


def gold(evaluator: str) -> np.ndarray:
    """Return the gold scores of an evaluator's pairs: steps of a half, so with ties."""
    return np.round(2 * np.random.default_rng(len(evaluator) * 7 + ord(evaluator[-1])).uniform(0, 5, PAIRS)) / 2


@cache
def pairs(evaluator: str, seed: int, noise: float) -> dict[str, list[float]]:
    """Return a model's cosines, which follow the gold scores the less the more noise there is."""
    truth = gold(evaluator)
    drawn = np.random.default_rng([seed, len(evaluator), ord(evaluator[-1])]).normal(size=PAIRS)
    return {"gold": truth.tolist(), "cosine": (truth + noise * drawn).tolist()}


@cache
def score(evaluator: str, seed: int, noise: float) -> float:
    """Return 100 times the Spearman correlation of `pairs`."""
    scored = pairs(evaluator, seed, noise)
    return 100 * correlations(scored["gold"], scored["cosine"])["spearman"]


@cache
def load_once(recipe: str, overrides: tuple[str, ...]) -> LoadedRecipe:
    """Load a recipe of this repository, which no test changes, once."""
    return load(recipe, overrides)


def record(
    recipe: str,
    seed: int,
    *,
    noise: float = 1.0,
    overrides: Sequence[str] = (),
    evaluators: Sequence[str] = ("stsb_dev", *STS_TASKS),
    keep: bool = True,
    asked: str | None = None,
    about: Mapping[str, Any] | None = None,
    **changes: Any,
) -> str:
    """Record a finished run and return its ID.

    Args:
        recipe: Name or path of a recipe.
        seed: Its seed.
        noise: How bad the model is.
        overrides: `--set` texts.
        evaluators: What it scored.
        keep: Whether it keeps its sentence pairs.
        asked: Name of its recipe, if not that of `recipe`.
        about: Fields of its `run.toml`.
        changes: Fields of its result, and parts of its identity.
    """
    read = load_once if find(recipe).is_relative_to(shipped()) else load
    loaded = read(recipe, (*overrides, f"train.seed={seed}"))
    parts = {part: changes.pop(part) for part in ("text", "weights", "code") if part in changes}
    kept = {name: pairs(name, seed, noise) for name in evaluators}
    scores = {name: {"spearman": score(name, seed, noise)} for name in evaluators}
    plain: dict[str, Any] = {
        "recipe": asked or loaded.name,
        "source": "" if asked else str(loaded.path.absolute()),
        "identity": Identity(**{"settings": changes.pop("recipe_hash", loaded.recipe.hash()), **parts}),
        "seed": seed,
        "scores": scores,
        "finished": START + timedelta(minutes=seed),
        "fingerprints": {"stsb/test": "d" * 64, "training": "t" * 64},
    }
    known = {"name": f"{recipe} seed {seed}", "changes": loaded.changes, **(about or {})}
    run = recorded(result(**{**plain, **changes}), resolved=loaded.recipe.resolved(), **known)
    if keep:
        write_series(kept, run.path / SERIES_FOLDER)
    return run.run_id
