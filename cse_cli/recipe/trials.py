"""Rows of a study that are tuned: the cells of their trials, and the settings that the trials choose."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from statistics import fmean

from cse_cli.core.results import Result
from cse_cli.core.tables import Table, plain_table
from cse_cli.recipe.cells import Cell, PlacedRow, cells
from cse_cli.recipe.keys import Keys
from cse_cli.recipe.load import STUDY
from cse_cli.recipe.overrides import Override
from cse_cli.recipe.schema import Recipe
from cse_cli.recipe.study import Row, Study
from registry.errors import CseError


@dataclass(frozen=True)
class Trial:
    """One combination of the values that a row tries, and its cell."""

    row: str
    settings: tuple[Override, ...]
    cell: Cell


@dataclass(frozen=True)
class Choice:
    """The settings of a row's best trial, its mean dev score, and the number of trials with a run of every seed."""

    row: str
    settings: tuple[Override, ...] = ()
    score: float | None = None
    finished: int = 0
    trials: int = 0


def trials(study: Study, overrides: Sequence[str | Override] = (), unset: Sequence[str] = ()) -> list[Trial]:
    """Return the trials of every tuned row, with validated recipes.

    A trial has only the evaluator that selects its state: the others would cost time, and no choice may use them.
    """
    named: list[tuple[str, tuple[Override, ...]]] = []
    rows = []
    for keys, row in study.placed_rows():
        tried = study.tried(row)
        owners: dict[str, Keys] = {**dict.fromkeys(study.tune, (STUDY,)), **dict.fromkeys(row.tune, keys)}
        places = {f"--set {path}": (*owner, "tune", path) for path, owner in owners.items()}
        for values in itertools.product(*tried.values()) if tried else ():
            settings = tuple(map(Override.of, tried, values))
            named.append((row.row, settings))
            rows.append(PlacedRow(_changed(row, settings, f"{row.row} · {settings_text(settings)}"), keys, places))
    made = cells(study, overrides, unset, rows, _not_selecting)
    return [Trial(row, settings, cell) for (row, settings), cell in zip(named, made, strict=True)]


def settings_text(settings: Sequence[Override]) -> str:
    """Return settings as one text."""
    return ", ".join(map(str, settings))


def _changed(row: Row, settings: Sequence[Override], name: str) -> Row:
    replaced = {setting.path for setting in settings}
    kept = tuple(override for override in row.set if override.path not in replaced)
    return row.model_copy(update={"row": name, "set": (*kept, *settings)})


def _not_selecting(recipe: Recipe) -> list[str]:
    """Return the paths of all evaluators except the one that selects the state."""
    if recipe.evaluate.metric_for_best_model is None:
        message = "has no evaluate.metric_for_best_model, by whose score `tune` chooses"
        raise CseError(message, "set it to a dev score, or remove `tune`", code="study.no_dev_score")
    selecting = recipe.evaluate.metric_for_best_model.partition(".")[0]
    return [f"evaluators.{name}" for name in recipe.evaluators if name != selecting]


def choose(study: Study, tried: Sequence[Trial], results: Mapping[str, Sequence[Result]]) -> list[Choice]:
    """Return the choice of every tuned row: its trial with the best mean dev score, the first of equal ones.

    `results` maps a cell's hash to finished runs. Runs do not count with other seeds than those of the trials, nor if
    they are older than another one of the same seed, or have other dev data than the newest of the row.
    """
    choices = []
    for row in (row.row for _, row in study.placed_rows() if row.tune):
        own = [trial for trial in tried if trial.row == row]
        runs = [(trial, results.get(trial.cell.hash, ())) for trial in own]
        newest = max((run for _, each in runs for run in each), key=lambda run: run.finished, default=None)
        same = [(trial, [run for run in each if _dev_data(run) == _dev_data(newest)]) for trial, each in runs]
        scored = [(trial, _score(each, study.tune_seeds)) for trial, each in same]
        scores = [(score, trial.settings) for trial, score in scored if score is not None]
        score, settings = max(scores, key=itemgetter(0), default=(None, ()))
        choices.append(Choice(row, settings, score, len(scores), len(own)))
    return choices


def _dev_data(run: Result | None) -> tuple[str, ...]:
    return () if run is None else run.data_of((run.metric_for_best_model or "").partition(".")[0])


def _score(runs: Sequence[Result], seeds: Sequence[int]) -> float | None:
    """Return the mean dev score of the newest run of each seed, or None if a seed has none."""
    found = {}
    for run in sorted(runs, key=lambda run: run.finished):
        evaluator, _, metric = (run.metric_for_best_model or "").partition(".")
        found[run.seed] = run.scores.get(evaluator, {}).get(metric)
    known = [score for seed in seeds if (score := found.get(seed)) is not None]
    return fmean(known) if len(known) == len(seeds) else None


def tuned(study: Study, choices: Sequence[Choice], *, undecided: bool = False) -> Study:
    """Return a study whose tuned rows have the chosen settings.

    Rows without a finished trial are omitted, or have the settings of their recipe if `undecided`.
    """
    chosen = {choice.row: choice.settings for choice in choices}
    rows = tuple(_changed(row, chosen.get(row.row, ()), row.row) for row in study.rows)
    omitted = () if undecided else tuple(row for row, settings in chosen.items() if not settings)
    return study.model_copy(update={"rows": rows, "omit": (*study.omit, *omitted)})


def choices_table(choices: Sequence[Choice]) -> Table:
    """Return a table of the settings that the trials of each row chose."""
    rows = []
    for choice in choices:
        trials = str(choice.trials) if choice.finished == choice.trials else f"{choice.finished} of {choice.trials}"
        rows.append((choice.row, trials, settings_text(choice.settings) or "none"))
    return plain_table(("row", "trials", "chosen"), rows, align="prp")
