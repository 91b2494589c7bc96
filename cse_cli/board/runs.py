"""Finished runs of one experiment together, and how that experiment relates to its recipe's file today."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from cse_cli.home import runs as run_folders
from cse_cli.recipe.find import recipe_name
from cse_cli.recipe.schema import Recipe
from cse_cli.results import Result, average
from registry.errors import CseError, UnknownNameError

Standing = Literal["current", "chosen", "changed", "other_model", "missing"]
"""The recipe as its file stands; settings that a study asks for; neither; another model; no such file."""
Judge = Callable[[Result], Standing]
SETTINGS_SHOWN = 3


@dataclass(frozen=True)
class Configuration:
    """The runs of one experiment, one a seed: the one that finished last.

    Args:
        results: By seed.
        standing: Of the newest.
    """

    results: tuple[Result, ...]
    standing: Standing

    @property
    def latest(self) -> Result:
        """The run that finished last."""
        return max(self.results, key=lambda result: result.finished)

    @property
    def recipe(self) -> str:
        """Bare name of the recipe."""
        return recipe_name(self.latest.recipe)

    @property
    def seeds(self) -> tuple[int, ...]:
        """In order."""
        return tuple(result.seed for result in self.results)

    @property
    def test_selected(self) -> bool:
        """Whether a test split chose the state of any."""
        return any(result.test_selected for result in self.results)

    @property
    def stale(self) -> bool:
        """Whether its numbers are of another experiment than the recipe's file describes today."""
        return self.standing in ("changed", "other_model")

    def values(self, evaluator: str, metric: str | None, *, untrained: bool = False) -> list[float]:
        """Return the score of every seed, or nothing where one seed lacks it.

        Args:
            evaluator: As the recipe names it.
            metric: None for the one the evaluator is known by.
            untrained: Of the encoder before training.
        """
        found: list[float] = []
        for result in self.results:
            metrics = (result.untrained if untrained else result.scores).get(evaluator, {})
            name = metric or next(iter(metrics), "")  # evaluators report the metric they are known by first
            if name not in metrics:
                return []
            found.append(metrics[name])
        return found

    def averages(self, evaluators: Sequence[str], metric: str, *, untrained: bool = False) -> list[float]:
        """Return the papers' average of every seed, or nothing where one seed lacks a score."""
        scores = [result.untrained if untrained else result.scores for result in self.results]
        found = [average(of_seed, evaluators, metric) for of_seed in scores]
        known = [value for value in found if value is not None]
        return known if len(known) == len(found) else []

    def dev(self) -> list[float]:
        """Return the score that chose the state, of every seed; nothing where nothing, or a test split, chose."""
        select = self.latest.select
        if select is None or self.test_selected:
            return []
        evaluator, _, metric = select.rpartition(".")
        return self.values(evaluator, metric)


def configurations(results: Iterable[Result], standing: Judge) -> list[Configuration]:
    """Return the runs of each experiment together.

    A run whose model is not its recipe's answers no printed row, whatever its recipe says.
    """
    found: dict[tuple[str, str], dict[int, Result]] = defaultdict(dict)
    for result in sorted(results, key=lambda r: r.finished):
        if result.paper is not None and standing(result) == "other_model":
            result = result.model_copy(update={"paper": None})
        paper_row = "" if result.paper is None else result.paper.model_dump_json()
        found[result.recipe_hash, paper_row][result.seed] = result
    grouped = [tuple(seeds[seed] for seed in sorted(seeds)) for seeds in found.values()]
    return [Configuration(group, standing(max(group, key=lambda r: r.finished))) for group in grouped]


def standing(result: Result) -> Standing:
    """Tell whether a recipe's file still means the experiment that a result comes from."""
    try:
        recipe = _today(result.recipe)
    except UnknownNameError:
        return "missing"
    except CseError:
        return "changed"
    if _hash(result.recipe) == result.recipe_hash:
        return "current"
    models = {str(part.params.get("model", "")) for part in recipe.encoders.values()}
    return "changed" if result.model in models else "other_model"


@cache
def _today(name: str) -> Recipe:
    from cse_cli.recipe.load import load  # needs every component, so torch: only where there are results

    return load(name).recipe


@cache
def _hash(name: str) -> str:
    return _today(name).hash()


def settings(result: Result) -> tuple[str, ...]:
    """Return how what ran differs from the recipe's file today, as `key=value`; nothing where that is not known."""
    file = run_folders() / (result.run_id or "unknown") / "run.json"
    try:
        today = _today(result.recipe).resolved()
        ran = json.loads(file.read_text(encoding="utf-8"))["resolved"]
    except (OSError, ValueError, KeyError, CseError):
        return ()
    before, after = _leaves(today), _leaves(ran)
    changed = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    said = [f"{key}={_text(after[key])}" if key in after else f"no {key}" for key in sorted(changed)]
    kept = said[:SETTINGS_SHOWN]
    return (*kept, f"and {len(said) - len(kept)} more") if len(said) > len(kept) else tuple(kept)


def _leaves(tables: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in tables.items():
        if isinstance(value, Mapping):
            found |= _leaves(value, f"{prefix}{key}.")
        elif (prefix + key).partition(".")[0] not in _NO_SETTINGS and prefix + key != "train.seed":
            found[prefix + key] = value
    return found


_NO_SETTINGS = ("title", "description", "paper", "tune")
"""Keys that change no number."""


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
