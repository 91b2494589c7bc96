"""What the leaderboard is made of: its rows and tables, printed rows, and the columns that papers print together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict

from cse_cli.analysis.experiments import Configuration
from cse_cli.core.identity import Mode
from cse_cli.core.stats import Score, score_against_number
from registry import papers
from registry.papers import AVERAGE, PaperTables, Table

SCHEMA_VERSION = 3

Source = Literal["paper", "ours", "untrained", "reproduction", "field"]


class RunHere(BaseModel):
    """Who ran printed cells of a row, or what keeps this machine from running them.

    Args:
        columns: The cells' columns; empty for all that are printed.
        state: "run" here; "ready" to be run; "needs" what is not on this machine; a setting that is "held" by a recipe;
            a number in a "data" set of the catalogue; nothing but a "reason"; or "open", without either.
        seeds: With which they were run here.
        text: The same in words.
    """

    model_config = ConfigDict(frozen=True)

    columns: tuple[str, ...] = ()
    state: Literal["run", "ready", "needs", "held", "data", "reason", "open"]
    seeds: tuple[int, ...] = ()
    text: str


class ScoreRow(BaseModel):
    """One line of a table of scores.

    Args:
        source: A printed row, our seeds of one configuration, their encoder before training, what others measured
            with many seeds, or a row of the field's public leaderboard.
        name: The printed row, or the recipe's title.
        paper: Key of the paper whose table it stands in; None for what no paper's row can be compared with.
        table: Table of that paper.
        printed: Where it is printed, for people: "IFCL Table 1"; several where papers repeat each other.
        answers: The printed row that our runs answer, and that they are compared with.
        recipe: Name of the recipe.
        copies: Other recipes with the same settings, whose runs are in this row too.
        experiment: ID of the experiment of our runs.
        settings: How it differs from the recipe's file, as `key=value`, and from other experiments with the same
            settings, as "text 1f914d36".
        configurations: Of how many configurations of this recipe this is the best by its dev mean.
        seeds: Every seed counted, once each.
        scores: Column → cell, where there is one.
        notes: What a reader must know before comparing.
        here: Of a printed row, or one of the field's list: who ran its cells.
    """

    model_config = ConfigDict(frozen=True)

    source: Source
    name: str
    paper: str | None = None
    table: str | None = None
    printed: tuple[str, ...] = ()
    answers: str | None = None
    recipe: str | None = None
    copies: tuple[str, ...] = ()
    recipe_hash: str | None = None
    experiment: str | None = None
    settings: tuple[str, ...] = ()
    configurations: int = 1
    model: str | None = None
    language: str | None = None
    seeds: tuple[int, ...] = ()
    scores: dict[str, Score]
    notes: tuple[str, ...] = ()
    here: tuple[RunHere, ...] = ()


class Trend(BaseModel):
    """Whether our numbers rise and fall with the paper's.

    Args:
        along: The printed column, or the printed row of a table that is printed sideways.
        rho: Spearman's rank correlation; None where one side is constant.
        p: Two-sided.
        n: Cells that both have.
        exact: Whether `p` counts all orders, or is Student's approximation.
    """

    model_config = ConfigDict(frozen=True)

    along: str
    rho: float | None
    p: float | None
    n: int
    exact: bool


class Missing(BaseModel):
    """A cell of a study that lacks runs."""

    model_config = ConfigDict(frozen=True)

    row: str
    columns: tuple[str, ...]
    seeds: int
    wanted: int


class ScoreTable(BaseModel):
    """One table of the leaderboard.

    Args:
        kind: All of one encoder, a paper's table with the runs of its recipes, or with those of a study, or the field's
            list of one encoder.
        columns: Headings, in order.
        rows: Lines, in order.
        remarks: What holds for the whole table.
        trends: Of a study's table.
        missing: Of a study's table.
        command: What computes the missing cells; of an encoder's table, rows of ours that are empty.
    """

    model_config = ConfigDict(frozen=True)

    kind: Literal["encoder", "table", "study", "field"]
    heading: str
    encoder: str | None = None
    language: str | None = None
    paper: str | None = None
    table: str | None = None
    study: str | None = None
    columns: tuple[str, ...]
    rows: tuple[ScoreRow, ...]
    remarks: tuple[str, ...] = ()
    trends: tuple[Trend, ...] = ()
    missing: tuple[Missing, ...] = ()
    command: str | None = None


PUBLISHERS = ("google-bert/", "FacebookAI/")
"""Owners under which the hub keeps the same models that have a bare name too."""
CASELESS = "-uncased"
"""What a model's name says and the papers' tables do not."""
AVERAGE_HEADING = "Avg"
"""Of the test sets of runs that score what no paper prints."""
MISPRINTS = ("misprint", "illegible")
"""Doubts of which `implied` says what was meant, not what another table prints."""


@dataclass(frozen=True)
class PrintedRow:
    """A printed row: paper, identifier of its table, name."""

    paper: PaperTables
    identifier: str
    name: str

    @property
    def table(self) -> Table:
        """The table it stands in."""
        return self.paper.tables[self.identifier]

    @property
    def encoder(self) -> str:
        """What it was computed with, "" where that is not said."""
        return self.table.rows[self.name].encoder

    @property
    def language(self) -> str | None:
        """Of the scores."""
        return self.table.rows[self.name].language or self.table.language

    @property
    def recipe(self) -> str | None:
        """Our recipe that answers it."""
        return self.table.rows[self.name].recipe

    def score_row(self) -> ScoreRow:
        """Return it as a row of the leaderboard; doubts about cells and about the row become notes."""
        return ScoreRow(
            source="paper",
            name=self.name,
            paper=self.paper.key,
            table=self.identifier,
            printed=(f"{self.paper.short} {self.table.title}",),
            recipe=self.recipe,
            model=self.encoder or None,
            language=self.language,
            scores=self._scores(),
            notes=tuple(flag.note for flag in self.table.doubts(self.name)),
        )

    def _scores(self) -> dict[str, Score]:
        row = self.table.rows[self.name]
        flags = {flag.column: flag for flag in reversed(self.table.doubts(self.name)) if flag.column is not None}
        found: dict[str, Score] = {}
        for column, cell, value, std in zip(self.table.columns, row.cells, row.numbers, row.spreads, strict=True):
            if value is not None:
                flag = flags.get(column.name)
                found[column.name] = Score(
                    mean=value,
                    std=std,
                    comparable=self.table.comparable(self.name, column.name),
                    marks=("doubtful",) if flag is not None else (),
                    implied=flag.implied if flag is not None and flag.kind in MISPRINTS else None,
                    digits=len(cell.partition(".")[2]),
                )
        return found


def reference(score: Score | None) -> float | None:
    """Return the number to compare with: what was meant, where another one was printed by mistake."""
    if score is None:
        return None
    return score.mean if score.implied is None else score.implied


def compare_with_printed(values: Sequence[float], printed: Score | None, mode: Mode = "anytime") -> Score:
    """Compare our seeds with a printed cell; where it is another quantity, the difference is shown and not tested."""
    score = score_against_number(values, reference(printed), mode)
    return (
        score if printed is None or printed.comparable else score.with_p(None).model_copy(update={"comparable": False})
    )


def printed_rows() -> Iterator[PrintedRow]:
    """Yield every printed row of every paper."""
    for key in papers.names():
        paper = papers.load(key)
        yield from (PrintedRow(paper, identifier, name) for identifier, of in paper.tables.items() for name in of.rows)


def find_printed_row(key: str, identifier: str, name: str) -> PrintedRow | None:
    """Return a printed row, or None where there is none of that name today."""
    table = papers.load(key).tables.get(identifier) if key in papers.names() else None
    return PrintedRow(papers.load(key), identifier, name) if table is not None and name in table.rows else None


def printed_encoders() -> set[str]:
    """Return every encoder that some paper prints scores of."""
    return {row.encoder for row in printed_rows()} - {""}


def encoder_of(configuration: Configuration) -> str:
    """Return how the papers' tables call the encoder of our runs; the model's own name where they do not have it."""
    result = configuration.latest
    if (paper := result.paper) is not None:
        answered = find_printed_row(paper.key, paper.table, paper.row)
        if answered is not None and answered.encoder:
            return answered.encoder
    return model_name(result.model) or configuration.recipe


def model_name(model: str) -> str:
    """Return the papers' name of a model."""
    bare = next((model.removeprefix(owner) for owner in PUBLISHERS if model.startswith(owner)), model)
    return bare.lower().removesuffix(CASELESS)


@dataclass(frozen=True)
class LayoutColumn:
    """A column of a kind of table.

    Args:
        heading: As printed; the evaluator's name where no paper prints it.
        evaluator: As recipes name it, or `avg`.
        metric: Key under which the evaluator reports it; None for its main metric.
    """

    heading: str
    evaluator: str
    metric: str | None


@dataclass(frozen=True)
class Layout:
    """The columns of a kind of table.

    Args:
        columns: In order.
        unit: What the numbers are, "" where that differs.
        score: Metric that the table is about, and that ranks if there is no average.
        averaged: Evaluators of the average, or empty for all.
        ranked_by: Heading of the column that ranks, "" if all columns have selected states, None for the average.
    """

    columns: tuple[LayoutColumn, ...]
    unit: str = ""
    score: str | None = None
    averaged: tuple[str, ...] = ()
    ranked_by: str | None = None

    @property
    def evaluators(self) -> tuple[str, ...]:
        """Without the average."""
        return tuple(column.evaluator for column in self.columns if column.evaluator != AVERAGE)

    @property
    def ranking(self) -> str:
        """Heading of the column that sorts and that a row is judged by: the average if there is one; "" for none."""
        if self.ranked_by is not None:
            return self.ranked_by
        averages = [column for column in self.columns if column.evaluator == AVERAGE]
        scores = [column for column in self.columns if column.metric == self.score]
        return (averages or scores or self.columns)[0].heading

    def scored(self, configuration: Configuration) -> set[tuple[str, str | None]]:
        """Return evaluator and metric of what our runs have of it; an average is nothing of its own."""
        own = [c for c in self.columns if c.evaluator != AVERAGE and self.values(configuration, c)]
        return {(column.evaluator, column.metric) for column in own}

    def values(self, configuration: Configuration, column: LayoutColumn, *, untrained: bool = False) -> list[float]:
        """Return a column of our runs, of every seed, or nothing if one lacks it or a selecting score is averaged."""
        if column.evaluator == AVERAGE:
            averaged = self.averaged or self.evaluators
            if not configuration.test_selected and not all(map(configuration.judges, averaged)):
                return []
            return configuration.averages(averaged, column.metric or "", untrained=untrained)
        return configuration.values(column.evaluator, column.metric, untrained=untrained)

    def printed_scores(self, printed: PrintedRow) -> dict[str, Score]:
        """Return a printed row's cells under these headings."""
        scores = printed.score_row().scores
        named = {c.evaluator: scores[c.name] for c in printed.table.columns if c.evaluator and c.name in scores}
        return {column.heading: named[column.evaluator] for column in self.columns if column.evaluator in named}

    def covered_by(self, table: Table) -> bool:
        """Return whether a table prints all of these columns."""
        return _scores_of(table) >= {(column.evaluator, column.metric) for column in self.columns}


def layouts(language: str) -> list[Layout]:
    """Return the columns of every kind of result table of a language; a table with fewer of the same is left out."""
    found: dict[frozenset[tuple[str, str | None]], Layout] = {}
    tables = [table for key in papers.names() for table in papers.load(key).tables.values()]
    for table in tables:
        columns = tuple(LayoutColumn(c.name, c.evaluator, table.score_of(c)) for c in table.columns if c.evaluator)
        if (table.language, table.kind) == (language, "scores") and len(columns) > 1:
            found.setdefault(_scores_of(table), Layout(columns, table.metric, table.score))
    return [layout for scores, layout in found.items() if not any(scores < other for other in found)]


def _scores_of(table: Table) -> frozenset[tuple[str, str | None]]:
    return frozenset((c.evaluator, table.score_of(c)) for c in table.columns if c.evaluator is not None)


def own_layouts(configurations: Sequence[Configuration]) -> list[tuple[Layout, list[Configuration]]]:
    """Return a layout of its own for runs that score nothing a paper prints, one for each set of evaluators."""
    groups: dict[tuple[str, ...], list[Configuration]] = {}
    for configuration in configurations:
        groups.setdefault(tuple(configuration.results[0].scores), []).append(configuration)
    return [(_own_layout(names, members), members) for names, members in groups.items() if names]


def _own_layout(names: Sequence[str], members: Sequence[Configuration]) -> Layout:
    """Return a column for each evaluator, ranked by the average of the test sets, or by the only one."""
    columns = tuple(LayoutColumn(name, name, None) for name in names)
    judging = [one for one in members if not one.test_selected] or members
    shared = set(names).intersection(*(one.latest.tests()[0] for one in judging))
    tests = tuple(name for name in names if name in shared)
    if len(tests) > 1:
        average = LayoutColumn(AVERAGE_HEADING, AVERAGE, judging[0].latest.tests()[1])
        return Layout((*columns, average), averaged=tests)
    return Layout(columns, ranked_by=tests[0] if tests else "")


def printed_beside(encoder: str, language: str, layout: Layout) -> list[ScoreRow]:
    """Return the rows that papers print of an encoder, from tables that have all columns."""
    return [
        row.score_row().model_copy(update={"scores": layout.printed_scores(row)})
        for row in printed_rows()
        if (row.encoder, row.language) == (encoder, language) and layout.covered_by(row.table)
    ]


def merge_equal(rows: Iterable[ScoreRow]) -> list[ScoreRow]:
    """Return rows that say the same as one: papers copy their baselines from each other."""
    found: dict[tuple[tuple[str, float, float | None], ...], ScoreRow] = {}
    for row in rows:
        key = tuple((heading, score.mean, score.std) for heading, score in row.scores.items())
        first = found.setdefault(key, row)
        if first is not row:
            found[key] = first.model_copy(
                update={
                    "printed": tuple(dict.fromkeys([*first.printed, *row.printed])),
                    "notes": tuple(dict.fromkeys([*first.notes, *row.notes])),
                    "recipe": first.recipe or row.recipe,
                }
            )
    return list(found.values())


def reproduced(recipes: Sequence[str | None], layout: Layout) -> list[ScoreRow]:
    """Return what others measured when they ran the methods of these recipes again, one row a source."""
    headings = {column.evaluator: column.heading for column in layout.columns}
    sources: dict[tuple[str, str], list[papers.Reproduction]] = {}
    for one in papers.reproductions():
        if one.recipe in recipes:
            sources.setdefault((one.recipe, one.source), []).append(one)
    found = []
    for (recipe, source), measured in sources.items():
        ranges = ", ".join(f"{one.score} {one.low:.2f} to {one.high:.2f}" for one in measured)
        runs = "one run" if measured[0].n == 1 else f"{measured[0].n} runs ({ranges})"
        shown = [one for one in measured if one.score in headings]
        if shown:
            found.append(
                ScoreRow(
                    source="reproduction",
                    name=f"{shown[0].paper}: run again by others",
                    printed=(source,),
                    recipe=recipe,
                    scores={
                        headings[one.score]: Score(mean=one.mean, std=one.std, n=one.n, low=one.low, high=one.high)
                        for one in shown
                    },
                    notes=("; ".join(dict.fromkeys([f"{runs}, {source}", *(m.note for m in measured if m.note)])),),
                )
            )
    return found
