"""Studies: the keys of their files, the search for a file and its reading along `extends`, and the checks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, StrictBool
from pydantic_core import PydanticCustomError

from cse_cli.recipe.files import all_studies, bare_file, is_study, name_of
from cse_cli.recipe.keys import Keys, parse_dotted
from cse_cli.recipe.load import STUDY, read_chain
from cse_cli.recipe.overrides import Override
from cse_cli.recipe.parse import check_section, leaves, report_odd_values
from cse_cli.recipe.problems import Problems, RecipeError, nearest
from cse_cli.recipe.schema import NonNegativeInt, PositiveInt, Recipe, Section, String
from cse_cli.recipe.sources import Origins
from registry import EVALUATORS, papers
from registry.errors import UnknownNameError, suggestion
from registry.machinery.validation import shown_value
from registry.papers import AVERAGE, reported_averages

Seed = Annotated[NonNegativeInt, Field(lt=2**32)]
MOST_SEEDS = 10_000
Scalar = bool | int | float | str
Value = Scalar | list[Scalar]
Grid = dict[str, Annotated[tuple[Value, ...], Field(min_length=1)]]
"""Dotted path → values."""


def _setting(given: object) -> Override:
    """Parse an assignment as in `--set`."""
    if isinstance(given, Override):
        return given
    if not isinstance(given, str):
        raise PydanticCustomError("string_type", "not a string")
    try:
        return Override.parse(given)
    except RecipeError as error:
        raise PydanticCustomError(error.code, error.problems[0].message) from None


class Change(Section):
    """Differences from the recipe.

    Args:
        recipe: Name or path of another recipe.
        set: Overrides as in `--set`.
        unset: Dotted keys to remove, as in `--unset`.
    """

    recipe: String | None = None
    set: tuple[Annotated[Override, BeforeValidator(_setting)], ...] = ()
    unset: tuple[String, ...] = ()


class Row(Change):
    """A row of the table.

    Args:
        row: Name of the row in the paper's table, or any label if the study does not reproduce one.
        reported: Full-size recipe of the row's method. The report shows the difference of its reported average from
            that of the first row.
        tune: Further values to try, as in `StudyTable.tune`. A path of both has the values of the row.
    """

    row: String
    reported: String | None = None
    tune: Grid = Field(default_factory=dict)


class Column(Change):
    """Columns that require separate runs.

    Args:
        names: Names of the columns that these runs fill.
        score: "evaluator.metric" or "avg". Default: that of the study, else of the paper's column.
    """

    names: Annotated[tuple[String, ...], Field(min_length=1)]
    score: String | None = None


class FigureSpec(Section):
    """A figure of a study.

    Args:
        x: Values of the x axis: a dotted path of the recipe, "row" for the rows by name, "difference" for the rows by
            their difference from the first one, "step" for training curves, or "measures.NAME".
        y: Values of the y axis: "evaluator.metric" or "avg". Default: the scores of the cells.
        xlabel: Label of the x axis.
        ylabel: Label of the y axis.
        log_x: Whether the x axis is logarithmic.
        lines: Dotted path. Cells with the same value form one line. Default: one line for each column.
    """

    x: String
    y: String | None = None
    xlabel: String | None = None
    ylabel: String | None = None
    log_x: StrictBool = False
    lines: String | None = None


class StudyTable(Change):
    """The table [study].

    Args:
        title: One line for lists and reports.
        description: Further text.
        paper: "key/identifier" of the table or figure in `registry/papers/` that the study reproduces.
        seeds: Number of seeds (0, 1, …), or an array of seeds.
        score: "evaluator.metric" or "avg" of the cells. Default: those of the paper's columns.
        rows: Rows of the table.
        omit: Names of rows that are left out, for example inherited ones.
        columns: Columns that require separate runs.
        grid: Dotted path → values. Every combination is a row. Replaces `rows`.
        tune: Dotted path → values to try for each row that has its own `tune`. Every combination is a trial. The seeds
            of the row run with the settings of its best trial on the dev split.
        tune_seeds: Seeds of every trial. The study's own `seeds` do not include them.
        figure: Figure of the study.
    """

    title: String
    description: str = ""
    paper: String | None = None
    seeds: Annotated[PositiveInt, Field(le=MOST_SEEDS)] | Annotated[tuple[Seed, ...], Field(min_length=1)] = 3
    score: String | None = None
    rows: tuple[Row, ...] = ()
    omit: tuple[String, ...] = ()
    columns: tuple[Column, ...] = ()
    grid: Grid = Field(default_factory=dict)
    tune: Grid = Field(default_factory=dict)
    tune_seeds: Annotated[tuple[Seed, ...], Field(min_length=1)] = (0,)
    figure: FigureSpec | None = None

    @property
    def seed_list(self) -> tuple[int, ...]:
        """All seeds."""
        return tuple(range(self.seeds)) if isinstance(self.seeds, int) else self.seeds

    def placed_rows(self) -> Iterator[tuple[Keys, Row]]:
        """Yield the path and content of every row that is not omitted."""
        for number, row in enumerate(self.rows):
            if row.row not in self.omit:
                yield (STUDY, "rows", number), row

    @property
    def is_tuned(self) -> bool:
        """Whether any row is tuned before its seeds run."""
        return any(row.tune for _, row in self.placed_rows())

    def tried(self, row: Row) -> Grid:
        """Return the values that are tried for a row: dotted path → values. Empty if the row is not tuned."""
        return {**self.tune, **row.tune} if row.tune else {}

    def score_of(self, column: str) -> str | None:
        """Return the score that the study gives a column, or None if the paper's column defines it."""
        return next((one.score for one in self.columns if column in one.names and one.score), self.score)

    def changes(self) -> Iterator[tuple[Keys, Change]]:
        """Yield the path and content of every table of changes: the study, its rows and its columns."""
        yield (STUDY,), self
        yield from self.placed_rows()
        yield from (((STUDY, "columns", number), column) for number, column in enumerate(self.columns))


class Study(StudyTable):
    """A study with its file.

    `name` is the bare name, such as "studies/ifcl_queue_length", or the stem of the file if it has none.
    """

    name: str
    path: Path

    @property
    def answers(self) -> tuple[str, str] | None:
        """Key of the paper and identifier of its table or figure."""
        if self.paper is None:
            return None
        key, _, identifier = self.paper.partition("/")
        return key, identifier


_AXES = ("row", "difference", "step")
"""X axes of a figure that are not settings: the rows by name or by their difference, and the training steps."""
MOST_CELLS = 1_000
"""Maximum number of cells. Each of them is validated before the first run starts, which takes about 10 ms."""


def check_study(study: StudyTable, problems: Problems) -> None:
    """Report broken rules between the tables of a study."""
    _check_cells(study, problems)
    _check_repetitions(study, problems)
    _check_tuning(study, problems)
    if study.figure is not None and study.figure.x == "difference" and len(study.columns) > 1:
        message = '"difference" compares rows, so it cannot be combined with several columns'
        problems.add("recipe.conflict", (STUDY, "figure", "x"), message)
    for number, name in enumerate(study.omit):
        problems.known("row", name, [row.row for row in study.rows], (STUDY, "omit", number))
    _check_reported(study, problems)
    paths = [((*keys, name), name) for keys, grid in _grids(study) for name in grid]
    for keys, change in study.changes():
        paths += [((*keys, "set", number), override.path) for number, override in enumerate(change.set)]
    for keys, path in paths:
        if path == "train.seed":
            message = "seeds are not a setting. Set 'seeds', or use --seeds"
            problems.add("study.seed_as_setting", keys, message, at_key=True)
    scores: list[tuple[Keys, str | None]] = [((STUDY, "score"), study.score)]
    if study.figure is not None:
        scores.append(((STUDY, "figure", "y"), study.figure.y))
    scores += [((STUDY, "columns", number, "score"), column.score) for number, column in enumerate(study.columns)]
    for keys, score in scores:
        evaluator, _, metric = (score or AVERAGE).partition(".")
        if score not in (None, AVERAGE) and not (evaluator and metric):
            message = f'should be "evaluator.metric", for example "stsb.spearman", or "{AVERAGE}"'
            problems.add("recipe.invalid_value", keys, message)


def _check_cells(study: StudyTable, problems: Problems) -> None:
    if study.rows and study.grid:
        problems.conflict((STUDY, "grid"), "give either rows or a grid, not both")
    elif not study.rows and not study.grid:
        message = f"needs rows ([[{STUDY}.rows]]) or a grid ([{STUDY}.grid])"
        problems.add("recipe.missing_key", (STUDY,), message, at_key=True)
    tables = [table for table in (study.rows, study.columns) if table]
    if study.recipe is None and not any(all(change.recipe for change in table) for table in tables):
        problems.add("recipe.missing_key", (STUDY,), "needs 'recipe', the recipe of all cells", at_key=True)
    count = len(list(study.placed_rows())) or math.prod(len(tried) for tried in study.grid.values())
    count *= max(1, len(study.columns))
    if count > MOST_CELLS:
        where = "grid" if study.grid else "rows"
        message = f"{count:,} cells exceed the maximum of {MOST_CELLS:,}. Split the study, or search with `cse tune`"
        problems.add("study.too_many_cells", (STUDY, where), message, at_key=True)


def _check_tuning(study: StudyTable, problems: Problems) -> None:
    if study.tune and not any(row.tune for row in study.rows):
        message = (
            'no row is tuned. Add `tune` to the rows that are, for example tune = { "train.warmup_steps" = [0, 10] }'
        )
        problems.add("study.nothing_tuned", (STUDY, "tune"), message, at_key=True)
    if study.is_tuned and study.columns:
        problems.conflict((STUDY, "columns"), "rows with `tune` cannot have columns")
    if study.is_tuned and (both := sorted({*study.seed_list} & {*study.tune_seeds})):
        message = (
            f"seed {both[0]} is one of `tune_seeds`. The seeds of the rows should be fresh, "
            f"for example seeds = {[max(study.tune_seeds) + number for number in range(1, 4)]}"
        )
        problems.add("study.seed_not_fresh", (STUDY, "seeds"), message, at_key=True)
    trials = sum(math.prod(map(len, study.tried(row).values())) for _, row in study.placed_rows() if row.tune)
    if trials > MOST_CELLS:
        message = f"{trials:,} trials exceed the maximum of {MOST_CELLS:,}"
        problems.add("study.too_many_cells", (STUDY, "tune"), message, at_key=True)


def _check_reported(study: StudyTable, problems: Problems) -> None:
    rows = list(study.placed_rows())
    named = [(keys, row.reported) for keys, row in rows if row.reported is not None]
    for keys, recipe in named:
        if recipe not in (known := reported_averages()):
            message = f"no paper or list has an average for recipe '{recipe}'.{nearest(recipe, known)}"
            problems.add("study.unknown_name", (*keys, "reported"), message)
    if named and rows[0][1].reported is None:
        message = f"needs `reported` in the first row, '{rows[0][1].row}', from which differences are taken"
        problems.add("recipe.missing_key", (*named[0][0], "reported"), message, at_key=True)


def _check_repetitions(study: StudyTable, problems: Problems) -> None:
    named: list[list[tuple[Keys, str]]] = [
        [((STUDY, "rows", number, "row"), row.row) for number, row in enumerate(study.rows)],
        list(_headings(study)),
    ]
    if not isinstance(study.seeds, int):
        named.append([((STUDY, "seeds", number), str(seed)) for number, seed in enumerate(study.seeds)])
    for keys, grid in _grids(study):
        for name, tried in grid.items():
            named.append([((*keys, name, number), shown_value(value)) for number, value in enumerate(tried)])
    for keys, change in study.changes():
        named.append([((*keys, "set", number), override.path) for number, override in enumerate(change.set)])
        named.append([((*keys, "unset", number), text) for number, text in enumerate(change.unset)])
    for items in named:
        seen: set[str] = set()
        for keys, name in items:
            if name in seen:
                problems.add("study.repeated", keys, f"'{name}' is repeated. Remove it")
            seen.add(name)


def _headings(study: StudyTable) -> Iterator[tuple[Keys, str]]:
    for number, column in enumerate(study.columns):
        for position, name in enumerate(column.names):
            yield (STUDY, "columns", number, "names", position), name


def _grids(study: StudyTable) -> Iterator[tuple[Keys, Grid]]:
    """Yield the place and content of every table of values."""
    yield (STUDY, "grid"), study.grid
    yield (STUDY, "tune"), study.tune
    yield from (((*keys, "tune"), row.tune) for keys, row in study.placed_rows())


def check_paper(study: StudyTable, problems: Problems) -> None:
    """Report a paper, table, row or column that does not exist."""
    if study.paper is None:
        return
    key, slash, identifier = study.paper.partition("/")
    if not problems.known("paper", key, papers.names(), (STUDY, "paper")):
        return
    paper = papers.load(key)
    known = [*paper.tables, *paper.figures]
    if identifier not in known:
        message = f"paper '{key}' has no table or figure '{identifier}'" if slash else 'should be "key/table"'
        problems.add("recipe.unknown_table", (STUDY, "paper"), f"{message}.{nearest(identifier, known)}")
    elif identifier in paper.tables:
        table = paper.tables[identifier]
        owner, columns = f"table '{study.paper}'", [column.name for column in table.columns]
        for number, row in enumerate(study.rows):
            problems.known("row", row.row, table.rows, (STUDY, "rows", number, "row"), owner=owner)
        for keys, name in _headings(study):
            problems.known("column", name, columns, keys, owner=owner)
        if study.grid:
            problems.conflict((STUDY, "grid"), "cannot reproduce the rows of a paper's table. Use [[study.rows]]")


Check = Callable[[str, Recipe], str | None]
"""Name in the study, recipe → problem of the name, or None."""


def check_names_in_recipes(study: Study, made: Sequence[tuple[Column | None, Recipe]], problems: Problems) -> None:
    """Report scores and axes that the recipes of a study do not have.

    A name in a column must exist in the recipes of this column, other names in at least one recipe.
    """
    recipes = [recipe for _, recipe in made]
    named: list[tuple[Keys, str | None, Check, Sequence[Recipe]]] = [
        ((STUDY, "columns", study.columns.index(column), "score"), column.score, _score_problem, [recipe])
        for column, recipe in made
        if column is not None
    ]
    named.append(((STUDY, "score"), study.score, _score_problem, recipes))
    if study.figure is not None:
        keys: Keys = (STUDY, "figure")
        named += [
            ((*keys, "x"), study.figure.x, _axis_problem, recipes),
            ((*keys, "lines"), study.figure.lines, _path_problem, recipes),
            ((*keys, "y"), study.figure.y, _score_problem, recipes),
        ]
    for place, name, check, where in named:
        found = [] if name is None else [check(name, recipe) for recipe in where]
        if found and None not in found:
            problems.add("study.unknown_name", place, str(found[0]))


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
    # Measures are known only after a run.
    return None if x in _AXES or x.startswith("measures.") else _path_problem(x, recipe)


def _path_problem(path: str, recipe: Recipe) -> str | None:
    known = recipe.values()
    if path in known or recipe.setting(path) is not None:
        return None
    return f"the recipe has no '{path}'.{nearest(path, [*known, *_AXES])}"


def find_study(name: str) -> Path | None:
    """Return the file of the study that a path or a bare name refers to, or None if it is not a study."""
    if name.endswith(".toml") or Path(name).is_absolute():
        return Path(name) if is_study(Path(name)) else None
    beside = Path(f"{name}.toml")
    return bare_file(name, study=True) or (beside if is_study(beside) else None)


def load_study(name_or_path: str) -> Study:
    """Find, read, merge and check a study. Its recipes are not loaded."""
    path = find_study(name_or_path)
    if path is None and name_or_path.endswith(".toml"):
        path = Path(name_or_path)
    if path is None:
        near = suggestion(name_or_path, all_studies())
        action = "`cse list studies` shows all names"
        raise UnknownNameError(f"unknown study '{name_or_path}'.{near}", action, code="recipe.unknown_study")
    return outline(path, with_paper=True)


def only_rows(study: Study, rows: Sequence[str]) -> Study:
    """Return a study that omits all rows except the named ones, or the study itself if no name is given."""
    names = [row.row for _, row in study.placed_rows()]
    for name in rows:
        if name not in names:
            message = f"study '{study.name}' has no row '{name}'.{suggestion(name, names)}"
            action = f"`cse run {study.name} --dry-run` shows all rows"
            raise UnknownNameError(message, action, code="recipe.unknown_row")
    omitted = tuple(row.row for row in study.rows if rows and row.row not in rows)
    return study.model_copy(update={"omit": (*study.omit, *omitted)})


def studies_of(paper_key: str, identifier: str) -> list[Study]:
    """Return the studies that reproduce a table or figure. Files that cannot be read are skipped."""
    found = []
    for path in all_studies().values():
        try:
            paper = _merge(origins_of(path)).get("paper")
        except RecipeError:
            continue
        if paper == f"{paper_key}/{identifier}":
            found.append(load_study(str(path)))
    return found


def outline(path: Path, *, with_paper: bool = False) -> Study:
    """Return a study without validating its recipes. `with_paper` compares it with the paper's table."""
    origins = origins_of(path)
    problems = Problems(origins.where)
    for source in origins.sources:
        for key in source.tables.keys() - {STUDY}:
            hint = f" Write [{STUDY}.{key}]" if key in StudyTable.model_fields else nearest(key, [STUDY])
            message = f"the file of a study contains only the table [{STUDY}].{hint}"
            problems.add("study.unknown_key", (key,), message, at_key=True)
    written = _merge(origins)
    tables = {**written, **_with_dotted_paths(written, ("grid", "tune"), (STUDY,), problems)}
    tables["rows"] = _parse_each(Row, written, "rows", problems)
    tables["columns"] = _parse_each(Column, written, "columns", problems)
    study = check_section(StudyTable, tables, (STUDY,), problems)
    problems.raise_if_any(STUDY)
    report_odd_values(written, (STUDY,), problems)
    check_study(study, problems)
    if with_paper:
        check_paper(study, problems)
    problems.raise_if_any(STUDY)
    return Study.model_construct(**dict(study), name=name_of(path), path=path)


def origins_of(path: Path) -> Origins:
    """Return the files of a study."""
    return Origins(read_chain(path, study=True))


def _merge(origins: Origins) -> dict[str, Any]:
    """Return the keys of [study]. Own keys replace inherited ones, and rows and grid replace each other."""
    merged: dict[str, Any] = {}
    for source in reversed(origins.sources):
        own = source.tables[STUDY]
        if not isinstance(own, Mapping):
            raise source.refuse("recipe.invalid_value", (STUDY,), f"should be a table, not {shown_value(own)}")
        for one, other in (("rows", "grid"), ("grid", "rows")):
            if one in own:
                merged.pop(other, None)
        merged |= {key: value for key, value in own.items() if key != "extends"}
    return merged


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
