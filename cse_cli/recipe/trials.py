"""Rows of a study that are tuned: the cells of their trials, and the settings that the trials choose."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from statistics import fmean

from cse_cli.core.results import Result
from cse_cli.core.tables import Table, plain_table
from cse_cli.recipe.cells import Cell, PlacedRow, cells_of_rows
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
    """The settings that the trials of a row choose.

    Args:
        settings: Values of the best trial. Empty if no trial has finished.
        score: Its mean dev score over the seeds of the trials.
        finished: Number of trials that have finished with every seed.
        trials: Number of trials.
    """

    row: str
    settings: tuple[Override, ...] = ()
    score: float | None = None
    finished: int = 0
    trials: int = 0


def trials(study: Study, overrides: Sequence[str | Override] = (), unset: Sequence[str] = ()) -> list[Trial]:
    """Return the trials of every tuned row, with validated recipes.

    A trial has only the evaluator that selects its state: the others would cost time, and no choice may use them.

    Raises:
        RecipeError: If a recipe is invalid with its settings, with every problem and its place in the study.
    """
    combined = [
        (keys, row, combination)
        for keys, row in study.placed_rows()
        if row.tune
        for tried in [study.tried(row)]
        for combination in (tuple(map(Override.of, tried, values)) for values in itertools.product(*tried.values()))
    ]
    shared = {path: (STUDY, "tune", path) for path in study.tune}
    rows = []
    for keys, row, settings in combined:
        places: dict[str, Keys] = {**shared, **{path: (*keys, "tune", path) for path in row.tune}}
        tried = _changed(row, settings, f"{row.row} · {settings_text(settings)}")
        rows.append(PlacedRow(tried, keys, {f"--set {path}": place for path, place in places.items()}))
    made = cells_of_rows(study, rows, overrides, unset, omitted=_not_selecting)
    return [Trial(row.row, settings, cell) for (_, row, settings), cell in zip(combined, made, strict=True)]


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

    Args:
        study: Study with tuned rows.
        tried: All its trials.
        results: Hash of a cell's settings → finished runs. Other seeds than those of the trials do not count, nor older
            runs of the same seed, for example with other code, nor runs with other dev data than the newest of the row.
    """
    choices = []
    for row in (row.row for _, row in study.placed_rows() if row.tune):
        own = [trial for trial in tried if trial.row == row]
        runs = [(trial, results.get(trial.cell.hash, ())) for trial in own]
        newest = max((run for _, each in runs for run in each), key=lambda run: run.finished, default=None)
        same = [(trial, [run for run in each if _dev_data(run) == _dev_data(newest)]) for trial, each in runs]
        scored = [(trial, _score(each, study.tune_seeds)) for trial, each in same]
        scores = [(score, trial.settings) for trial, score in scored if score is not None]
        choice = Choice(row, trials=len(own), finished=len(scores))
        if scores:
            score, settings = max(scores, key=itemgetter(0))
            choice = Choice(row, settings, score, len(scores), len(own))
        choices.append(choice)
    return choices


def _dev_data(run: Result | None) -> tuple[str, ...]:
    return () if run is None else run.data_of((run.metric_for_best_model or "").partition(".")[0])


def _score(runs: Sequence[Result], seeds: Sequence[int]) -> float | None:
    """Return the mean dev score of the newest run of each seed, or None if a seed has none."""
    newest = {run.seed: run for run in sorted(runs, key=lambda run: run.finished)}
    found = []
    for run in (newest[seed] for seed in seeds if seed in newest):
        evaluator, _, metric = (run.metric_for_best_model or "").partition(".")
        if (score := run.scores.get(evaluator, {}).get(metric)) is not None:
            found.append(score)
    return fmean(found) if len(found) == len(seeds) else None


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
