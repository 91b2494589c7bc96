"""Coverage of reported cells: the runs on this machine that reproduce them, or the missing requirement."""

from __future__ import annotations

from collections.abc import Sequence

from cse_cli.analysis.runs import recipe_today
from cse_cli.analysis.score_table import CellCoverage, ScoreRow, ScoreTable
from cse_cli.core.formatting import counted
from cse_cli.core.results import Result
from cse_cli.data.requirements import Availability
from cse_cli.listing.inventory import Machine
from cse_cli.recipe.catalog import CellFacts, cell_facts
from cse_cli.recipe.cells import Cell
from cse_cli.recipe.requirements import Requirement
from cse_cli.recipe.study import load_study
from cse_cli.recipe.study_schema import Study
from registry import papers
from registry.errors import CseError
from registry.papers import Answer, FieldRow, Table


class Coverage:
    """Finished runs of this machine, and the recipes that it could run."""

    def __init__(self, results: Sequence[Result]) -> None:
        self._machine = Machine()
        self._missing: dict[str, tuple[Availability, ...]] = {}
        self._facts: dict[str, tuple[CellFacts, ...]] = {}
        self._studies: dict[str, Study] = {}
        self._seeds: dict[str, dict[str, set[int]]] = {}
        """Settings → experiment → seeds, the newest experiment first."""
        for result in sorted(results, key=lambda run: run.finished, reverse=True):
            self._seeds.setdefault(result.recipe_hash, {}).setdefault(result.experiment, set()).add(result.seed)

    def cells_of(self, study: Study) -> list[Cell]:
        """Return a study's cells."""
        return [facts.cell for facts in self._cells(study)]

    def _cells(self, study: Study) -> tuple[CellFacts, ...]:
        if study.name not in self._facts:
            self._facts[study.name] = cell_facts(study)
        return self._facts[study.name]

    def completed(self, table: ScoreTable) -> ScoreTable:
        """Return a table with the coverage of its reported cells. The study of the table precedes others."""
        rows = [self._completed(row, table) if row.source == "paper" else row for row in table.rows]
        return table.model_copy(update={"rows": tuple(rows)})

    def of_listed(self, row: FieldRow) -> CellCoverage:
        """Return the coverage of a row of the community leaderboard."""
        if row.answer is None:
            return CellCoverage(state="open", text="no recipe yet")
        return _without_run(row.answer) or self._run(row.answer)

    def _completed(self, row: ScoreRow, of: ScoreTable) -> ScoreRow:
        if row.paper is None or row.table is None:
            return row
        table = papers.load(row.paper).tables[row.table]
        found: dict[CellCoverage, list[str]] = {}
        for name, column in table.printed():
            if name == row.name:
                answer = table.answer(name, column.name)
                if answer.kind == "study" and of.study is not None and self._computes(of.study, name, column.name):
                    answer = Answer("study", of.study)
                found.setdefault(self._cell(answer, table, name, column.name), []).append(column.name)
        whole = len(found) == 1
        states = [one.model_copy(update={"columns": () if whole else tuple(names)}) for one, names in found.items()]
        return row.model_copy(update={"coverage": tuple(states)})

    def _cell(self, answer: Answer, table: Table, row: str, column: str) -> CellCoverage:
        if answer.kind == "recipe" and table.kind == "settings":
            return CellCoverage(state="held", text=f"setting of {answer.text}")
        return _without_run(answer) or self._run(answer, row, column)

    def _run(self, answer: Answer, row: str = "", column: str = "") -> CellCoverage:
        """Return the runs of a recipe or of a study's cell, or its missing requirements."""
        try:
            digest, requirements, requested = self._facts_of(answer, row, column)
        except CseError:
            return CellCoverage(state="needs", text=f"the {answer.kind} is not valid: `cse check {answer.text}`")
        if digest in self._seeds:
            first, *others = (tuple(sorted(seeds)) for seeds in self._seeds[digest].values())
            some = f"{len(first)} of {requested} seeds" if len(first) < requested else counted(len(first), "seed")
            more = f", and {counted(len(others), 'other experiment')} with the same settings" if others else ""
            return CellCoverage(state="run", seeds=first, text=f"finished: {some}{more}")
        if digest not in self._missing:
            self._missing[digest] = self._machine.missing(requirements)
        if missing := self._missing[digest]:
            return CellCoverage(state="needs", text=f"requires {_named(missing)}")
        return CellCoverage(state="ready", text=f"{answer.kind} ready to run")

    def _facts_of(self, answer: Answer, row: str, column: str) -> tuple[str, Sequence[Requirement], int]:
        """Return settings hash and requirements of a cell's recipe, and the seeds that a study requests, or 0."""
        if answer.kind == "recipe":
            today = recipe_today(answer.text)
            return today.settings, today.requirements, 0
        facts = self._study_cell(answer.text, row, column)
        if facts is None:
            raise CseError(
                f"study '{answer.text}' has no cell for '{row}'", f"run `cse check {answer.text}`", code="study.no_cell"
            )
        return facts.cell.hash, facts.requirements, len(self._studies[answer.text].seed_list)

    def _computes(self, study: str, row: str, column: str) -> bool:
        """Return whether a study has the cell. A small study may leave columns to the paper's own study."""
        try:
            return self._study_cell(study, row, column) is not None
        except CseError:  # the text of the cell reports that the study is not valid
            return True

    def _study_cell(self, name: str, row: str, column: str) -> CellFacts | None:
        if name not in self._studies:
            self._studies[name] = load_study(name)
        for facts in self._cells(self._studies[name]):
            if facts.cell.row == row and (not facts.cell.columns or column in facts.cell.columns):
                return facts
        return None


def _without_run(answer: Answer) -> CellCoverage | None:
    """Return the coverage of a cell that needs no run."""
    if answer.kind == "reason":
        return CellCoverage(state="reason", text=f"reason: {answer.text}")
    return CellCoverage(state="data", text=f"in the data set {answer.text}") if answer.kind == "data" else None


def _named(missing: Sequence[Availability]) -> str:
    """Return at most three missing models and three missing data sets."""
    kinds: dict[str, dict[str, None]] = {"weights": {}, "data": {}}
    for one in missing:
        kinds["weights" if one.requirement.kind == "model" else "data"][one.requirement.name] = None
    return "; ".join(f"{kind}: {first_of(list(names), 3)}" for kind, names in kinds.items() if names)


def first_of(names: Sequence[str], most: int) -> str:
    """Return at most this many names and the number of the others."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
