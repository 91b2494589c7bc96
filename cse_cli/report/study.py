"""A study → its report: its cells in the paper's layout, its figure, what is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from cse_cli.board import studies, wording
from cse_cli.board.grid import Text
from cse_cli.board.studies import Filled, Ran
from cse_cli.recipe.find import name_of
from cse_cli.recipe.toml import to_toml
from cse_cli.report import surroundings
from cse_cli.report.again import without_folders
from cse_cli.report.parts import (
    Code,
    Facts,
    Page,
    Part,
    Picture,
    Remarks,
    Row,
    Section,
    Table,
    Words,
    of_block,
    plain_table,
)
from cse_cli.report.words import counted, mean, seed_list
from cse_cli.results import Result
from cse_cli.study.load import load_study, origins_of
from cse_cli.study.schema import Study
from cse_cli.study.scores import headings, table_of, values
from registry import papers
from registry.errors import CseError


@dataclass(frozen=True)
class Found:
    """A study with what has run of it.

    Args:
        filled: Its cells with their runs.
        current: Recipe hash → runs of today's cells, one a seed.
    """

    filled: Filled
    current: Mapping[str, Sequence[Result]] = field(repr=False)

    @property
    def study(self) -> Study:
        """The study."""
        return self.filled.study

    @property
    def results(self) -> list[Result]:
        """Every run once."""
        return [result for runs in self.current.values() for result in runs]


def study_page(asked: str, results: Sequence[Result], tags: Mapping[str, str]) -> Page:
    """Return the report of a study.

    Args:
        asked: Name or path.
        results: All finished runs.
        tags: Run → the study's cell it was made for.

    Raises:
        CseError: It is not valid, or nothing of it has finished.
    """
    filled = studies.filled(load_study(asked), Ran(results, tags))
    if not filled.any:
        raise CseError(f"no run of {filled.study.name} has finished", f"`cse run {asked}` runs it")
    ran = {cell.hash: runs.results for cell, runs in filled.cells if runs is not None and runs.standing == "current"}
    found = Found(filled, ran)
    sections = (
        _about(found),
        _scores(found),
        _figure(found, results),
        _cells(found),
        surroundings.environment(found.results, {}) if found.results else Section("Environment", ()),
        surroundings.data(found.results),
        _again(found, asked),
    )
    which = f"{found.study.name}, {counted(len(found.results), 'finished run')}"
    return Page(found.study.title, which, tuple(section for section in sections if section.parts))


def _about(found: Found) -> Section:
    study = found.study
    pairs = {
        "study": study.name,
        "description": study.description,
        "answers": _answers(study),
        "recipe": study.recipe or "",
        "seeds": seed_list(study.seed_list),
        "cells": _counted(found),
    }
    parts: list[Part] = [Facts(tuple((name, value) for name, value in pairs.items() if value))]
    for source in origins_of(study.path).sources:
        parts.append(Code(source.text, "toml", f"{name_of(source.path)}, as written"))
    cell = found.filled.cells[0][0]
    text = to_toml(without_folders(cell.load(study.seed_list[0]).recipe.resolved()))
    parts.append(Code(text, "toml", f"The recipe of its first cell, {cell.label}, every default written in"))
    return Section("What was run", tuple(parts))


def _answers(study: Study) -> str:
    if study.answers is None:
        return ""
    key, identifier = study.answers
    paper = papers.load(key)
    figure, table = paper.figures.get(identifier), paper.tables.get(identifier)
    shown = (
        f"Figure {figure.number}: {figure.caption}" if figure else f"{table.title}: {table.caption}" if table else ""
    )
    return f"{paper.citation} {shown} {paper.url}"


def _counted(found: Found) -> str:
    missing = found.filled.missing()
    whole = len(found.filled.cells)
    return f"{whole} × {counted(len(found.study.seed_list), 'seed')}; {whole - len(missing)} complete"


def _scores(found: Found) -> Section:
    study = found.study
    if study.answers is not None and table_of(study) is not None:
        block = studies.block(found.filled, *study.answers)
        return Section("Beside the paper", of_block(block))
    return Section("Scores", (_table(found), Remarks(tuple(_remarks(found)))))


def _table(found: Found) -> Table:
    """Return rows and columns as the study names them: mean and spread over the seeds."""
    cells = [cell for cell, _ in found.filled.cells]
    scores = values(found.study, cells, found.current)
    columns = headings(found.study, scores)
    rows = []
    for name, of_row in scores.items():
        n = max((len(numbers) for numbers in of_row.values()), default=0)
        rows.append(Row(name, (Text(str(n)), *(Text(mean(of_row.get(column, []))) for column in columns)), ours=n > 0))
    return Table("Scores of every setting", ("n", *columns), tuple(rows))


def _remarks(found: Found) -> list[str]:
    missing = found.filled.missing()
    lines = wording.missing(missing, f"cse run {found.study.name}") if missing else []
    return ["n: seeds; ±: sample standard deviation over them", *lines]


def _figure(found: Found, results: Sequence[Result]) -> Section:
    from cse_cli.figures.study import draw_study  # matplotlib: only where something is drawn

    cells = [cell for cell, _ in found.filled.cells]
    with TemporaryDirectory() as folder:
        files = draw_study(found.study, cells, results, Path(folder))
        drawn = [path for path in files if path.suffix == ".svg"]
        return Section("Figure", tuple(Picture(path.stem, found.study.title, path.read_bytes()) for path in drawn))


def _cells(found: Found) -> Section:
    """Return what each cell is, and which of its seeds have finished."""
    rows = []
    for cell, _ in found.filled.cells:
        settings = [*(f"--set {text}" for text in cell.overrides), *(f"--unset {key}" for key in cell.unset)]
        seeds = ", ".join(str(result.seed) for result in found.current.get(cell.hash, ()))
        rows.append((cell.label, cell.recipe, " ".join(settings), cell.hash[:8], seeds or "none"))
    told = Words("A finished run belongs to a cell when the hash of its resolved recipe is the cell's.")
    columns = ("recipe", "settings", "hash", "seeds finished")
    return Section("Cells", (plain_table("Every cell", columns, rows), told))


def _again(found: Found, asked: str) -> Section:
    commits = {(result.versions.git or "").removesuffix("+") for result in found.results} - {""}
    checkout = [f"git checkout {commit}" for commit in commits] if len(commits) == 1 else []
    own = any((result.versions.git or "").endswith("+") for result in found.results)
    parts: list[Part] = [Code("\n".join([*checkout, f"cse run {_named(found.study, asked)}"]), "console")]
    parts.append(Words("Cells that are finished are not run again where the same tracking store is used."))
    if own:
        parts.append(Words("Something in the repository was not committed when they ran."))
    return Section("Run it again", tuple(parts))


def _named(study: Study, asked: str) -> str:
    """Return what others can ask for the study by."""
    return Path(asked).name if Path(asked).is_absolute() else asked or study.name
