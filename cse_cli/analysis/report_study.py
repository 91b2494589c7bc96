"""A study → its report: its cells in the paper's layout, its figure, what is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from cse_cli.analysis.leaderboard_view import missing_cells, table_parts
from cse_cli.analysis.pages import Code, Facts, Page, Part, Remarks, Section, Words, pictures, word_table
from cse_cli.analysis.paper_tables import StudyRuns, study_runs, study_table
from cse_cli.analysis.reproduce import data_section, environment_section, recipe_code, study_rerun_section
from cse_cli.core.formatting import counted, mean_text, seed_list
from cse_cli.core.results import Result
from cse_cli.core.tables import Cell, Row, Table
from cse_cli.recipe.cells import headings, paper_table, values
from cse_cli.recipe.files import name_of
from cse_cli.recipe.study import Study, load_study, origins_of
from registry import papers
from registry.errors import CseError


def study_page(argument: str, results: Sequence[Result], tags: Mapping[str, str]) -> Page:
    """Return the report of a study.

    Args:
        argument: Name or path.
        results: All finished runs.
        tags: Run → the study's cell it was made for.

    Raises:
        CseError: It is not valid, or nothing of it has finished.
    """
    runs = study_runs(load_study(argument), results, tags)
    if not runs.any:
        raise CseError(f"no run of {runs.study.name} has finished", f"`cse run {argument}` runs it")
    current = [result for of_cell in runs.current.values() for result in of_cell]
    name = Path(argument).name if Path(argument).is_absolute() else argument
    sections = (
        _study_section(runs),
        _scores_section(runs),
        _figure_section(runs),
        _cells_section(runs),
        environment_section(current, {}),
        data_section(current),
        study_rerun_section(current, name),
    )
    which = f"{runs.study.name}, {counted(len(current), 'finished run')}"
    return Page(runs.study.title, which, tuple(section for section in sections if section.parts))


def _study_section(runs: StudyRuns) -> Section:
    study, cells = runs.study, len(runs.cells)
    facts = {
        "study": study.name,
        "description": study.description,
        "answers": _answered(study),
        "recipe": study.recipe or "",
        "seeds": seed_list(study.seed_list),
        "cells": f"{cells} × {counted(len(study.seed_list), 'seed')}; {cells - len(runs.missing())} complete",
    }
    parts: list[Part] = [Facts(facts)]
    for source in origins_of(study.path).sources:
        parts.append(Code(source.text, "toml", f"{name_of(source.path)}, as written"))
    cell = runs.cells[0][0]
    recipe = cell.load(study.seed_list[0]).recipe.resolved()
    parts.append(recipe_code(recipe, f"The recipe of its first cell, {cell.label}"))
    return Section("What was run", tuple(parts))


def _answered(study: Study) -> str:
    if study.answers is None:
        return ""
    key, identifier = study.answers
    paper = papers.load(key)
    shown = ""
    if figure := paper.figures.get(identifier):
        shown = f"Figure {figure.number}: {figure.caption}"
    elif table := paper.tables.get(identifier):
        shown = f"{table.title}: {table.caption}"
    return f"{paper.citation} {shown} {paper.url}"


def _scores_section(runs: StudyRuns) -> Section:
    """Return the paper's table with ours, or rows and columns as the study names them: mean, spread over the seeds."""
    study = runs.study
    if study.answers is not None and paper_table(study) is not None:
        return Section("Beside the paper", table_parts(study_table(runs, *study.answers)))
    scores = values(study, [cell for cell, _ in runs.cells], runs.current)
    columns = headings(study, scores)
    rows = []
    for name, of_row in scores.items():
        seeds = max((len(numbers) for numbers in of_row.values()), default=0)
        cells = [str(seeds), *(mean_text(of_row.get(column, [])) for column in columns)]
        rows.append(Row(name, tuple(map(Cell, cells)), "ours" if seeds else ""))
    missing = runs.missing()
    lines = missing_cells(missing, f"cse run {study.name}") if missing else []
    remarks = Remarks(("n: seeds; ±: sample standard deviation over them", *lines))
    return Section("Scores", (Table("Scores of every setting", ("n", *columns), tuple(rows)), remarks))


def _figure_section(runs: StudyRuns) -> Section:
    from cse_cli.analysis.study_figures import study_figure  # matplotlib: only where something is drawn

    name = runs.study.name.rpartition("/")[2]
    return Section("Figure", pictures(name, runs.study.title, lambda: study_figure(runs)))


def _cells_section(runs: StudyRuns) -> Section:
    """Return what each cell is, and which of its seeds have finished."""
    rows, current = [], runs.current
    for cell, _ in runs.cells:
        settings = [*(f"--set {text}" for text in cell.overrides), *(f"--unset {key}" for key in cell.unset)]
        seeds = ", ".join(str(result.seed) for result in current.get(cell.hash, ()))
        rows.append((cell.label, cell.recipe, " ".join(settings), cell.hash[:8], seeds or "none"))
    columns = ("recipe", "settings", "hash", "seeds finished")
    remark = Words("A finished run belongs to a cell when the hash of its resolved recipe is the cell's.")
    return Section("Cells", (word_table("Every cell", columns, rows), remark))
