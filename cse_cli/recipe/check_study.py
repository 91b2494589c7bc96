"""Check a study: its rules, the names of its paper's table, and the names that its recipes contain."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from cse_cli.recipe.errors import nearest
from cse_cli.recipe.keys import Keys
from cse_cli.recipe.load import STUDY
from cse_cli.recipe.paths import setting, values
from cse_cli.recipe.problems import Problems
from cse_cli.recipe.schema import Recipe
from cse_cli.recipe.study_schema import Column, Grid, Study, StudyTable
from registry import EVALUATORS, papers
from registry.papers import AVERAGE, reported_averages
from registry.validation import shown_value

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
    for keys, path in _paths(study):
        if path == "train.seed":
            problems.add(
                "study.seed_as_setting", keys, "seeds are not a setting. Set 'seeds', or use --seeds", at_key=True
            )
    for keys, score in _scores(study):
        evaluator, _, metric = score.partition(".")
        if score != AVERAGE and not (evaluator and metric):
            message = f'should be "evaluator.metric", for example "stsb.spearman", or "{AVERAGE}"'
            problems.add("recipe.invalid_value", keys, message)


def _check_cells(study: StudyTable, problems: Problems) -> None:
    if study.rows and study.grid:
        problems.add("recipe.conflict", (STUDY, "grid"), "give either rows or a grid, not both", at_key=True)
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
        problems.add("recipe.conflict", (STUDY, "columns"), "rows with `tune` cannot have columns", at_key=True)
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


def _paths(study: StudyTable) -> Iterator[tuple[Keys, str]]:
    """Yield the place and the dotted path of every setting of a study."""
    for keys, grid in _grids(study):
        yield from (((*keys, name), name) for name in grid)
    for keys, change in study.changes():
        for number, override in enumerate(change.set):
            yield (*keys, "set", number), override.path


def _scores(study: StudyTable) -> Iterator[tuple[Keys, str]]:
    """Yield the place and content of every "evaluator.metric" or "avg"."""
    scores: list[tuple[Keys, str | None]] = [((STUDY, "score"), study.score)]
    if study.figure is not None:
        scores.append(((STUDY, "figure", "y"), study.figure.y))
    scores += [((STUDY, "columns", number, "score"), column.score) for number, column in enumerate(study.columns)]
    yield from ((keys, score) for keys, score in scores if score is not None)


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
            message = "cannot reproduce the rows of a paper's table. Use [[study.rows]]"
            problems.add("recipe.conflict", (STUDY, "grid"), message, at_key=True)


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
    known = values(recipe)
    if path in known or setting(recipe, path) is not None:
        return None
    return f"the recipe has no '{path}'.{nearest(path, [*known, *_AXES])}"
