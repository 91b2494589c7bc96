"""Score columns that papers report together, and the values of finished runs in these columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cse_cli.analysis.experiments import Configuration
from cse_cli.analysis.papers import ReportedRow
from cse_cli.analysis.score_table import Score
from registry import papers
from registry.papers import AVERAGE, Table

AVERAGE_HEADING = "Avg"
"""Heading of the average of runs on evaluators that no paper reports."""


@dataclass(frozen=True)
class LayoutColumn:
    """A column of scores.

    Args:
        heading: Heading in the paper, or name of an evaluator that no paper reports.
        evaluator: Name of the evaluator in recipes, or `avg`.
        metric: Metric of the evaluator. None for its main metric.
    """

    heading: str
    evaluator: str
    metric: str | None


@dataclass(frozen=True)
class ScoreLayout:
    """The columns of a kind of table.

    Args:
        columns: Columns in order.
        unit: Unit of the numbers. Empty if they differ.
        score: Metric of the table, which ranks the rows if there is no average.
        averaged: Evaluators of the average. Empty for all.
        ranked_by: Heading of the column that ranks the rows. None for the average, empty if every column selected
            states.
    """

    columns: tuple[LayoutColumn, ...]
    unit: str = ""
    score: str | None = None
    averaged: tuple[str, ...] = ()
    ranked_by: str | None = None

    @property
    def evaluators(self) -> tuple[str, ...]:
        """Evaluators of the columns, without the average."""
        return tuple(column.evaluator for column in self.columns if column.evaluator != AVERAGE)

    @property
    def headings(self) -> tuple[str, ...]:
        """Headings of the columns."""
        return tuple(column.heading for column in self.columns)

    @property
    def unit_text(self) -> str:
        """The unit in brackets, for the heading of a table."""
        return f" [{self.unit}]" if self.unit else ""

    @property
    def ranking(self) -> str:
        """Heading of the column that ranks and judges a row: the average if there is one. Empty for no column."""
        if self.ranked_by is not None:
            return self.ranked_by
        averages = [column for column in self.columns if column.evaluator == AVERAGE]
        scores = [column for column in self.columns if column.metric == self.score]
        return (averages or scores or self.columns)[0].heading

    def scored(self, configuration: Configuration) -> set[tuple[str, str | None]]:
        """Return evaluator and metric of the columns that runs have scores in, without the average."""
        own = [c for c in self.columns if c.evaluator != AVERAGE and self.values(configuration, c)]
        return {(column.evaluator, column.metric) for column in own}

    def values(self, configuration: Configuration, column: LayoutColumn, *, untrained: bool = False) -> list[float]:
        """Return a column's score of every seed. Empty if a seed lacks it or the average has a score that selects."""
        if column.evaluator == AVERAGE:
            averaged = self.averaged or self.evaluators
            if not configuration.test_selected and not all(map(configuration.judges, averaged)):
                return []
            return configuration.averages(averaged, column.metric or "", untrained=untrained)
        return configuration.values(column.evaluator, column.metric, untrained=untrained)

    def reported_scores(self, row: ReportedRow) -> dict[str, Score]:
        """Return the cells of a reported row under the headings of this layout."""
        scores = row.score_row().scores
        named = {c.evaluator: scores[c.name] for c in row.table.columns if c.evaluator and c.name in scores}
        return {column.heading: named[column.evaluator] for column in self.columns if column.evaluator in named}

    def covered_by(self, table: Table) -> bool:
        """Return whether a reported table has all of these columns."""
        return _scores_of(table) >= {(column.evaluator, column.metric) for column in self.columns}


def layouts(language: str) -> list[ScoreLayout]:
    """Return the layout of every kind of result table of a language, without layouts that are part of another."""
    found: dict[frozenset[tuple[str, str | None]], ScoreLayout] = {}
    tables = [table for key in papers.names() for table in papers.load(key).tables.values()]
    for table in tables:
        columns = tuple(LayoutColumn(c.name, c.evaluator, table.score_of(c)) for c in table.columns if c.evaluator)
        if (table.language, table.kind) == (language, "scores") and len(columns) > 1:
            found.setdefault(_scores_of(table), ScoreLayout(columns, table.metric, table.score))
    return [layout for scores, layout in found.items() if not any(scores < other for other in found)]


def _scores_of(table: Table) -> frozenset[tuple[str, str | None]]:
    return frozenset((c.evaluator, table.score_of(c)) for c in table.columns if c.evaluator is not None)


def group_by_layout(
    language: str, configurations: Sequence[Configuration]
) -> Iterator[tuple[ScoreLayout, list[Configuration]]]:
    """Yield each layout with its runs. Runs are in a later layout only with scores that no earlier one shows."""
    shown: list[set[tuple[str, str | None]]] = [set() for _ in configurations]
    for layout in layouts(language):
        members = []
        for configuration, before in zip(configurations, shown, strict=True):
            if new := layout.scored(configuration) - before:
                members.append(configuration)
                before |= new
        if members:
            yield layout, members
    groups: dict[tuple[str, ...], list[Configuration]] = {}
    for configuration, before in zip(configurations, shown, strict=True):
        if not before and configuration.results[0].scores:
            groups.setdefault(tuple(configuration.results[0].scores), []).append(configuration)
    yield from ((_own_layout(names, members), members) for names, members in groups.items())


def _own_layout(names: Sequence[str], members: Sequence[Configuration]) -> ScoreLayout:
    """Return a column for each evaluator, ranked by the average of the test sets, or by the only one."""
    columns = tuple(LayoutColumn(name, name, None) for name in names)
    judging = [one for one in members if not one.test_selected] or members
    shared = set(names).intersection(*(one.latest.tests()[0] for one in judging))
    tests = tuple(name for name in names if name in shared)
    if len(tests) > 1:
        average = LayoutColumn(AVERAGE_HEADING, AVERAGE, judging[0].latest.tests()[1])
        return ScoreLayout((*columns, average), averaged=tests)
    return ScoreLayout(columns, ranked_by=tests[0] if tests else "")
