"""A paper's table in its own layout with our runs: of the recipes that answer its rows, or of a study, cell by cell."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from operator import mul
from statistics import correlation, fmean
from types import MappingProxyType

from cse_cli.analysis.experiments import Configuration, configurations, mixed
from cse_cli.analysis.origins import RecipeStatus
from cse_cli.analysis.papers import (
    Missing,
    PrintedRow,
    ScoreRow,
    ScoreTable,
    Trend,
    compare_with_printed,
    encoder_of,
    model_name,
    printed_encoders,
    reference,
)
from cse_cli.analysis.runs import last_finished
from cse_cli.core.identity import Mode
from cse_cli.core.multiple import correct_row
from cse_cli.core.results import Result
from cse_cli.core.stats import Design, Score
from cse_cli.recipe.cells import Cell, cell_tag, cells
from cse_cli.recipe.study import Study, studies_of
from registry import papers
from registry.papers import AVERAGE, Column, Table

ONE_SEED = "one seed: no spread known"
STALE = "stale: the recipe's file describes another experiment today"
NO_FILE = "no recipe of this name is found from here: not compared with its file"
TEST_SELECTED = "state chosen on a test split: optimistic"
OTHER_ENCODER = "{}, not the paper's encoder: levels do not compare, only the trend does"


def our_row(
    configuration: Configuration, scores: Mapping[str, Score], answers: PrintedRow | None = None, best_of: int = 1
) -> ScoreRow:
    """Return a row of our seeds; every cell gets its marks.

    Args:
        configuration: Our seeds.
        scores: Column → cell.
        answers: The printed row that they answer.
        best_of: Configurations of which this is the best by its dev mean.
    """
    latest = configuration.latest
    notes = {
        ONE_SEED: len(configuration.seeds) == 1,
        STALE: configuration.stale,
        NO_FILE: configuration.status == "missing",
        TEST_SELECTED: configuration.test_selected,
        configuration.plan.text: configuration.plan.mode == "incomplete",
    }
    marks = {"stale": configuration.stale, "test_selected": configuration.test_selected}
    return ScoreRow(
        source="ours",
        name=latest.title,
        paper=answers.paper.key if answers else None,
        table=answers.identifier if answers else None,
        answers=answers.name if answers else None,
        recipe=configuration.recipe,
        copies=configuration.names[1:],
        recipe_hash=latest.recipe_hash,
        experiment=latest.experiment,
        settings=configuration.settings,
        configurations=best_of,
        model=latest.model,
        language=latest.language,
        seeds=configuration.seeds,
        scores={column: score.marked(**marks) for column, score in scores.items()},
        notes=(*(note for note, holds in notes.items() if holds), *configuration.notes, *mixed(configuration.results)),
    )


def paper_table(
    key: str, identifier: str, runs: Sequence[Configuration], elsewhere: Collection[str] = ()
) -> tuple[ScoreTable, bool]:
    """Return a paper's table and whether any of our runs stands in it.

    Args:
        key: The paper.
        identifier: The table.
        runs: Our runs.
        elsewhere: Hashes of experiments that stand in another table already.
    """
    shown = [run for run in runs if run.latest.recipe_hash not in elsewhere]
    rows: list[ScoreRow] = []
    for printed, row in _printed(key, identifier):
        rows.append(row)
        for configuration in shown:
            if _answers(configuration, printed):
                compared = _beside_printed(configuration, printed, row, shown)
                rows.append(our_row(configuration, compared, printed))
    table = papers.load(key).tables[identifier]
    made = ScoreTable(
        kind="table",
        heading=_heading(key, identifier),
        language=table.language,
        paper=key,
        table=identifier,
        columns=tuple(column.name for column in table.columns),
        rows=tuple(rows),
        remarks=_remarks(table),
    )
    return made, len(rows) > len(table.rows)


def _printed(key: str, identifier: str) -> Iterator[tuple[PrintedRow, ScoreRow]]:
    paper = papers.load(key)
    for name in paper.tables[identifier].rows:
        printed = PrintedRow(paper, identifier, name)
        yield printed, printed.score_row()


def _heading(key: str, identifier: str) -> str:
    paper = papers.load(key)
    table = paper.tables[identifier]
    return f"{paper.short}, {table.title} ({identifier}): {table.caption} [{table.metric}]"


def _remarks(table: Table) -> tuple[str, ...]:
    """Return the doubts about a whole table."""
    return tuple(flag.note for flag in table.flags if flag.row is None)


def _answers(configuration: Configuration, printed: PrintedRow) -> bool:
    """Return whether a run stands beside a printed row: its own, or another one of the paper its recipe answers too."""
    paper = configuration.latest.paper
    if paper is None or paper.key != printed.paper.key:
        return False
    own = (paper.table, paper.row) == (printed.identifier, printed.name)
    return own or (printed.recipe is not None and printed.recipe in configuration.names)


def _beside_printed(
    configuration: Configuration, printed: PrintedRow, row: ScoreRow, shown: Sequence[Configuration]
) -> dict[str, Score]:
    """Return our cells of a paper's table, each compared with the printed one; `shown` has the rows of differences."""
    found = {}
    for column in printed.table.columns:
        values: Sequence[float] = _column_values(configuration, column, printed.table, printed.name)
        if column.minus is not None:
            other = PrintedRow(printed.paper, printed.identifier, column.minus)
            beside = [one for one in shown if _answers(one, other)]
            values = _differences(configuration, beside, column, printed.table) if column.name in row.scores else ()
        if values:
            found[column.name] = _compared(values, row.scores.get(column.name), mode=configuration.plan.mode)
    return correct_row(found, _primary(printed.table))


def _differences(
    configuration: Configuration, others: Iterable[Configuration], column: Column, table: Table
) -> list[float]:
    """Return, seed by seed, a column's score minus that of the first other runs with seeds in common."""
    of = next(one for one in table.columns if one.name == column.of)
    own = _by_seed(configuration, of, table)
    for other in others:
        theirs = _by_seed(other, of, table)
        if common := [seed for seed in own if seed in theirs]:
            return [own[seed] - theirs[seed] for seed in common]
    return []


def _by_seed(configuration: Configuration, column: Column, table: Table) -> dict[int, float]:
    values = _column_values(configuration, column, table)
    return dict(zip(configuration.seeds, values, strict=True)) if values else {}


def _primary(table: Table) -> str:
    """Return the column that a row is judged by: the average, else the first."""
    return next((column for column in table.columns if column.evaluator == AVERAGE), table.columns[0]).name


def _compared(
    values: Sequence[float], printed: Score | None, *, same_encoder: bool = True, mode: Mode = "anytime"
) -> Score:
    """Compare with a printed number; shown with as many decimals as it has, two at least."""
    score = compare_with_printed(values, printed if same_encoder else None, mode)
    return score if printed is None else score.model_copy(update={"digits": max(2, printed.digits)})


def _column_values(configuration: Configuration, column: Column, table: Table, row: str | None = None) -> list[float]:
    """Return what a printed column shows in a row, of every seed; nothing where we have no such score."""
    if column.evaluator == AVERAGE:
        others = [c.evaluator for c in table.columns if c.evaluator is not None and c.evaluator != AVERAGE]
        return configuration.averages(others, table.score_of(column, row))
    return [] if column.evaluator is None else configuration.values(column.evaluator, table.score_of(column, row))


@dataclass(frozen=True)
class StudyRuns:
    """A study's cells, each with its runs where there are any."""

    study: Study
    cells: Sequence[tuple[Cell, Configuration | None]]

    @property
    def any(self) -> bool:
        """Whether anything has run."""
        return any(runs is not None for _, runs in self.cells)

    @property
    def hashes(self) -> set[str]:
        """Of all experiments that it asks for."""
        return {cell.hash for cell, _ in self.cells}

    @property
    def current(self) -> dict[str, list[Result]]:
        """Recipe hash → runs of a cell as it is today, by seed."""
        found = {cell.hash: runs for cell, runs in self.cells if runs is not None and runs.status == "current"}
        return {digest: list(runs.results) for digest, runs in found.items()}

    def in_row(self, name: str) -> list[tuple[Cell, Configuration]]:
        """Return the cells of one printed row that have runs."""
        return [(cell, runs) for cell, runs in self.cells if cell.row == name and runs is not None]

    def missing(self) -> tuple[Missing, ...]:
        """Return the cells that lack seeds."""
        wanted = set(self.study.seed_list)
        current = self.current
        have = [(cell, len(wanted & {run.seed for run in current.get(cell.hash, ())})) for cell, _ in self.cells]
        return tuple(
            Missing(row=cell.row, columns=cell.columns, seeds=seeds, wanted=len(wanted))
            for cell, seeds in have
            if seeds < len(wanted)
        )


def study_runs(
    study: Study,
    results: Sequence[Result],
    tags: Mapping[str, str] = MappingProxyType({}),
    loaded: Sequence[Cell] | None = None,
    *,
    pool: bool = False,
) -> StudyRuns:
    """Return a study's cells with their runs.

    A cell's runs are those with the settings of its recipe today or, if there are none, the newest made for it earlier;
    of several experiments with these settings, the one that finished last, which a note says.

    Args:
        study: The study.
        results: Finished runs.
        tags: Run → the study's cell it was made for.
        loaded: Its cells, if they are known already.
        pool: Merge experiments with the same settings.
    """

    def of(cell: Cell) -> Configuration | None:
        current = [run for run in results if run.recipe_hash == cell.hash]
        runs = current or [run for run in results if tags.get(run.run_id or "") == cell_tag(study, cell)]
        if not runs:
            return None
        status: RecipeStatus = "current" if current else "changed"
        last = last_finished(runs).recipe_hash
        same = [run for run in runs if run.recipe_hash == last]
        return max(configurations(same, lambda _: status, pool=pool), key=lambda one: one.latest.finished)

    return StudyRuns(study, [(cell, of(cell)) for cell in (cells(study) if loaded is None else loaded)])


def studies_of_table(key: str, identifier: str) -> list[Study]:
    """Return the studies that answer a table, those on the paper's own encoders first."""
    return sorted(studies_of(key, identifier), key=lambda study: (study.name.count("/"), study.name))


def study_table(runs: StudyRuns, key: str, identifier: str) -> ScoreTable:
    """Return a paper's table with the runs of a study: ours below each printed row, and what they say together."""
    table = papers.load(key).tables[identifier]
    rows: list[ScoreRow] = []
    for printed, row in _printed(key, identifier):
        rows.append(row)
        if of_row := runs.in_row(printed.name):
            rows.append(_study_row(runs, printed, row, of_row))
    encoders = dict.fromkeys(encoder_of(of_cell) for _, of_cell in runs.cells if of_cell is not None)
    others = [name for name in encoders if name not in printed_encoders()]
    missing = runs.missing()
    return ScoreTable(
        kind="study",
        heading=f"{_heading(key, identifier)}: {runs.study.name} on {', '.join(encoders) or 'nothing yet'}",
        encoder=", ".join(encoders) or None,
        language=table.language,
        paper=key,
        table=identifier,
        study=runs.study.name,
        columns=tuple(column.name for column in table.columns),
        rows=tuple(rows),
        remarks=(*(OTHER_ENCODER.format(name) for name in others), *_remarks(table)),
        trends=tuple(_trends(rows, table)),
        missing=missing,
        command=f"cse run {runs.study.name}" if missing else None,
    )


def _study_row(
    study: StudyRuns, printed: PrintedRow, row: ScoreRow, runs: Sequence[tuple[Cell, Configuration]]
) -> ScoreRow:
    """Return one row of what may be several cells: a printed row's columns can be runs of their own."""
    scores: dict[str, Score] = {}
    notes: list[str] = []
    compared = [dict(_cell_scores(study, cell, configuration, (printed, row))) for cell, configuration in runs]
    together = {column: score for of_cell in compared for column, score in of_cell.items()}
    corrected = correct_row(together, _primary(printed.table))
    for (_, configuration), of_cell in zip(runs, compared, strict=True):
        ours = our_row(configuration, {column: corrected[column] for column in of_cell}, printed)
        scores |= ours.scores
        notes += [note for note in ours.notes if ours.scores and note != ONE_SEED]  # its mark says so, cell by cell
    first = runs[0][1]
    return our_row(first, {}, printed).model_copy(
        update={
            "name": printed.name,
            "recipe_hash": first.latest.recipe_hash if len(runs) == 1 else None,
            "settings": (),
            "seeds": tuple(sorted({seed for _, configuration in runs for seed in configuration.seeds})),
            "scores": {column.name: scores[column.name] for column in printed.table.columns if column.name in scores},
            "notes": tuple(dict.fromkeys(notes)),
        }
    )


def _cell_scores(
    study: StudyRuns, cell: Cell, configuration: Configuration, beside: tuple[PrintedRow, ScoreRow]
) -> Iterable[tuple[str, Score]]:
    printed, row = beside
    for column in printed.table.columns:
        if cell.columns and column.name not in cell.columns:
            continue
        if column.minus is not None:
            others = [runs for _, runs in study.in_row(column.minus)] if column.name in row.scores else []
            values: Sequence[float] = _differences(configuration, others, column, printed.table)
        else:
            values = _study_values(study.study, column, printed, configuration)
        if values:
            same, mode = _same_encoder(configuration, printed), configuration.plan.mode
            yield column.name, _compared(values, row.scores.get(column.name), same_encoder=same, mode=mode)


def _study_values(study: Study, column: Column, printed: PrintedRow, configuration: Configuration) -> Sequence[float]:
    """Return a cell's score of every seed: as the paper's column says, else as the study does."""
    if values := _column_values(configuration, column, printed.table, printed.name):
        return values
    score = next((c.score for c in study.columns if column.name in c.names and c.score), study.score)
    if score is None or column.evaluator is not None:
        return []
    evaluator, _, metric = score.partition(".")
    return configuration.values(evaluator, metric)


def _same_encoder(configuration: Configuration, printed: PrintedRow) -> bool:
    encoder = encoder_of(configuration)
    if configuration.status != "current":
        encoder = model_name(configuration.latest.model)
    return encoder == printed.encoder if printed.encoder else encoder in printed_encoders()


def _trends(rows: Sequence[ScoreRow], table: Table) -> Iterable[Trend]:
    """Yield the trend of each column, or of each row of a table that is printed sideways."""
    printed = {row.name: row.scores for row in rows if row.source == "paper"}
    ours = {row.name: row.scores for row in rows if row.source == "ours"}
    cells = [(row, column) for row in ours for column in ours[row] if column in printed[row]]
    sideways = len(table.rows) == 1
    for name in list(printed) if sideways else [column.name for column in table.columns]:
        along = [(row, column) for row, column in cells if name == (row if sideways else column)]
        left = [ours[row][column].mean for row, column in along]
        right = [reference(printed[row][column]) or 0.0 for row, column in along]
        if (found := trend(name, left, right)) is not None:
            yield found


EXACT = 8
"""Most cells whose orders are all counted: 40,320 of them."""
FEWEST = 3
"""Two cells agree or disagree, and that is no trend."""


def trend(along: str, ours: Sequence[float], paper: Sequence[float]) -> Trend | None:
    """Return Spearman's correlation of our cells with the paper's, ties sharing their ranks; None for too few cells."""
    n = len(ours)
    if n < FEWEST:
        return None
    if len(set(ours)) == 1 or len(set(paper)) == 1:
        return Trend(along=along, rho=None, p=None, n=n, exact=True)
    a, b = _ranks(ours), _ranks(paper)
    rho = correlation(a, b)
    if n > EXACT:
        t = rho * math.sqrt((n - 2) / (1 - rho * rho)) if abs(rho) < 1 else math.inf
        return Trend(along=along, rho=rho, p=Design(n - 2, 1).p(t, "planned"), n=n, exact=False)
    extreme = abs(sum(map(mul, a, b))) - 1e-9
    sums = [abs(sum(map(mul, order, b))) >= extreme for order in permutations(a)]
    return Trend(along=along, rho=rho, p=fmean(sums), n=n, exact=True)


def _ranks(values: Sequence[float]) -> list[float]:
    """Return the ranks, less their mean."""
    ordered = sorted(values)
    return [(bisect_left(ordered, value) + bisect_right(ordered, value) - len(values)) / 2 for value in values]
