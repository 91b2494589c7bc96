"""Score tables: rows of papers with your experiments below them, tested, corrected and marked. Tables of papers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

from cse_cli.analysis.experiments import Experiment
from cse_cli.analysis.papers import (
    AVERAGE_HEADING,
    ScoreColumn,
    columns_of,
    judging_column,
    own_column,
    rows_of_table,
)
from cse_cli.analysis.reproduced import verdict_note
from cse_cli.analysis.score_table import Score, ScoreRow, ScoreTable, correct_row, measure
from cse_cli.core.results import WORD_OVERLAP
from cse_cli.recipe.study import Study
from cse_cli.runs.scores import main_metrics
from registry import papers
from registry.papers import AVERAGE, Table


class Cells(NamedTuple):
    """Cells that one of your experiments fills.

    Args:
        experiment: Runs.
        columns: Columns of the cells.
        reported: Heading → cell to compare with. None compares with the untrained encoder.
    """

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

    Args:
        blocks: Rows that stay together: a reported row and the rows of your experiments.
        columns: Columns of the table.
        experiments: Your experiments in the table.
        primary: Heading of the column that judges a row.
        ranked: Whether to rank the blocks by this column. A paper's table has its own order.
        first: Rows before all blocks.
        about: Fields of the table.
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
