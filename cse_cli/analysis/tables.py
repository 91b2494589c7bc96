"""Score tables: rows of papers with your experiments below them, tested, corrected and marked. Tables of papers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from cse_cli.analysis.experiments import Experiment, mixed_environments
from cse_cli.analysis.origins import why_unreadable
from cse_cli.analysis.papers import (
    AVERAGE_HEADING,
    ScoreColumn,
    columns_of,
    judging_column,
    own_column,
    rows_of_table,
    word_overlap_row,
)
from cse_cli.analysis.reproduced import verdict_note
from cse_cli.analysis.score_table import Score, ScoreRow, ScoreTable, correct_row, measure
from cse_cli.recipe.study import Study
from cse_cli.runs.scores import main_metrics
from registry import papers
from registry.papers import AVERAGE, Table

Chosen = Sequence[tuple[Experiment, int]]
"""Configurations to show, each with the number of configurations of which it is the best."""
NO_FILE = "there is no recipe with this name, so the settings are not compared with its file"
UNREADABLE = "its recipe cannot be read, so the settings are not compared with its file: {}"
BEST_OF = "the best of {} configurations by the dev scores of these seeds, so it is not tested: run new seeds together"


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


@dataclass(frozen=True)
class OwnRow:
    """A row of your experiments that `build` makes.

    Args:
        cells: Cells of its experiments. Several only in a study, whose columns can have separate runs.
        row: Row that they reproduce, or are compared with.
        best_of: Number of configurations of which the experiment is the best.
        name: Name of the row, which replaces title and settings of the recipe.
        scores: Heading → cell, if the cells are already compared. Then the row has no notes.
    """

    cells: Sequence[Cells]
    row: ScoreRow | None = None
    best_of: int = 1
    name: str = ""
    scores: Mapping[str, Score] | None = None


def build(
    blocks: Iterable[Sequence[ScoreRow | OwnRow]],
    columns: Sequence[ScoreColumn],
    experiments: Sequence[Experiment],
    primary: str,
    *,
    ranked: bool = True,
    first: Iterable[ScoreRow] = (),
    **about: Any,
) -> ScoreTable:
    """Return the table of these blocks, with word overlap last.

    Args:
        blocks: Rows that stay together: reported and other finished rows, and rows of your experiments.
        columns: Columns of the table.
        experiments: Your experiments in the table, for the word overlap.
        primary: Heading of the column that judges a row, and by which blocks are ranked.
        ranked: Whether to rank the blocks, and to test only evaluators that judge. A paper's table has its own order.
        first: Rows before all blocks.
        about: Fields of the table.
    """
    made = [
        [row if isinstance(row, ScoreRow) else measured_row(row, primary, only_judging=ranked) for row in block]
        for block in blocks
    ]
    if ranked:
        made.sort(key=lambda rows: rank_by(primary, rows[0]))
        about["ranking"] = primary
    return ScoreTable(
        columns=tuple(column.heading for column in columns),
        rows=(*first, *(row for rows in made for row in rows), *word_overlap_row(experiments, columns)),
        **about,
    )


def measured_row(own: OwnRow, primary: str, *, only_judging: bool) -> ScoreRow:
    """Return a row with the marks of its cells, and with the verdict on the reported row that it reproduces.

    Args:
        own: Experiments of the row.
        primary: Heading of the cell that is tested first and has the verdict.
        only_judging: Whether to test only evaluators that judge, as `compared_scores` does.
    """
    compared = [compared_scores(*cells, only_judging=only_judging) for cells in own.cells if own.scores is None]
    corrected = correct_row({heading: score for of_one in compared for heading, score in of_one.items()}, primary)
    scores, notes = dict(own.scores or {}), list[str]()
    for (experiment, *_), of_one in zip(own.cells, compared, strict=False):
        marks = {"stale": experiment.stale, "test_selected": experiment.test_selected}
        scores |= {heading: corrected[heading].marked(**marks) for heading in of_one}
        if of_one or len(own.cells) == 1:
            unreadable = experiment.status == "unreadable"
            doubts = {
                NO_FILE: experiment.status == "missing",
                UNREADABLE.format(why_unreadable(experiment.latest) if unreadable else ""): unreadable,
                experiment.plan.text: experiment.plan.mode == "incomplete",
                BEST_OF.format(own.best_of): not experiment.fresh,
            }
            notes += [doubt for doubt, holds in doubts.items() if holds]
            notes += [*experiment.notes, *mixed_environments(experiment.results)]
        if own.row is not None and own.row.paper and primary in of_one:
            notes += verdict_note(experiment, own.row, corrected[primary])
    first, row = own.cells[0].experiment, own.row
    return ScoreRow(
        source="measured",
        name=own.name or first.latest.title,
        paper=row and row.paper,
        table=row and row.table,
        reproduces=row and row.name,
        recipe=first.recipe,
        copies=first.names[1:],
        recipe_hash=first.latest.recipe_hash if len(own.cells) == 1 else None,
        experiment=first.latest.experiment,
        settings=() if own.name else first.settings,
        configurations=own.best_of,
        model=first.latest.model,
        language=first.latest.language,
        seeds=tuple(sorted({seed for cells in own.cells for seed in cells.experiment.seeds})),
        scores=scores,
        notes=tuple(dict.fromkeys(notes)),
    )


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


def paper_table(
    key: str, identifier: str, runs: Sequence[Experiment], elsewhere: Collection[str] = ()
) -> tuple[ScoreTable, bool]:
    """Return a paper's table, and whether it has runs. Settings hashes in `elsewhere` are omitted."""
    shown = [run for run in runs if run.latest.recipe_hash not in elsewhere]
    table, reported = papers.load(key).tables[identifier], rows_of_table(key, identifier)
    of_paper = [
        (one, one.latest.paper) for one in shown if one.latest.paper is not None and one.latest.paper.key == key
    ]
    by_name = {
        row.name: [  # runs of its recipe, or of another row of the paper with the same recipe
            one for one, own in of_paper if (own.table, own.row) == (identifier, row.name) or row.recipe in one.names
        ]
        for row in reported
    }
    blocks: list[list[ScoreRow | OwnRow]] = []
    for row in reported:
        columns = columns_of_row(table, row, by_name)
        blocks.append([row, *(OwnRow([Cells(one, columns, row.scores)], row) for one in by_name[row.name])])
    own = [one for of_row in by_name.values() for one in of_row]
    about = about_table(key, identifier)
    return build(blocks, columns_of(table), own, judging_column(table).name, ranked=False, **about), bool(own)


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
