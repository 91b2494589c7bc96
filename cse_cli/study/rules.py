"""What a study says as a whole, held against itself and against the paper's table it answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from cse_cli.recipe.merge import STUDY
from cse_cli.recipe.positions import Keys
from cse_cli.recipe.problems import Problems
from cse_cli.study.schema import Change, StudyTable
from registry import papers
from registry.errors import UnknownNameError, suggestion

SEED = "train.seed"


def check_rules(study: StudyTable, problems: Problems) -> None:
    """Report every rule that a study breaks by itself although each of its tables is right."""
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
    _check_different([((STUDY, "rows", n, "row"), row.row) for n, row in enumerate(study.rows)], problems)
    _check_different(list(_headings(study)), problems)


def _headings(study: StudyTable) -> Iterator[tuple[Keys, str]]:
    for number, column in enumerate(study.columns):
        for place, name in enumerate(column.names):
            yield (STUDY, "columns", number, "names", place), name


def _check_different(named: Sequence[tuple[Keys, str]], problems: Problems) -> None:
    names = [name for _, name in named]
    for number, (keys, name) in enumerate(named):
        if name in names[:number]:
            problems.add(keys, f"'{name}' stands here twice")


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
    for keys, change in changes(study):
        for number, text in enumerate(change.set):
            yield (*keys, "set", number), text.partition("=")[0].strip()


def changes(study: StudyTable) -> Iterator[tuple[Keys, Change]]:
    """Yield the study itself, its rows and its columns, and where each stands."""
    yield (STUDY,), study
    yield from (((STUDY, "rows", number), row) for number, row in enumerate(study.rows))
    yield from (((STUDY, "columns", number), column) for number, column in enumerate(study.columns))


def scores(study: StudyTable) -> Iterator[tuple[Keys, str]]:
    """Yield every "evaluator.metric" or "avg" that is written, and where."""
    if study.score is not None:
        yield (STUDY, "score"), study.score
    if study.figure is not None and study.figure.y is not None:
        yield (STUDY, "figure", "y"), study.figure.y
    for number, column in enumerate(study.columns):
        if column.score is not None:
            yield (STUDY, "columns", number, "score"), column.score


def _check_scores(study: StudyTable, problems: Problems) -> None:
    for keys, score in scores(study):
        evaluator, _, metric = score.partition(".")
        if score != papers.AVERAGE and not (evaluator and metric):
            problems.add(keys, f'should be "evaluator.metric", such as "stsb.spearman", or "{papers.AVERAGE}"')


def check_paper(study: StudyTable, problems: Problems) -> None:
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
        problems.add((STUDY, "paper"), f"{words}.{_near(identifier, known)}")
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
            problems.add(keys, f"table '{study.paper}' has no {what} '{name}'.{_near(name, printed)}")
    if study.grid:
        message = "a paper's table is answered row by row: name its rows instead of a grid"
        problems.add((STUDY, "grid"), message, at_key=True)


def _near(name: str, known: Iterable[str]) -> str:
    return suggestion(name, known) or f" Known: {', '.join(known)}."
