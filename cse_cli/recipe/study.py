"""Studies: the shape of a `[study]` file, reading it along `extends`, and checking it.

A study is checked by itself, against the paper's table that it answers, and, once its cells are made
(`cse_cli.recipe.cells`), against the recipes of its cells.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from cse_cli.recipe.draft import check_section, odd_values
from cse_cli.recipe.errors import EnoughProblems, Finding, Keys, Origins, Problems, RecipeError, nearest
from cse_cli.recipe.files import all_studies, is_study, name_of
from cse_cli.recipe.load import STUDY, chain
from cse_cli.recipe.paths import setting, values
from cse_cli.recipe.schema import Count, Flag, Recipe, Section, Text, Whole
from registry import EVALUATORS, papers
from registry.errors import UnknownNameError, suggestion
from registry.papers import AVERAGE
from registry.validation import shown_value

ROW, STEP, MEASURES = "row", "step", "measures."
"""X axes of a study's figure that are no setting: rows by name, training steps, a measure by its name."""
SEED = "train.seed"
Seed = Annotated[Whole, Field(lt=2**32)]
MOST_SEEDS = 10_000
MOST_CELLS = 1_000
"""Every one of them is loaded and checked, in about 10 ms, before the first run begins."""
Scalar = bool | int | float | str
Value = Scalar | tuple[Scalar, ...]


class Change(Section):
    """What is different from the recipe.

    Args:
        recipe: Another recipe instead.
        set: As `--set` takes them.
        unset: As `--unset` takes them.
    """

    recipe: Text | None = None
    set: tuple[Text, ...] = ()
    unset: tuple[Text, ...] = ()


class Row(Change):
    """One row of the table.

    Args:
        row: Name of the printed row; any label where no paper's table is answered.
    """

    row: Text


class Column(Change):
    """Columns that runs of their own fill.

    Args:
        names: Headings of the printed columns that these runs score.
        score: "evaluator.metric", or "avg", where neither the paper's column nor the study says which.
    """

    names: Annotated[tuple[Text, ...], Field(min_length=1)]
    score: Text | None = None


class FigureSpec(Section):
    """What is drawn of a study.

    Args:
        x: A dotted path of the recipe, "row" for the rows by name, "step" for curves, or "measures.NAME".
        y: "evaluator.metric" or "avg"; what the cells are about if left out.
        log_x: Logarithmic x axis.
        lines: A dotted path: cells of one value there are one line. The table's columns are if left out.
    """

    x: Text
    y: Text | None = None
    xlabel: Text | None = None
    ylabel: Text | None = None
    log_x: Flag = False
    lines: Text | None = None


class StudyTable(Change):
    """The one table of a study's file.

    Args:
        paper: "key/identifier" of the table or figure it answers, of those in `registry/papers/`.
        seeds: How many (0, 1, …), or which.
        score: "evaluator.metric", or "avg", that cells are about where the paper's columns do not say.
        rows: In printed order.
        columns: Only where columns are settings or recipes too.
        grid: Instead of rows: dotted path → values, every combination of which is a row.
    """

    title: Text
    description: str = ""
    paper: Text | None = None
    seeds: Annotated[Count, Field(le=MOST_SEEDS)] | Annotated[tuple[Seed, ...], Field(min_length=1)] = 3
    score: Text | None = None
    rows: tuple[Row, ...] = ()
    columns: tuple[Column, ...] = ()
    grid: dict[str, Annotated[tuple[Value, ...], Field(min_length=1)]] = Field(default_factory=dict)
    figure: FigureSpec | None = None

    @property
    def seed_list(self) -> tuple[int, ...]:
        """Every seed, a count written out."""
        return tuple(range(self.seeds)) if isinstance(self.seeds, int) else self.seeds


class Study(StudyTable):
    """A study and where it came from.

    Args:
        name: Bare name such as "studies/ifcl_queue_length" where it has one; else the file's stem.
    """

    name: str
    path: Path

    @property
    def answers(self) -> tuple[str, str] | None:
        """Key of the paper, and identifier of the table or figure."""
        if self.paper is None:
            return None
        key, _, identifier = self.paper.partition("/")
        return key, identifier


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
    table = outline(path, with_paper=True)
    fields = {name: getattr(table, name) for name in StudyTable.model_fields}
    return Study.model_construct(**fields, name=name_of(path), path=path)


def studies_of(paper_key: str, identifier: str) -> list[Study]:
    """Return the studies that answer a table or figure; files that cannot be read are left to `cse check`.

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


def outline(path: Path, *, with_paper: bool = False) -> StudyTable:
    """Return a study's table, checked by itself: enough for a list.

    Args:
        path: Of the study's file.
        with_paper: Check it against the paper's table that it answers, too.

    Raises:
        RecipeError: It cannot be read or is not valid.
    """
    origins = origins_of(path)
    problems = Problems()
    table: StudyTable | None = None
    with suppress(EnoughProblems):
        _check_tables(origins, problems)
        written = _merged(origins)
        for keys, what in odd_values(written, (STUDY,)):
            problems.add(keys, f"{what} is not a value a study can have")
        table = _checked(written, problems)
        if table is not None:
            _check_rules(table, problems)
            if with_paper:
                _check_paper(table, problems)
    if problems.found or table is None:
        raise origins.error(problems.found, STUDY)
    return table


def _check_tables(origins: Origins, problems: Problems) -> None:
    for source in origins.sources:
        for key in source.tables.keys() - {STUDY}:
            hint = f" Write [{STUDY}.{key}]." if key in StudyTable.model_fields else nearest(key, [STUDY])
            problems.add((key,), f"a study's file has one table, [{STUDY}], and everything in it.{hint}", at_key=True)


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
            raise Origins((source,)).error([Finding((STUDY,), message)], STUDY)
        for one, other in (("rows", "grid"), ("grid", "rows")):
            if one in own:
                merged.pop(other, None)
        merged |= {key: value for key, value in own.items() if key != "extends"}
    return merged


def _checked(written: dict[str, Any], problems: Problems) -> StudyTable | None:
    """Check rows and columns one at a time, so that each mistake is reported at its place."""
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


def _check_rules(study: StudyTable, problems: Problems) -> None:
    """Report the rules between its tables that a study breaks."""
    _check_cells(study, problems)
    _check_seeds(study, problems)
    _check_scores(study, problems)


def _check_cells(study: StudyTable, problems: Problems) -> None:
    if study.rows and study.grid:
        problems.add((STUDY, "grid"), "give either rows or a grid, not both", at_key=True)
    elif not study.rows and not study.grid:
        problems.add((STUDY,), f"needs rows ([[{STUDY}.rows]]) or a grid ([{STUDY}.grid])", at_key=True)
    if study.recipe is None and not _all_have_recipes(study):
        problems.add((STUDY,), "needs 'recipe': what every cell starts from", at_key=True)
    rows = len(study.rows) or math.prod(len(values) for values in study.grid.values())
    if (count := rows * max(1, len(study.columns))) > MOST_CELLS:
        where = "grid" if study.grid else "rows"
        message = f"makes {count:,} cells, and a study has at most {MOST_CELLS:,}: divide it, or search with `cse tune`"
        problems.add((STUDY, where), message, at_key=True)
        return
    _check_different([((STUDY, "rows", n, "row"), row.row) for n, row in enumerate(study.rows)], problems)
    _check_different(list(_headings(study)), problems)
    for name, tried in study.grid.items():
        _check_different([((STUDY, "grid", name, n), shown_value(value)) for n, value in enumerate(tried)], problems)
    for keys, change in _changes(study):
        _check_different([((*keys, "set", n), _path(text)) for n, text in enumerate(change.set)], problems)
        _check_different([((*keys, "unset", n), text) for n, text in enumerate(change.unset)], problems)


def _headings(study: StudyTable) -> Iterator[tuple[Keys, str]]:
    for number, column in enumerate(study.columns):
        for place, name in enumerate(column.names):
            yield (STUDY, "columns", number, "names", place), name


def _check_different(named: Sequence[tuple[Keys, str]], problems: Problems) -> None:
    seen: set[str] = set()
    for keys, name in named:
        if name in seen:
            problems.add(keys, f"'{name}' stands here twice")
        seen.add(name)


def _all_have_recipes(study: StudyTable) -> bool:
    of_rows = bool(study.rows) and all(row.recipe for row in study.rows)
    return of_rows or (bool(study.columns) and all(column.recipe for column in study.columns))


def _check_seeds(study: StudyTable, problems: Problems) -> None:
    if not isinstance(study.seeds, int) and len(set(study.seeds)) < len(study.seeds):
        problems.add((STUDY, "seeds"), "the same seed twice")
    for keys, path in _paths(study):
        if path == SEED:
            problems.add(keys, "seeds are not a setting: say `seeds`, or --seeds", at_key=True)


def _paths(study: StudyTable) -> Iterator[tuple[Keys, str]]:
    """Yield the dotted path of everything a study sets, and where."""
    for name in study.grid:
        yield (STUDY, "grid", name), name
    for keys, change in _changes(study):
        for number, text in enumerate(change.set):
            yield (*keys, "set", number), _path(text)


def _path(assignment: str) -> str:
    return assignment.partition("=")[0].strip()


def _changes(study: StudyTable) -> Iterator[tuple[Keys, Change]]:
    """Yield the study itself, its rows and its columns, and where each stands."""
    yield (STUDY,), study
    yield from (((STUDY, "rows", number), row) for number, row in enumerate(study.rows))
    yield from (((STUDY, "columns", number), column) for number, column in enumerate(study.columns))


def _scores(study: StudyTable) -> Iterator[tuple[Keys, str]]:
    """Yield every "evaluator.metric" or "avg" that is written, and where."""
    if study.score is not None:
        yield (STUDY, "score"), study.score
    if study.figure is not None and study.figure.y is not None:
        yield (STUDY, "figure", "y"), study.figure.y
    for number, column in enumerate(study.columns):
        if column.score is not None:
            yield (STUDY, "columns", number, "score"), column.score


def _check_scores(study: StudyTable, problems: Problems) -> None:
    for keys, score in _scores(study):
        evaluator, _, metric = score.partition(".")
        if score != papers.AVERAGE and not (evaluator and metric):
            problems.add(keys, f'should be "evaluator.metric", such as "stsb.spearman", or "{papers.AVERAGE}"')


def _check_paper(study: StudyTable, problems: Problems) -> None:
    """Report a paper, table, row or column that was never printed."""
    if study.paper is None:
        return
    key, slash, identifier = study.paper.partition("/")
    try:
        paper = papers.load(key)
    except UnknownNameError as error:
        problems.add((STUDY, "paper"), f"{error.message} Known: {', '.join(papers.names())}.")
        return
    known = [*paper.tables, *paper.figures]
    if identifier not in known:
        words = f"paper '{key}' has no table or figure '{identifier}'" if slash else 'should be "key/table"'
        problems.add((STUDY, "paper"), f"{words}.{nearest(identifier, known)}")
    elif identifier in paper.tables:
        _check_printed(study, paper.tables[identifier], problems)


def _check_printed(study: StudyTable, table: papers.Table, problems: Problems) -> None:
    rows = [((STUDY, "rows", number, "row"), row.row) for number, row in enumerate(study.rows)]
    headings = [column.name for column in table.columns]
    for keys, name, what, printed in [
        *((keys, name, "row", list(table.rows)) for keys, name in rows),
        *((keys, name, "column", headings) for keys, name in _headings(study)),
    ]:
        if name not in printed:
            problems.add(keys, f"table '{study.paper}' has no {what} '{name}'.{nearest(name, printed)}")
    if study.grid:
        message = "a paper's table is answered row by row: name its rows instead of a grid"
        problems.add((STUDY, "grid"), message, at_key=True)


Check = Callable[[str, Recipe], str | None]
"""Name that a study writes, recipe → what is wrong with the name there."""


def check_named(study: Study, made: Sequence[tuple[Column | None, Recipe]], problems: Problems) -> None:
    """Report scores and axes that the recipes of a study do not have.

    Columns may score by different recipes: what the study as a whole names must be known to one of them.

    Args:
        study: As it was read.
        made: Column and recipe of each cell.
        problems: Where they are noted.
    """
    for column, recipe in made:
        if column is not None and column.score is not None:
            place = (STUDY, "columns", study.columns.index(column), "score")
            _known_to_one(_score_problem, column.score, [recipe], place, problems)
    named: list[tuple[Keys, str | None, Check]] = [((STUDY, "score"), study.score, _score_problem)]
    if study.figure is not None:
        named += [
            ((STUDY, "figure", "x"), study.figure.x, _axis_problem),
            ((STUDY, "figure", "lines"), study.figure.lines, _path_problem),
            ((STUDY, "figure", "y"), study.figure.y, _score_problem),
        ]
    for keys, name, check in named:
        if name is not None:
            _known_to_one(check, name, [recipe for _, recipe in made], keys, problems)


def _known_to_one(check: Check, name: str, recipes: Sequence[Recipe], keys: Keys, problems: Problems) -> None:
    first: str | None = None
    for recipe in recipes:
        if (problem := check(name, recipe)) is None:
            return
        first = first or problem
    if first is not None:
        problems.add(keys, first)


def _score_problem(score: str, recipe: Recipe) -> str | None:
    if score == AVERAGE:
        return None
    name, _, metric = score.partition(".")
    part = recipe.evaluators.get(name)
    if part is None:
        return f"the recipe has no evaluator '{name}'.{nearest(name, recipe.evaluators)}"
    metrics = EVALUATORS[part.name].cls.metrics
    return None if metric in metrics else f"evaluator '{name}' has no metric '{metric}'.{nearest(metric, metrics)}"


def _axis_problem(x: str, recipe: Recipe) -> str | None:
    """Return what is wrong with an x axis; measures are known only after a run."""
    if x in (ROW, STEP) or x.startswith(MEASURES):
        return None
    return _path_problem(x, recipe, (ROW, STEP))


def _path_problem(path: str, recipe: Recipe, instead: Sequence[str] = ()) -> str | None:
    known = values(recipe)
    if path in known or setting(recipe, path) is not None:
        return None
    return f"the recipe has no '{path}'.{suggestion(path, [*known, *instead])}"
