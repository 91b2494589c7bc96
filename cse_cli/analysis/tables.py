"""Score tables: reported rows with your experiments below them, tested, corrected and marked. Cells of studies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple

from cse_cli.analysis.experiments import Experiment, FinishedRuns, group, last_finished
from cse_cli.analysis.origins import RecipeStatus
from cse_cli.analysis.papers import (
    AVERAGE_HEADING,
    ScoreColumn,
    columns_of,
    encoder_of,
    judging_column,
    model_name,
    own_column,
    reported_encoders,
    rows_of_table,
)
from cse_cli.analysis.reproduced import verdict_note
from cse_cli.analysis.score_table import MissingCell, Score, ScoreRow, ScoreTable, correct_row, measure
from cse_cli.core.results import WORD_OVERLAP, Result
from cse_cli.core.stats import Trend, trend
from cse_cli.recipe.cells import Cell, cell_tag, cells, column_scores, headings
from cse_cli.recipe.study import Study
from cse_cli.recipe.trials import Choice, choose, trials, tuned
from cse_cli.runs.scores import main_metrics
from registry import papers
from registry.papers import AVERAGE, Table


class Cells(NamedTuple):
    """Cells that one of your experiments fills, and the cells to compare with. None is the untrained encoder."""

    experiment: Experiment
    columns: Sequence[ScoreColumn]
    reported: Mapping[str, Score] | None = None


def build(
    blocks: Iterable[Sequence[ScoreRow]],
    columns: Sequence[ScoreColumn],
    experiments: Sequence[Experiment],
    primary: str,
    *,
    ranked: bool = True,
    first: Iterable[ScoreRow] = (),
    **about: Any,
) -> ScoreTable:
    """Return the table of these blocks, with the word overlap of the experiments last.

    A block is a reported row and the rows of your experiments below it. `primary` is the column that judges a row, and
    ranks the blocks if they are `ranked`: a paper's table has its own order. `first` precedes all blocks, and `about`
    has the fields of the table.
    """
    if ranked:
        blocks = sorted(blocks, key=lambda rows: rank_by(primary, rows[0]))
        about["ranking"] = primary
    overlap = {}
    for column in columns:
        if values := next(filter(None, (column.values(one, "word_overlap") for one in experiments)), None):
            overlap[column.heading] = Score(mean=values[0])
    last = [ScoreRow(source="baseline", name=WORD_OVERLAP, scores=overlap)] if overlap else []
    rows = (*first, *chain.from_iterable(blocks), *last)
    return ScoreTable(columns=tuple(column.heading for column in columns), rows=rows, **about)


def measured_row(
    cells: Sequence[Cells], primary: str, row: ScoreRow | None = None, *, name: str = "", ranked: bool = True
) -> ScoreRow:
    """Return a row of your experiments with the marks of its cells and with the verdict on the row that it reproduces.

    Args:
        cells: Cells of its experiments. Several only in a study, whose columns can have separate runs.
        primary: Heading of the cell that is tested first and has the verdict.
        row: Row that they reproduce.
        name: Name of the row, which replaces title and settings of the recipe.
        ranked: Whether to test only evaluators that judge, as `compared_scores` does.
    """
    compared = [compared_scores(*of_one, only_judging=ranked) for of_one in cells]
    corrected = correct_row({heading: score for of_one in compared for heading, score in of_one.items()}, primary)
    scores, notes = dict[str, Score](), list[str]()
    for (experiment, *_), of_one in zip(cells, compared, strict=True):
        marks = {"stale": experiment.stale, "test_selected": experiment.test_selected}
        scores |= {heading: corrected[heading].marked(**marks) for heading in of_one}
        if of_one or len(cells) == 1:
            notes += experiment.remarks()
        if row is not None and row.paper and primary in of_one:
            notes += verdict_note(experiment, row, corrected[primary])
    made = own_row(cells[0].experiment, row, name, scores=scores, notes=tuple(dict.fromkeys(notes)))
    if len(cells) == 1:
        return made
    seeds = {seed for of_one in cells for seed in of_one.experiment.seeds}
    return made.model_copy(update={"recipe_hash": None, "seeds": tuple(sorted(seeds))})


def own_row(experiment: Experiment, row: ScoreRow | None, name: str, **fields: Any) -> ScoreRow:
    """Return the row of an experiment next to the row that it reproduces or is compared with."""
    latest = experiment.latest
    about = {
        "name": name or latest.title,
        "paper": row and row.paper,
        "table": row and row.table,
        "reproduces": row and row.name,
        "recipe": experiment.recipe,
        "copies": experiment.names[1:],
        "recipe_hash": latest.recipe_hash,
        "experiment": latest.experiment,
        "settings": () if name else experiment.settings,
        "configurations": experiment.best_of,
        "model": latest.model,
        "language": latest.language,
        "seeds": experiment.seeds,
    }
    return ScoreRow(source="measured", **{**about, **fields})


def seeds_table(experiment: Experiment) -> ScoreTable:
    """Return rows for the untrained encoder, each seed and their mean. The gain of the last one is not tested."""
    latest, seeds = experiment.latest, experiment.results
    columns = [own_column(score, latest, name) for name, score in main_metrics(latest.scores).items()]
    average = own_column(AVERAGE, latest, AVERAGE_HEADING)
    columns = [average, *columns] if average.values(experiment) else columns
    before = {column: start for column in columns if (start := column.values(experiment, "untrained"))}
    untrained = {column.heading: measure(start) for column, start in before.items()}
    rows = [ScoreRow(source="untrained", name="untrained", scores=untrained)] if untrained else []
    named = [(f"seed {one.seed}{' (test-selected)' if one.test_selected else ''}", (one,)) for one in seeds]
    for name, results in [*named, ("mean", seeds)] if len(seeds) > 1 else named:
        part, compared = replace(experiment, results=results), before if results == seeds else {}
        values = {column: own for column in columns if (own := column.values(part))}
        row = ScoreRow(
            source="measured",
            name=name,
            seeds=part.seeds,
            scores={of.heading: measure(own, before=compared.get(of, ())).untested() for of, own in values.items()},
            step=None if name == "mean" else results[0].selected_step,
            seconds=None if name == "mean" else results[0].seconds,
        )
        rows.append(row)
    return build([rows], columns, [experiment], "", kind="seeds", heading=f"{experiment.recipe} · {latest.title}")


def rank_by(heading: str, row: ScoreRow) -> tuple[bool, float, str]:
    """Return the sort key of a row: the highest score first, rows without it last. Without a heading, by recipe."""
    score = row.scores.get(heading)
    return score is None, -score.mean if score else 0.0, "" if heading else row.recipe or ""


def paper_table(key: str, identifier: str, runs: Sequence[Experiment]) -> ScoreTable:
    """Return a paper's table with your runs below the rows that they reproduce."""
    table, reported = papers.load(key).tables[identifier], rows_of_table(key, identifier)
    of_paper = [(one, one.latest.paper) for one in runs if one.latest.paper and one.latest.paper.key == key]
    by_name = {
        row.name: [  # runs of its recipe, or of another row of the paper with the same recipe
            one for one, own in of_paper if (own.table, own.row) == (identifier, row.name) or row.recipe in one.names
        ]
        for row in reported
    }
    primary, blocks = judging_column(table).name, []
    for row in reported:
        columns = columns_of_row(table, row, by_name)
        cells = [Cells(one, columns, row.scores) for one in by_name[row.name]]
        blocks.append([row, *(measured_row([one], primary, row, ranked=False) for one in cells)])
    shown = list(chain.from_iterable(by_name.values()))
    return build(blocks, columns_of(table), shown, primary, ranked=False, **about_table(key, identifier))


def about_table(key: str, identifier: str, remarks: Iterable[str] = (), heading: str = "") -> dict[str, Any]:
    """Return the fields of a paper's table, with the doubts about the whole table."""
    paper = papers.load(key)
    table = paper.tables[identifier]
    return {
        "kind": "table",
        "heading": f"{paper.short}, {table.title} ({identifier}): {table.caption} [{table.metric}]{heading}",
        "language": table.language,
        "paper": key,
        "table": identifier,
        "remarks": (*remarks, *(flag.note for flag in table.flags if flag.row is None)),
    }


def columns_of_row(
    table: Table, row: ScoreRow, by_name: Mapping[str, Sequence[Experiment]], study: Study | None = None
) -> list[ScoreColumn]:
    """Return the columns in which runs next to a reported row have scores. `by_name` has the runs of each row."""
    columns = columns_of(table, study, row.name, by_name)
    return [column for column in columns if column.gain_of is None or column.heading in row.scores]


def compared_scores(
    experiment: Experiment,
    columns: Iterable[ScoreColumn],
    reported: Mapping[str, Score] | None,
    *,
    only_judging: bool = False,
) -> dict[str, Score]:
    """Return the cells of an experiment, compared with the reported ones by heading, or with the untrained encoder.

    `only_judging` does not test evaluators that selected states, or any if its seeds chose the experiment.
    """
    scores, mode = {}, experiment.plan.mode
    for column in columns:
        if own := column.values(experiment):
            before = column.values(experiment, "untrained") if reported is None else []
            score = measure(own, (reported or {}).get(column.heading), mode, before=before)
            tested = not only_judging or (experiment.fresh and experiment.judges(column.evaluator))
            score = (score if tested else score.untested()).model_copy(update={"digits": column.digits})
            scores[column.heading] = score
    return scores


OTHER_SCORE = "the measured scores are {}, the paper's are {}"
OTHER_ENCODER = "{} is not the paper's encoder: only the trend is comparable, not the scores"


@dataclass(frozen=True)
class StudyRuns:
    """Cells of a study, each with its runs or None. Tuned rows have the chosen settings, or no cell without a choice.

    Args:
        choices: Settings that the trials of tuned rows chose.
        tried: Runs of the trials.
        outdated: Tuned rows whose trials ran with other settings than their recipe has now.
    """

    study: Study
    cells: Sequence[tuple[Cell, Experiment | None]]
    choices: Sequence[Choice] = ()
    tried: Sequence[Result] = ()
    outdated: Sequence[str] = ()

    @property
    def experiments(self) -> list[Experiment]:
        """Runs of all cells that have some."""
        return [runs for _, runs in self.cells if runs is not None]

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
        return [row for row in self.rows if row not in {cell.row for cell, _ in self.cells}]

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
        same = group(FinishedRuns([run for run in runs if run.recipe_hash == last], status=status), pool=pool)
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
    shown = runs.experiments
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
    shown = runs.experiments
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
