"""Which scores stand side by side: the columns that papers print together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cse_cli.board.printed import Printed, reference
from cse_cli.board.runs import Configuration
from cse_cli.spread import Score
from registry import papers
from registry.papers import AVERAGE, Table


@dataclass(frozen=True)
class Column:
    """One column.

    Args:
        heading: As printed; the evaluator's name where no paper prints it.
        evaluator: What recipes call it, or `avg`.
        metric: Key under which the evaluator reports it; None for the one it is known by.
    """

    heading: str
    evaluator: str
    metric: str | None


@dataclass(frozen=True)
class Layout:
    """Columns in order.

    Args:
        columns: Of one kind of table.
        unit: What the numbers are, "" where that differs.
        score: Metric that the table is about, and that ranks where there is no average.
    """

    columns: tuple[Column, ...]
    unit: str = ""
    score: str | None = None

    @property
    def evaluators(self) -> tuple[str, ...]:
        """Without the average."""
        return tuple(column.evaluator for column in self.columns if column.evaluator != AVERAGE)

    @property
    def headings(self) -> tuple[str, ...]:
        """In order."""
        return tuple(column.heading for column in self.columns)

    @property
    def ranking(self) -> str:
        """Heading of the column that sorts: the average where there is one."""
        averages = [column for column in self.columns if column.evaluator == AVERAGE]
        scores = [column for column in self.columns if column.metric == self.score]
        return (averages or scores or self.columns)[0].heading

    def scored(self, configuration: Configuration) -> set[tuple[str, str | None]]:
        """Return evaluator and metric of what our runs have of it; an average is nothing of its own."""
        mine = [c for c in self.columns if c.evaluator != AVERAGE and self.values(configuration, c)]
        return {(column.evaluator, column.metric) for column in mine}

    def values(self, configuration: Configuration, column: Column, *, untrained: bool = False) -> list[float]:
        """Return a column of our runs, of every seed; nothing where one lacks it."""
        if column.evaluator == AVERAGE:
            return configuration.averages(self.evaluators, column.metric or "", untrained=untrained)
        return configuration.values(column.evaluator, column.metric, untrained=untrained)

    def of_printed(self, printed: Printed) -> dict[str, Score]:
        """Return a printed row's cells under these headings."""
        scores = printed.line().scores
        named = {c.evaluator: scores[c.name] for c in printed.table.columns if c.evaluator and c.name in scores}
        return {column.heading: named[column.evaluator] for column in self.columns if column.evaluator in named}

    def covered_by(self, table: Table) -> bool:
        """Tell whether a table prints all of these columns."""
        return set(_layout(table)) >= {(column.evaluator, column.metric) for column in self.columns}


def numbers(scores: dict[str, Score]) -> dict[str, float | None]:
    """Return what to compare with, by heading."""
    return {heading: reference(score) for heading, score in scores.items()}


def layouts(language: str) -> list[Layout]:
    """Return the columns of every kind of result table of a language; a table with fewer of the same is left out."""
    found: dict[tuple[tuple[str, str], ...], Layout] = {}
    for table in _tables(language):
        columns = tuple(
            Column(c.name, c.evaluator, table.score_of(c)) for c in table.columns if c.evaluator is not None
        )
        if len(columns) > 1:
            found.setdefault(_layout(table), Layout(columns, table.metric, table.score))
    keys = [set(key) for key in found]
    return [layout for key, layout in found.items() if not any(set(key) < other for other in keys)]


def own(configurations: Sequence[Configuration]) -> list[tuple[Layout, list[Configuration]]]:
    """Return a layout of its own for runs that score nothing a paper prints, one for each set of evaluators."""
    groups: dict[tuple[str, ...], list[Configuration]] = {}
    for configuration in configurations:
        groups.setdefault(tuple(configuration.results[0].scores), []).append(configuration)
    return [(Layout(tuple(Column(name, name, None) for name in names)), ran) for names, ran in groups.items() if names]


def _tables(language: str) -> Iterator[Table]:
    for key in papers.names():
        for table in papers.load(key).tables.values():
            if table.language == language and table.kind == "scores":
                yield table


def _layout(table: Table) -> tuple[tuple[str, str], ...]:
    return tuple((c.evaluator, table.score_of(c)) for c in table.columns if c.evaluator is not None)
