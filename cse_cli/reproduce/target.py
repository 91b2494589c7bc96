"""Target of a reproduction: a recipe, and the reported or measured row that it should reproduce."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import BaseModel

from cse_cli.analysis.papers import ReportedRow, find_reported_row
from cse_cli.core.results import STS_TASKS, Result, paper_average
from cse_cli.recipe.files import bare_file, recipe_name
from cse_cli.recipe.load import LoadedRecipe, load
from cse_cli.reproduce.verdict import TOLERANCE, Claim, Spread
from registry import papers
from registry.errors import CseError, UnknownNameError, suggestion
from registry.papers import AVERAGE, MeasuredRow, PaperTables
from registry.papers.tables import Doubt

_OF_THE_TEXT: tuple[Doubt, ...] = ("bold_not_maximum", "text_only", "wording", "unused")
"""Kinds of doubts that do not concern the numbers of a row."""


class Reference(BaseModel, frozen=True):
    """A reported row, or one that this project measured.

    Args:
        name: Name for headings, such as "IFCL, Table 1, IFCL-BERT base".
        source: Citation of the paper, or command and machine of the measurement.
        scores: Heading → reported score.
        judged: Heading that the verdict is about.
        claim: Reported number under this heading.
        tolerance: Precision of your mean that a verdict requires, in points.
        others: Published runs of the same recipe.
        notes: Doubts about the reported row.
    """

    name: str
    source: str
    scores: dict[str, float]
    judged: str
    claim: Claim
    tolerance: float
    others: Spread | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Column:
    """A column of the row: its evaluators and their metric. Several evaluators are averaged as in papers."""

    evaluators: Sequence[str]
    metric: str

    def value(self, result: Result) -> float | None:
        """Return the score of a run, or None if it has none."""
        if len(self.evaluators) > 1:
            return paper_average(result.scores, self.evaluators, self.metric)
        return result.scores.get(self.evaluators[0], {}).get(self.metric)


@dataclass(frozen=True)
class Target:
    """Recipe to run, and the row to compare it with. `columns` are those that the recipe scores."""

    loaded: LoadedRecipe = field(repr=False)
    argument: str
    reference: Reference
    columns: Mapping[str, Column]

    @property
    def trained(self) -> bool:
        """Whether the recipe trains. If it does not, every run has the same scores."""
        return self.loaded.recipe.train.steps != 0

    def values(self, result: Result) -> dict[str, float]:
        """Return heading → score of a run."""
        found = {heading: column.value(result) for heading, column in self.columns.items()}
        return {heading: value for heading, value in found.items() if value is not None}


def find_target(argument: str, overrides: Sequence[str] = (), unset: Sequence[str] = ()) -> Target:
    """Return the target that a recipe, or a row such as "ifcl/1/IFCL-BERT base", names.

    Raises:
        UnknownNameError: If there is no such paper, table, row or recipe.
        CseError: If the row cannot be reproduced by a recipe, or the recipe reproduces no row.
    """
    key, slash, _ = argument.partition("/")
    names_a_file = argument.endswith(".toml") or bare_file(argument, study=False) is not None
    if not names_a_file and key in papers.names() and slash:
        row = _find_row(argument)
        return _paper_target(argument, load(_recipe_of(row), overrides, unset), row)
    loaded = load(argument, overrides, unset)
    if (paper := loaded.recipe.paper) is not None and (found := find_reported_row(paper.key, paper.table, paper.row)):
        return _paper_target(argument, loaded, found)
    if (measured := papers.measured_rows().get(recipe_name(argument))) is not None:
        return _measured_target(argument, loaded, measured)
    raise CseError(
        f"recipe '{argument}' reproduces no reported row",
        f"run it without a verdict: cse run {argument}. Rows have addresses such as 'ifcl/1/IFCL-BERT base', and "
        f"these small recipes have measured results: {', '.join(papers.measured_rows())}",
        code="reproduce.no_row",
    )


def _find_row(address: str) -> ReportedRow:
    """Return the row "paper/table/row". The table is a number or an identifier."""
    key, _, rest = address.partition("/")
    table, slash, name = rest.partition("/")
    paper = papers.load(key)
    identifiers = _tables(paper, table)
    rows = [(one, row) for one in identifiers for row in paper.tables[one].rows]
    found = next(((one, row) for one, row in rows if row.casefold() == name.casefold()), None)
    if found is not None:
        return ReportedRow(paper, *found)
    known = list(dict.fromkeys(row for _, row in rows))
    message = f"'{address}': there is no row '{name}' in table '{table}' of {paper.short}.{suggestion(name, known)}"
    raise UnknownNameError(
        message if slash else f"'{address}' is a table, not a row",
        f"show its rows: cse leaderboard --table {key}/{table}. An address: '{key}/{table}/{known[-1]}'",
        code="reproduce.unknown_row",
    )


def _tables(paper: PaperTables, name: str) -> list[str]:
    """Return the identifiers of the tables with a number or identifier."""
    found = [one for one, table in paper.tables.items() if name in (one, str(table.number))]
    if not found:
        known = [*paper.tables, *(str(table.number) for table in paper.tables.values() if table.number is not None)]
        raise UnknownNameError(
            f"there is no table '{name}' in {paper.short}.{suggestion(name, known)}",
            f"show its tables: cse leaderboard --paper {paper.key}",
            code="reproduce.unknown_table",
        )
    return found


def _recipe_of(row: ReportedRow) -> str:
    """Return the recipe that reproduces a row, or raise the reason why none does."""
    if row.recipe is not None and row.table.kind == "scores":
        return row.recipe
    column = next((column for name, column in row.table.printed() if name == row.name), row.table.columns[0])
    answer = row.table.answer(row.name, column.name)
    address = f"'{row.paper.key}/{row.identifier}/{row.name}'"
    if answer.kind == "study":
        raise CseError(
            f"{address}: a study reproduces this row, with one recipe for each cell",
            f"run the study: cse run {answer.text}",
            code="reproduce.study",
        )
    reason = answer.text if answer.kind == "reason" else "its table does not contain scores"
    raise CseError(
        f"{address}: no recipe reproduces this row: {reason}",
        f"choose another row: cse leaderboard --table {row.paper.key}/{row.identifier}",
        code="reproduce.no_recipe",
    )


def _paper_target(argument: str, loaded: LoadedRecipe, row: ReportedRow) -> Target:
    reported, table = row.score_row(), row.table
    others = tuple(c.evaluator for c in table.columns if c.evaluator not in (None, AVERAGE)) or STS_TASKS
    columns: dict[str, Column] = {}
    for column in table.columns:
        evaluators = others if column.evaluator == AVERAGE else (column.evaluator,) if column.evaluator else ()
        known = evaluators and column.name in reported.scores and reported.scores[column.name].comparable
        if known and set(evaluators) <= loaded.recipe.evaluators.keys():
            columns[column.name] = Column(evaluators, table.score_of(column, row.name))
    if not columns:
        reasons = "; ".join(dict.fromkeys(flag.note for flag in (*table.doubts(row.name), *table.flags)))
        raise CseError(
            f"{row.name} of {row.paper.short}, {table.title}: no score of '{loaded.name}' is the reported quantity"
            f"{f' ({reasons})' if reasons else ''}",
            f"run the recipe without a verdict: cse run {loaded.name}",
            code="reproduce.not_comparable",
        )
    averages = [name for name, column in columns.items() if len(column.evaluators) > 1]
    judged = (averages or list(columns))[0]
    score, cells = reported.scores[judged], table.rows[row.name]
    published = papers.distribution(loaded.name, AVERAGE if averages else columns[judged].evaluators[0])
    flags = [flag for flag in table.flags if flag.row in (None, row.name) and flag.kind not in _OF_THE_TEXT]
    reference = Reference(
        name=f"{row.paper.short}, {table.title}, {row.name}",
        source=f"{row.paper.citation} {row.paper.url}",
        scores={name: reported.scores[name].target for name in columns},
        judged=judged,
        claim=Claim(value=score.target, digits=score.digits, runs=cells.runs, best=cells.best),
        tolerance=TOLERANCE,
        others=None
        if published is None or published.std is None
        else Spread(n=published.n, std=published.std, source=published.source),
        notes=tuple(dict.fromkeys(f"{flag.column}: {flag.note}" if flag.column else flag.note for flag in flags)),
    )
    return Target(loaded, argument, reference, columns)


def _measured_target(argument: str, loaded: LoadedRecipe, row: MeasuredRow) -> Target:
    columns = {name: Column((name,), row.metric) for name in row.scores if name in loaded.recipe.evaluators}
    if row.judged not in columns:
        raise CseError(
            f"'{argument}' has no evaluator '{row.judged}', whose score was measured",
            "omit --unset",
            code="reproduce.not_comparable",
        )
    reference = Reference(
        name=f"{row.recipe}, measured by this project",
        source=f"{row.command} ({row.date}, {row.machine}, {row.versions})",
        scores={name: row.mean(name) for name in columns},
        judged=row.judged,
        claim=Claim(value=row.mean(row.judged), runs=len(row.seeds)),
        tolerance=row.tolerance,
        others=Spread(n=len(row.seeds), std=row.std(row.judged), source="measured by this project"),
    )
    return Target(loaded, argument, reference, columns)
