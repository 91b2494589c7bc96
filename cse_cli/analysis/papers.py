"""Reported rows of the papers and results of others, and the score columns that papers report together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType

from cse_cli.analysis.experiments import Experiment
from cse_cli.analysis.score_table import Score, ScoreRow
from cse_cli.core.formatting import grouped
from cse_cli.core.results import RANKED, STS_TASKS, PaperRow, Result, Scores, State, paper_average
from cse_cli.recipe.schema import Paper
from cse_cli.recipe.study import Study
from registry import papers
from registry.papers import AVERAGE, Column, Table
from registry.resources import catalog

AVERAGE_HEADING = "Avg"
"""Heading of the average of runs on evaluators that no paper reports."""
PUBLISHERS = ("google-bert/", "FacebookAI/")
"""Owners of models on the Hub that also have a name without owner."""
CASELESS = "-uncased"
"""Suffix of model names that the papers' tables omit."""
MISPRINTS = ("misprint", "illegible")
"""Kinds of doubt whose `implied` value is the intended one. For other kinds it is the value in another table."""


@cache
def rows_of_table(key: str, identifier: str) -> tuple[ScoreRow, ...]:
    """Return the rows of a paper's table, with doubts about them and their cells as notes."""
    paper = papers.load(key)
    table, found = paper.tables[identifier], []
    for name, row in table.rows.items():
        doubts, scores = table.doubts(name), dict[str, Score]()
        flags = {flag.column: flag for flag in reversed(doubts) if flag.column is not None}
        for column, cell, value, std in zip(table.columns, row.cells, row.numbers, row.spreads, strict=True):
            if value is not None:
                flag = flags.get(column.name)
                scores[column.name] = Score(
                    mean=value,
                    std=std,
                    n=row.runs if row.runs > 1 else None,  # 1 also means that the paper does not state it
                    comparable=table.comparable(name, column.name),
                    marks=("doubtful",) if flag is not None else (),
                    implied=flag.implied if flag is not None and flag.kind in MISPRINTS else None,
                    digits=len(cell.partition(".")[2]),
                )
        made = ScoreRow(
            source="paper",
            name=name,
            paper=key,
            table=identifier,
            reported_in=(f"{paper.short} {table.title}",),
            recipe=row.recipe,
            model=row.encoder or None,
            language=row.language or table.language,
            scores=scores,
            notes=tuple(flag.note for flag in doubts),
        )
        found.append(made)
    return tuple(found)


def reported_rows() -> Iterator[ScoreRow]:
    """Yield every row of every paper's tables."""
    for key in papers.names():
        for identifier in papers.load(key).tables:
            yield from rows_of_table(key, identifier)


def reported_row(address: PaperRow | Paper | None) -> ScoreRow | None:
    """Return a reported row, or None if it does not exist."""
    if address is None or address.key not in papers.names() or address.table not in papers.load(address.key).tables:
        return None
    return next((row for row in rows_of_table(address.key, address.table) if row.name == address.row), None)


def table_of(row: ScoreRow) -> Table:
    """Return the paper's table of a reported row."""
    return papers.load(str(row.paper)).tables[str(row.table)]


def judging_column(table: Table) -> Column:
    """Return the column that judges a row: the average, else the first one."""
    return next((column for column in table.columns if column.evaluator == AVERAGE), table.columns[0])


def reported_encoders() -> set[str]:
    """Return every encoder that a paper reports scores of."""
    return {row.model for row in reported_rows() if row.model}


def encoder_of(experiment: Experiment) -> str:
    """Return the papers' name for the encoder of runs, or the name of their model if no paper has it."""
    result = experiment.latest
    reproduced = reported_row(result.paper)
    return (reproduced.model if reproduced else None) or model_name(result.model) or experiment.recipe


def model_name(model: str) -> str:
    """Return the papers' name of a model."""
    bare = next((model.removeprefix(owner) for owner in PUBLISHERS if model.startswith(owner)), model)
    return bare.lower().removesuffix(CASELESS)


@dataclass(frozen=True)
class ScoreColumn:
    """A column of a table, and the score of runs in it.

    Args:
        evaluator: Name of an evaluator, or `avg`. Empty for a column without scores.
        metric: Name of a metric. None for the main one.
        averaged: Evaluators of the average. Empty for the seven English sets.
        aggregate: Aggregation of subsets in the paper, such as "all". Runs whose evaluator repeats another one as the
            metric have it as, for example, "spearman_all".
        data: `Result.data_of` of the evaluator. None in a paper's column, whose evaluator scores the data set that has
            its name, as far as the records contain it.
        gain_of: Column whose difference from other runs this one is.
        minus: Candidates for these runs. The first ones with seeds in common are used, seed by seed.
    """

    heading: str
    evaluator: str
    metric: str | None = None
    averaged: tuple[str, ...] = ()
    aggregate: str = ""
    data: tuple[str, ...] | None = None
    digits: int = 2
    gain_of: ScoreColumn | None = None
    minus: tuple[Experiment, ...] = ()

    def values(self, experiment: Experiment, of: State = "scores") -> list[float]:
        """Return the score of every seed.

        Empty if a seed lacks it or scored other data, or the average has a score that selects.
        """
        if self.gain_of is not None:
            mine = dict(zip(experiment.seeds, self.gain_of.values(experiment), strict=False))
            for other in self.minus:
                theirs = dict(zip(other.seeds, self.gain_of.values(other), strict=False))  # empty if a seed lacks it
                if common := [seed for seed in mine if seed in theirs]:
                    return [mine[seed] - theirs[seed] for seed in common]
            return []
        if (
            self.evaluator == AVERAGE
            and not experiment.test_selected
            and not all(map(experiment.judges, self.averaged))
        ) or self.data not in (None, experiment.latest.data_of(self.evaluator)):
            return []
        averaged = self.averaged or STS_TASKS if self.evaluator == AVERAGE else (self.evaluator,)
        if self.data is None and not all(scores_its_name(experiment.latest, name) for name in averaged):
            return []
        for metric in (f"{self.metric}_{self.aggregate}", self.metric):
            found = [self._value(getattr(result, of), metric) for result in experiment.results]
            known = [value for value in found if value is not None]
            if len(known) == len(found):
                return known
        return []

    def _value(self, scores: Scores, metric: str | None) -> float | None:
        if self.evaluator == AVERAGE:
            return paper_average(scores, self.averaged, metric or RANKED)
        metrics = scores.get(self.evaluator, {})
        return metrics.get(metric or next(iter(metrics), ""))  # the main metric is the first one


def own_column(score: str, result: Result, heading: str = "", averaged: tuple[str, ...] = ()) -> ScoreColumn:
    """Return the column of an "evaluator.metric" or of "avg", with the data that a run scored."""
    evaluator, _, metric = score.rpartition(".")
    metric, data = metric if evaluator else RANKED, result.data_of(evaluator)
    return ScoreColumn(heading or score, evaluator or AVERAGE, metric, averaged, data=data)


def scores_its_name(result: Result, evaluator: str) -> bool:
    """Return whether an evaluator with the name of a data set of pairs scored its test split, as far as it is known."""
    scored = result.scored_on.get(evaluator)
    pairs = evaluator in catalog.names() and catalog.entry(evaluator).kind == "pairs"
    return not scored or not pairs or list(scored) == [f"{evaluator}/test"]


def columns_of(
    table: Table,
    study: Study | None = None,
    row: str | None = None,
    by_name: Mapping[str, Sequence[Experiment]] = MappingProxyType({}),
) -> list[ScoreColumn]:
    """Return the columns of a paper's table. The scores of a study, then those of a row, take precedence.

    `by_name` has the runs of each row, for columns of differences.
    """
    averaged = tuple(column.evaluator for column in table.columns if column.evaluator not in (None, AVERAGE))
    found: list[ScoreColumn] = []
    for column in table.columns:
        own = None if study is None else study.score_of(column.name)
        evaluator, _, metric = (own or column.evaluator or "").partition(".")
        key, aggregate = table.score_of(column, row), (table.aggregate or "").partition(":")[0]
        aggregate = aggregate if key == RANKED else ""
        digits = 2 if row is None else max(2, len(table.rows[row].cells[len(found)].partition(".")[2]))
        found.append(ScoreColumn(column.name, evaluator, metric or key, averaged, aggregate, digits=digits))
    named = {column.heading: column for column in found}
    return [
        column if printed.minus is None
        else replace(column, gain_of=named[printed.of or ""], minus=tuple(by_name.get(printed.minus, ())))
        for column, printed in zip(found, table.columns, strict=True)
    ]  # fmt: skip


@dataclass(frozen=True)
class ScoreLayout:
    """The columns of a kind of table, in which papers report scores or runs have them.

    Args:
        columns: Columns in order.
        ranking: Heading of the column that ranks and judges a row. Empty if every column selected states.
        unit: End of the table's heading: the unit of the numbers, or their data if other runs scored other data.
    """

    columns: tuple[ScoreColumn, ...]
    ranking: str
    unit: str = ""

    @property
    def evaluators(self) -> tuple[str, ...]:
        """Evaluators of the columns, without the average."""
        return tuple(column.evaluator for column in self.columns if column.evaluator != AVERAGE)

    @property
    def scores(self) -> frozenset[tuple[str, str | None]]:
        """Evaluator and metric of each column."""
        return frozenset((column.evaluator, column.metric) for column in self.columns)

    def scored(self, experiment: Experiment) -> set[tuple[str, str | None]]:
        """Return evaluator and metric of the columns that runs have scores in, without the average."""
        own = [c for c in self.columns if c.evaluator != AVERAGE and c.values(experiment)]
        return {(column.evaluator, column.metric) for column in own}

    def in_metric(self, columns: Sequence[ScoreColumn], metric: str | None) -> list[ScoreColumn]:
        """Return columns, those of this layout with the metric of a reported row if it has its own."""
        return [replace(one, metric=metric) if metric and one in self.columns else one for one in columns]

    def reported_scores(self, row: ScoreRow) -> dict[str, Score]:
        """Return the cells of a reported row under the headings of this layout."""
        columns = [column for column in table_of(row).columns if column.evaluator and column.name in row.scores]
        named = {column.evaluator: row.scores[column.name] for column in columns}
        return {column.heading: named[column.evaluator] for column in self.columns if column.evaluator in named}


def layout_of(table: Table) -> ScoreLayout:
    """Return the columns of a paper's table that have scores, ranked by the average, else by the table's metric."""
    columns = tuple(column for column in columns_of(table) if column.evaluator)
    averages = [column for column in columns if column.evaluator == AVERAGE]
    first = next(iter(averages or [column for column in columns if column.metric == table.score] or columns), None)
    return ScoreLayout(columns, first.heading if first else "", f" [{table.metric}]" if table.metric else "")


def layouts(language: str) -> list[ScoreLayout]:
    """Return the layout of every kind of result table of a language, without layouts that are part of another."""
    found: dict[frozenset[tuple[str, str | None]], ScoreLayout] = {}
    for table in (table for key in papers.names() for table in papers.load(key).tables.values()):
        layout = layout_of(table)
        if (table.language, table.kind) == (language, "scores") and len(layout.columns) > 1:
            found.setdefault(layout.scores, layout)
    return [layout for scores, layout in found.items() if not any(scores < other for other in found)]


def group_by_layout(language: str, experiments: Sequence[Experiment]) -> Iterator[tuple[ScoreLayout, list[Experiment]]]:
    """Yield each layout with its runs. Runs are in a later layout only with scores that no earlier one shows."""
    shown: list[set[tuple[str, str | None]]] = [set() for _ in experiments]
    for layout in layouts(language):
        members = []
        for experiment, before in zip(experiments, shown, strict=True):
            if new := layout.scored(experiment) - before:
                members.append(experiment)
                before |= new
        if members:
            yield layout, members
    others = [one for one, before in zip(experiments, shown, strict=True) if not before and one.latest.scores]
    of_data = grouped(others, lambda one: tuple((name, one.latest.data_of(name)) for name in one.latest.scores))
    times = Counter(tuple(name for name, _ in scored) for scored in of_data)
    scored = [{name: [*data] for name, data in each[0].latest.scored_on.items()} for each in of_data.values()]
    for members, of_names in zip(of_data.values(), scored, strict=True):
        one = members[0].latest
        names = tuple(one.scores)
        layout = _own_layout(names, members)
        if times[names] > 1 or not all(scores_its_name(one, name) for name in names):
            several = scored.count(of_names) > 1  # versions of these data
            data = (
                f"{name}: {one.data_text(name) if several else ', '.join(of_names[name])}"
                if of_names.get(name)
                else f"{name}: unknown data"
                for name in names
            )
            layout = replace(layout, unit=f" [{'; '.join(data)}]")
        yield layout, members


def _own_layout(names: Sequence[str], members: Sequence[Experiment]) -> ScoreLayout:
    """Return a column for each evaluator, ranked by the average of the test sets, or by the only one."""
    columns = tuple(ScoreColumn(name, name, data=members[0].latest.data_of(name)) for name in names)
    judging = [one for one in members if not one.test_selected] or members
    shared = set(names).intersection(*(one.latest.tests()[0] for one in judging))
    tests = tuple(name for name in names if name in shared)
    if len(tests) > 1:
        average = ScoreColumn(AVERAGE_HEADING, AVERAGE, judging[0].latest.tests()[1], tests, data=())
        return ScoreLayout((*columns, average), AVERAGE_HEADING)
    return ScoreLayout(columns, tests[0] if tests else "")


def reported_for(encoder: str, language: str, layout: ScoreLayout) -> list[ScoreRow]:
    """Return the reported rows of an encoder from tables that have all columns."""
    return [
        row.model_copy(update={"scores": layout.reported_scores(row)})
        for row in reported_rows()
        if (row.model, row.language) == (encoder, language) and layout_of(table_of(row)).scores >= layout.scores
    ]


def merge_equal(rows: Iterable[ScoreRow]) -> list[ScoreRow]:
    """Return rows with equal scores as one row, because papers copy baselines from each other."""
    found: dict[tuple[tuple[str, float, float | None], ...], ScoreRow] = {}
    for row in rows:
        key = tuple((heading, score.mean, score.std) for heading, score in row.scores.items())
        first = found.setdefault(key, row)
        if first is not row:
            found[key] = first.model_copy(
                update={
                    "reported_in": tuple(dict.fromkeys([*first.reported_in, *row.reported_in])),
                    "notes": tuple(dict.fromkeys([*first.notes, *row.notes])),
                    "recipe": first.recipe or row.recipe,
                }
            )
    return list(found.values())


def reproductions_of(recipes: Iterable[str | None], layout: ScoreLayout) -> list[ScoreRow]:
    """Return results of others with the methods of recipes, one row for each source."""
    headings = {column.evaluator: column.heading for column in layout.columns}
    wanted = set(recipes)
    of_recipes = (one for one in papers.reproductions() if one.recipe in wanted)
    rows = []
    for measured in grouped(of_recipes, lambda one: (one.recipe, one.source)).values():
        first = measured[0]
        ranges = ", ".join(f"{one.score} {one.low:.2f} to {one.high:.2f}" for one in measured)
        runs = "one run" if first.n == 1 else f"{first.n} runs ({ranges})"
        notes = dict.fromkeys([f"{runs}, {first.source}", *(one.note for one in measured if one.note)])
        scores = {
            headings[one.score]: Score(mean=one.mean, std=one.std, n=one.n, low=one.low, high=one.high)
            for one in measured
            if one.score in headings
        }
        if scores:
            row = ScoreRow(
                source="reproduction",
                name=f"{first.paper}: reproduction by others",
                reported_in=(first.source,),
                recipe=first.recipe,
                scores=scores,
                notes=("; ".join(notes),),
            )
            rows.append(row)
    return rows
