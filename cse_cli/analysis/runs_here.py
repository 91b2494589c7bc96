"""Who ran a printed cell: its recipe or study on this machine and with how many seeds, or what is needed to run it."""

from __future__ import annotations

from collections.abc import Sequence

from cse_cli.analysis.papers import RunHere, ScoreRow, ScoreTable
from cse_cli.analysis.runs import recipe_today
from cse_cli.core.formatting import counted
from cse_cli.core.results import Result
from cse_cli.data.requirements import Availability
from cse_cli.listing.inventory import Machine
from cse_cli.recipe.catalog import CellFacts, cell_facts
from cse_cli.recipe.cells import Cell
from cse_cli.recipe.requirements import Requirement
from cse_cli.recipe.study import Study, load_study
from registry import papers
from registry.errors import CseError
from registry.papers import Answer, FieldRow, Table

NAMED = 3
"""Things a recipe needs that are named."""


class RunsHere:
    """What this machine has run, and what it could run.

    Args:
        results: Finished runs.
    """

    def __init__(self, results: Sequence[Result]) -> None:
        self._machine = Machine()
        self._lacks: dict[str, tuple[Availability, ...]] = {}
        self._facts: dict[str, tuple[CellFacts, ...]] = {}
        self._studies: dict[str, Study] = {}
        self._seeds: dict[str, dict[str, set[int]]] = {}
        """Settings → experiment → seeds, the newest experiment first."""
        for result in sorted(results, key=lambda run: run.finished, reverse=True):
            self._seeds.setdefault(result.recipe_hash, {}).setdefault(result.experiment, set()).add(result.seed)

    def cells_of(self, study: Study) -> list[Cell]:
        """Return a study's cells.

        Raises:
            RecipeError: A recipe is not valid with its settings.
        """
        return [facts.cell for facts in self._cells(study)]

    def _cells(self, study: Study) -> tuple[CellFacts, ...]:
        if study.name not in self._facts:
            self._facts[study.name] = cell_facts(study)
        return self._facts[study.name]

    def completed(self, table: ScoreTable) -> ScoreTable:
        """Return a table with who ran its printed cells: the study that it shows, if that computes the cell."""
        rows = [self._completed(row, table) if row.source == "paper" else row for row in table.rows]
        return table.model_copy(update={"rows": tuple(rows)})

    def listed(self, row: FieldRow) -> RunHere:
        """Return who ran a row of the field's list."""
        if row.answer is None:
            return RunHere(state="open", text="no recipe yet")
        return _without_run(row.answer) or self._run(row.answer)

    def _completed(self, row: ScoreRow, of: ScoreTable) -> ScoreRow:
        if row.paper is None or row.table is None:
            return row
        table = papers.load(row.paper).tables[row.table]
        found: dict[RunHere, list[str]] = {}
        for name, column in table.printed():
            if name == row.name:
                answer = table.answer(name, column.name)
                if answer.kind == "study" and of.study is not None and self._computes(of.study, name, column.name):
                    answer = Answer("study", of.study)
                found.setdefault(self._cell(answer, table, name, column.name), []).append(column.name)
        whole = len(found) == 1
        here = (one.model_copy(update={"columns": () if whole else tuple(names)}) for one, names in found.items())
        return row.model_copy(update={"here": tuple(here)})

    def _cell(self, answer: Answer, table: Table, row: str, column: str) -> RunHere:
        if answer.kind == "recipe" and table.kind == "settings":
            return RunHere(state="held", text=f"held by {answer.text}")
        return _without_run(answer) or self._run(answer, row, column)

    def _run(self, answer: Answer, row: str = "", column: str = "") -> RunHere:
        """Return who ran a recipe, or the cell of a study, or what keeps this machine from it."""
        try:
            digest, requirements, wanted = self._asked(answer, row, column)
        except CseError:
            return RunHere(state="needs", text=f"needs a valid {answer.kind}: see `cse check {answer.text}`")
        if digest in self._seeds:
            first, *others = (tuple(sorted(seeds)) for seeds in self._seeds[digest].values())
            some = f"{len(first)} of {wanted} seeds" if len(first) < wanted else counted(len(first), "seed")
            more = f", and {counted(len(others), 'other experiment')} with its settings" if others else ""
            return RunHere(state="run", seeds=first, text=f"run here: {some}{more}")
        if digest not in self._lacks:
            self._lacks[digest] = self._machine.missing(requirements)
        if lacks := self._lacks[digest]:
            return RunHere(state="needs", text=f"needs {_named(lacks)}")
        return RunHere(state="ready", text=f"{answer.kind} ready, not run")

    def _asked(self, answer: Answer, row: str, column: str) -> tuple[str, Sequence[Requirement], int]:
        """Return settings and needs of the recipe that computes a cell, and how many seeds a study asks for, or 0."""
        if answer.kind == "recipe":
            today = recipe_today(answer.text)
            return today.settings, today.requirements, 0
        facts = self._study_cell(answer.text, row, column)
        if facts is None:
            raise CseError(f"study '{answer.text}' has no cell for '{row}'", f"`cse check {answer.text}`")
        return facts.cell.hash, facts.requirements, len(self._studies[answer.text].seed_list)

    def _computes(self, study: str, row: str, column: str) -> bool:
        """Return whether a study has the cell; a small one may leave whole columns to the paper's own."""
        try:
            return self._study_cell(study, row, column) is not None
        except CseError:  # not valid, which the cell's text says
            return True

    def _study_cell(self, name: str, row: str, column: str) -> CellFacts | None:
        if name not in self._studies:
            self._studies[name] = load_study(name)
        for facts in self._cells(self._studies[name]):
            if facts.cell.row == row and (not facts.cell.columns or column in facts.cell.columns):
                return facts
        return None


def _without_run(answer: Answer) -> RunHere | None:
    """Return what answers a cell for which nothing has to run."""
    if answer.kind == "reason":
        return RunHere(state="reason", text=f"reason: {answer.text}")
    return RunHere(state="data", text=f"in the data set {answer.text}") if answer.kind == "data" else None


def _named(lacks: Sequence[Availability]) -> str:
    """Return models and data that are not here, in words."""
    kinds: dict[str, dict[str, None]] = {}
    for one in lacks:
        kinds.setdefault("weights" if one.requirement.kind == "model" else "data", {})[one.requirement.name] = None
    return "; ".join(f"{kind}: {_shortened(list(names))}" for kind, names in sorted(kinds.items(), reverse=True))


def _shortened(names: Sequence[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")
