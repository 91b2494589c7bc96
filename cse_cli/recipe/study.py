"""The file of a study: finding it by name, reading it along `extends`, and checking it.

`check_study` compares a study with the paper's table that it reproduces. `cells` creates and validates its recipes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cse_cli.recipe.check_study import check_paper, check_study
from cse_cli.recipe.errors import RecipeError, nearest
from cse_cli.recipe.files import all_studies, bare_file, is_study, name_of
from cse_cli.recipe.keys import Keys, leaves, parse_dotted
from cse_cli.recipe.load import STUDY, read_chain
from cse_cli.recipe.parse import check_section, report_odd_values
from cse_cli.recipe.problems import Problems
from cse_cli.recipe.sources import Origins
from cse_cli.recipe.study_schema import Column, Row, Study, StudyTable
from registry.errors import UnknownNameError, suggestion
from registry.validation import shown_value


def find_study(name: str) -> Path | None:
    """Return the file of the study that a path or a bare name refers to, or None if it is not a study."""
    if name.endswith(".toml") or Path(name).is_absolute():
        return Path(name) if is_study(Path(name)) else None
    beside = Path(f"{name}.toml")
    return bare_file(name, study=True) or (beside if is_study(beside) else None)


def load_study(name_or_path: str) -> Study:
    """Find, read, merge and check a study. Its recipes are not loaded.

    Raises:
        UnknownNameError: If no study has this name.
        RecipeError: If the study cannot be read or is invalid, with every problem and its place.
    """
    path = find_study(name_or_path)
    if path is None and name_or_path.endswith(".toml"):
        path = Path(name_or_path)
    if path is None:
        near = suggestion(name_or_path, all_studies())
        action = "`cse list studies` shows all names"
        raise UnknownNameError(f"unknown study '{name_or_path}'.{near}", action, code="recipe.unknown_study")
    table = outline(path, with_paper=True)
    fields = {name: getattr(table, name) for name in StudyTable.model_fields}
    return Study.model_construct(**fields, name=name_of(path), path=path)


def only_rows(study: Study, rows: Sequence[str]) -> Study:
    """Return a study that omits all rows except the named ones, or the study itself if no name is given.

    Raises:
        UnknownNameError: If the study has no row of a name.
    """
    names = [row.row for _, row in study.placed_rows()]
    for name in rows:
        if name not in names:
            message = f"study '{study.name}' has no row '{name}'.{suggestion(name, names)}"
            action = f"`cse run {study.name} --dry-run` shows all rows"
            raise UnknownNameError(message, action, code="recipe.unknown_row")
    omitted = tuple(row.row for row in study.rows if rows and row.row not in rows)
    return study.model_copy(update={"omit": (*study.omit, *omitted)})


def studies_of(paper_key: str, identifier: str) -> list[Study]:
    """Return the studies that reproduce a table or figure. Files that cannot be read are skipped.

    Raises:
        RecipeError: If such a study is invalid.
    """
    found = []
    for path in all_studies().values():
        try:
            paper = _merge(origins_of(path)).get("paper")
        except RecipeError:
            continue
        if paper == f"{paper_key}/{identifier}":
            found.append(load_study(str(path)))
    return found


def outline(path: Path, *, with_paper: bool = False) -> StudyTable:
    """Return the table of a study without validating its recipes. `with_paper` compares it with the paper's table.

    Raises:
        RecipeError: If the study cannot be read or is invalid.
    """
    origins = origins_of(path)
    problems = Problems(origins.where)
    for source in origins.sources:
        for key in source.tables.keys() - {STUDY}:
            hint = f" Write [{STUDY}.{key}]" if key in StudyTable.model_fields else nearest(key, [STUDY])
            message = f"the file of a study contains only the table [{STUDY}].{hint}"
            problems.add("study.unknown_key", (key,), message, at_key=True)
    written = _merge(origins)
    study = _parse(written, problems)
    problems.raise_if_any(STUDY)
    report_odd_values(written, (STUDY,), problems)
    check_study(study, problems)
    if with_paper:
        check_paper(study, problems)
    problems.raise_if_any(STUDY)
    return study


def origins_of(path: Path) -> Origins:
    """Return the files of a study."""
    return Origins(read_chain(path, study=True))


def _merge(origins: Origins) -> dict[str, Any]:
    """Return the keys of [study]. Own keys replace inherited ones, and rows and grid replace each other."""
    merged: dict[str, Any] = {}
    for source in reversed(origins.sources):
        own = source.tables[STUDY]
        if not isinstance(own, Mapping):
            message = f"should be a table, not {shown_value(own)}"
            raise source.refuse("recipe.invalid_value", (STUDY,), message)
        for one, other in (("rows", "grid"), ("grid", "rows")):
            if one in own:
                merged.pop(other, None)
        merged |= {key: value for key, value in own.items() if key != "extends"}
    return merged


def _parse(written: dict[str, Any], problems: Problems) -> StudyTable:
    """Return the study, with a default in place of each wrong value."""
    tables = {**written, **_with_dotted_paths(written, ("grid", "tune"), (STUDY,), problems)}
    tables["rows"] = _parse_each(Row, written, "rows", problems)
    tables["columns"] = _parse_each(Column, written, "columns", problems)
    return check_section(StudyTable, tables, (STUDY,), problems)


def _with_dotted_paths(
    written: Mapping[str, Any], names: Sequence[str], place: Keys, problems: Problems
) -> dict[str, dict[str, Any]]:
    """Return the named tables with dotted paths as keys. Without quotes, TOML reads a dotted path as nested tables."""
    found = {}
    for name in names:
        if isinstance(table := written.get(name), Mapping):
            found[name] = {".".join(map(str, keys)): value for keys, value in leaves(table)}
            for path in found[name]:
                if parse_dotted(path) is None:
                    message = "not a dotted TOML key, for example train.seed"
                    problems.add("recipe.invalid_path", (*place, name, path), message, at_key=True)
    return found


def _parse_each(
    model: type[Row] | type[Column], written: dict[str, Any], key: str, problems: Problems
) -> tuple[Row | Column, ...]:
    items = written.get(key, [])
    if not isinstance(items, list):
        problems.add("recipe.invalid_value", (STUDY, key), f"should be an array of tables: [[{STUDY}.{key}]]")
        return ()
    found = []
    for number, item in enumerate(items):
        place = (STUDY, key, number)
        if isinstance(item, Mapping):
            item = {**item, **_with_dotted_paths(item, ("tune",), place, problems)}
        found.append(check_section(model, item, place, problems))
    return tuple(found)
