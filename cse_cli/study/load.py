"""A study's name or path → a `Study`; what its recipes say is checked when its cells are made."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cse_cli.recipe.find import all_studies, is_study, name_of
from cse_cli.recipe.merge import STUDY, chain
from cse_cli.recipe.origins import Origins
from cse_cli.recipe.problems import Found, Problems, RecipeError
from cse_cli.recipe.sections import check_section
from cse_cli.recipe.wording import shown_value
from cse_cli.study.rules import check_paper, check_rules
from cse_cli.study.schema import Column, Row, Study, StudyTable
from registry.errors import UnknownNameError, suggestion

__all__ = ["all_studies", "find_study", "is_study", "load_study", "origins_of", "outline", "studies_of"]


def find_study(name: str) -> Path | None:
    """Return the file of the study that a path or a bare name means; None where it means none."""
    if name.endswith(".toml") or Path(name).is_absolute():
        return Path(name) if is_study(Path(name)) else None
    beside = Path(f"{name}.toml")
    return all_studies().get(name) or (beside if is_study(beside) else None)


def load_study(name_or_path: str) -> Study:
    """Find, read, merge and check a study; its recipes are not loaded.

    Raises:
        UnknownNameError: No study of that name.
        RecipeError: It cannot be read or is not valid; all reasons, each with its place.
    """
    path = find_study(name_or_path)
    if path is None and name_or_path.endswith(".toml"):
        path = Path(name_or_path)
    if path is None:
        near = suggestion(name_or_path, all_studies())
        raise UnknownNameError(f"unknown study '{name_or_path}'.{near}", "`cse list studies` shows all of them")
    origins = origins_of(path)
    problems = Problems()
    table = _checked(_merged(origins), problems)
    if table is not None:
        check_rules(table, problems)
        check_paper(table, problems)
    if problems.found or table is None:
        raise origins.error(problems.found, STUDY)
    fields = {name: getattr(table, name) for name in StudyTable.model_fields}
    return Study.model_construct(**fields, name=name_of(path), path=path)


def studies_of(paper_key: str, identifier: str) -> list[Study]:
    """Return the studies that answer a table or figure; files that cannot be read are `cse check`'s to tell.

    Raises:
        RecipeError: One that answers it is not valid.
    """
    found = []
    for path in all_studies().values():
        try:
            paper = _merged(origins_of(path)).get("paper")
        except RecipeError:
            continue
        if paper == f"{paper_key}/{identifier}":
            found.append(load_study(str(path)))
    return found


def outline(path: Path) -> StudyTable:
    """Return what a study says, checked against itself alone: enough for a list, without the papers.

    Raises:
        RecipeError: It cannot be read or is not valid.
    """
    origins = origins_of(path)
    problems = Problems()
    table = _checked(_merged(origins), problems)
    if table is not None:
        check_rules(table, problems)
    if problems.found or table is None:
        raise origins.error(problems.found, STUDY)
    return table


def origins_of(path: Path) -> Origins:
    """Return a study's file and those it extends."""
    return Origins(chain(path, study=True))


def _merged(origins: Origins) -> dict[str, Any]:
    """Return the keys of [study], the nearest file's in place of inherited ones; rows and grid replace each other."""
    merged: dict[str, Any] = {}
    for source in reversed(origins.sources):
        own = source.tables[STUDY]
        if not isinstance(own, Mapping):
            message = f"should be a table, not {shown_value(own)}"
            raise Origins((source,)).error([Found((STUDY,), message)], STUDY)
        for one, other in (("rows", "grid"), ("grid", "rows")):
            if one in own:
                merged.pop(other, None)
        merged |= {key: value for key, value in own.items() if key != "extends"}
    return merged


def _checked(written: dict[str, Any], problems: Problems) -> StudyTable | None:
    """Check rows and columns one at a time, so that each mistake is told in its place."""
    tables = {key: value for key, value in written.items() if key not in ("rows", "columns")}
    table = check_section(StudyTable, {**tables, **_flat_grid(tables)}, (STUDY,), problems)
    if table is None:
        return None
    rows = _each(Row, written, "rows", problems)
    columns = _each(Column, written, "columns", problems)
    return table.model_copy(update={"rows": rows, "columns": columns})


def _each(model: type[Row] | type[Column], written: dict[str, Any], key: str, problems: Problems) -> tuple[Any, ...]:
    items = written.get(key, [])
    if not isinstance(items, list):
        problems.add((STUDY, key), f"should be an array of tables: [[{STUDY}.{key}]]")
        return ()
    found = [check_section(model, item, (STUDY, key, number), problems) for number, item in enumerate(items)]
    return tuple(one for one in found if one is not None)


def _flat_grid(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the grid by dotted paths, also where they are written without quotes, which nests them."""
    grid = tables.get("grid")
    return {"grid": dict(_leaves(grid, ""))} if isinstance(grid, Mapping) else {}


def _leaves(table: Mapping[str, Any], prefix: str) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in table.items():
        found += _leaves(value, f"{prefix}{key}.") if isinstance(value, Mapping) else [(f"{prefix}{key}", value)]
    return found
