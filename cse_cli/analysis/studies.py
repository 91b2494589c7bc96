"""Studies: their cells with the runs of each, next to the reported rows of a paper or as a separate table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cse_cli.analysis.experiments import Experiment, FinishedRuns, group, last_finished
from cse_cli.analysis.origins import RecipeStatus
from cse_cli.analysis.papers import (
    ScoreColumn,
    columns_of,
    encoder_of,
    judging_column,
    model_name,
    own_column,
    reported_encoders,
    rows_of_table,
)
from cse_cli.analysis.score_table import MissingCell, ScoreRow, ScoreTable
from cse_cli.analysis.tables import Cells, about_table, build, columns_of_row, measured_row
from cse_cli.core.results import Result
from cse_cli.core.stats import Trend, trend
from cse_cli.recipe.cells import Cell, cell_tag, cells, column_scores, headings
from cse_cli.recipe.study import Study
from cse_cli.recipe.trials import Choice, choose, trials, tuned
from registry import papers

OTHER_SCORE = "the measured scores are {}, the paper's are {}"
OTHER_ENCODER = "{} is not the paper's encoder: only the trend is comparable, not the scores"


@dataclass(frozen=True)
class StudyRuns:
    """Cells of a study, each with its runs or None, and the settings that its trials chose.

    Tuned rows have the chosen settings. Those without a choice have no cell.

    Args:
        tried: Runs of the trials.
        outdated: Tuned rows whose trials ran with other settings than their recipe has now.
    """

    study: Study
    cells: Sequence[tuple[Cell, Experiment | None]]
    choices: Sequence[Choice] = ()
    tried: Sequence[Result] = ()
    outdated: Sequence[str] = ()

    @property
    def any(self) -> bool:
        """Whether any cell has runs."""
        return any(runs is not None for _, runs in self.cells)

    @property
    def current(self) -> dict[str, list[Result]]:
        """Settings hash → runs of the cell with its current settings, by seed."""
        found = {cell.hash: runs for cell, runs in self.cells if runs is not None and runs.status == "current"}
        return {digest: list(runs.results) for digest, runs in found.items()}

    @property
    def rows(self) -> list[str]:
        """Names of all rows that the study does not omit."""
        return [row.row for _, row in self.study.placed_rows()] or [cell.row for cell, _ in self.cells]

    def unchosen_rows(self) -> list[str]:
        """Return the names of the tuned rows that have no cell, because none of their trials has finished."""
        chosen = {cell.row for cell, _ in self.cells}
        return [row for row in self.rows if row not in chosen]

    def rows_without_runs(self) -> list[str]:
        """Return the names of the rows of which no cell has runs."""
        return [row for row in self.rows if not self.in_row(row)]

    def in_row(self, name: str) -> list[tuple[Cell, Experiment]]:
        """Return the cells of one reported row that have runs."""
        return [(cell, runs) for cell, runs in self.cells if cell.row == name and runs is not None]

    def about(self) -> dict[str, Any]:
        """Return the fields of a table of this study."""
        missing, name = self.missing(), self.study.name
        return {"kind": "study", "study": name, "missing": missing, "command": f"cse run {name}" if missing else None}

    def missing(self) -> tuple[MissingCell, ...]:
        """Return the cells that lack seeds."""
        requested, current = set(self.study.seed_list), self.current
        found = []
        for cell, _ in self.cells:
            seeds = len(requested & {run.seed for run in current.get(cell.hash, ())})
            if seeds < len(requested):
                found.append(MissingCell(row=cell.row, columns=cell.columns, seeds=seeds, requested=len(requested)))
        return tuple(found)


def study_runs(study: Study, finished: FinishedRuns, *, pool: bool = False) -> StudyRuns:
    """Return a study's cells with their runs.

    The runs of a cell have the current settings of its recipe. If no such runs exist, they are the newest runs that
    were started for the cell. Of several experiments with these settings, the one that finished last is
    used. Tuned rows have the settings that their trials chose.
    """
    results, tags, choices = finished.results, finished.tags, list[Choice]()
    of_trials: dict[str, list[Result]] = {}
    outdated: list[str] = []
    if study.is_tuned:
        tried = trials(study)
        of_trials = {trial.cell.hash: [run for run in results if run.recipe_hash == trial.cell.hash] for trial in tried}
        choices = choose(study, tried, of_trials)
        named = set(tags.values())
        started = {trial.row for trial in tried if cell_tag(study, trial.cell) in named}
        outdated = [choice.row for choice in choices if not choice.settings and choice.row in started]
    found: list[tuple[Cell, Experiment | None]] = []
    for cell in cells(tuned(study, choices) if study.is_tuned else study):
        current = [run for run in results if run.recipe_hash == cell.hash]
        runs = current or [run for run in results if tags.get(run.run_id or "") == cell_tag(study, cell)]
        last = last_finished(runs).recipe_hash if runs else ""
        status: RecipeStatus = "current" if current else "changed"
        same = group((run for run in runs if run.recipe_hash == last), status=status, pool=pool)
        found.append((cell, max(same, key=lambda one: one.latest.finished, default=None)))
    return StudyRuns(study, found, choices, [run for runs in of_trials.values() for run in runs], outdated)


def study_table(runs: StudyRuns, key: str, identifier: str) -> ScoreTable:
    """Return a paper's table with the runs of a study below each reported row, trends and missing cells."""
    table, blocks = papers.load(key).tables[identifier], list[list[ScoreRow]]()
    primary = judging_column(table).name
    by_name = {name: [of_cell for _, of_cell in runs.in_row(name)] for name in table.rows}
    for row in rows_of_table(key, identifier):
        columns, found = columns_of_row(table, row, by_name, runs.study), list[Cells]()
        for cell, experiment in runs.in_row(row.name):
            current = experiment.status == "current"
            encoder = encoder_of(experiment) if current else model_name(experiment.latest.model)
            same_encoder = encoder in ({row.model} if row.model else reported_encoders())
            own = [one for one in columns if not cell.columns or one.heading in cell.columns]
            found.append(Cells(experiment, own, row.scores if same_encoder else {}))
        own_row = [measured_row(found, primary, row, name=row.name, ranked=False)] if found else []
        blocks.append([row, *own_row])
    shown = [of_cell for _, of_cell in runs.cells if of_cell is not None]
    encoders = dict.fromkeys(map(encoder_of, shown))
    others = [name for name in encoders if name not in reported_encoders()]
    named = {name for own in runs.study.columns for name in own.names}
    printed = [one for one in table.columns if not named or one.name in named]
    pairs = dict.fromkeys((runs.study.score_of(one.name), one.evaluator) for one in printed)
    replaced = [(own, theirs) for own, theirs in pairs if own and theirs and own.partition(".")[0] != theirs]
    remarks = [*map(OTHER_ENCODER.format, others), *(OTHER_SCORE.format(*pair) for pair in replaced)]
    heading = f": {runs.study.name} on {', '.join(encoders) or 'no encoder yet'}"
    about = about_table(key, identifier, remarks, heading) | runs.about() | {"encoder": ", ".join(encoders) or None}
    made = build(blocks, columns_of(table), shown, primary, ranked=False, **about)
    reported = {row.name: row.scores for row in made.rows if row.source == "paper"}
    sideways, trends = len(table.rows) == 1, list[Trend]()
    for name in list(reported) if sideways else made.columns:
        left, right = [], []
        for row in made.rows:
            for column, score in row.scores.items() if row.source == "measured" else ():
                if column in reported[row.name] and name == (row.name if sideways else column):
                    left.append(score.mean)
                    right.append(reported[row.name][column].target)
        if (along := trend(name, left, right)) is not None:
            trends.append(along)
    return made.model_copy(update={"trends": tuple(trends)})


def own_table(runs: StudyRuns) -> ScoreTable:
    """Return the rows and columns of a study itself, with the scores of its runs and the missing cells."""
    columns, rows = dict[str, ScoreColumn](), dict[str, list[Cells]]()
    for cell, experiment in runs.cells:
        own = rows.setdefault(cell.row, [])
        if experiment is not None:
            scores = column_scores(runs.study, cell, experiment.results)
            made = [own_column(score, experiment.latest, name, averaged) for name, (score, averaged) in scores.items()]
            columns = {column.heading: column for column in made} | columns
            own.append(Cells(experiment, made, {}))
    shown = [of_cell for _, of_cell in runs.cells if of_cell is not None]
    return build(
        [
            [
                measured_row(own, "", name=name, ranked=False)
                if own
                else ScoreRow(source="measured", name=name, scores={})
            ]
            for name, own in rows.items()
        ],
        [columns[name] for name in headings(runs.study, columns)],
        shown,
        "",
        ranked=False,
        heading=f"{runs.study.name} · {runs.study.title}",
        **runs.about(),
    )
