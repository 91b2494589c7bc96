"""Target of a reproduction: a recipe, and the reported or measured number that it should reproduce."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from cse_cli.analysis.papers import reported_row, rows_of_table, table_of
from cse_cli.analysis.reproduced import Claim, Spread, claim_of
from cse_cli.analysis.score_table import ScoreRow
from cse_cli.core.results import STS_TASKS, Result, paper_average
from cse_cli.recipe.files import bare_file, name_of, recipe_name
from cse_cli.recipe.load import LoadedRecipe, changed, load
from registry import papers
from registry.errors import CseError, UnknownNameError, suggestion
from registry.papers import AVERAGE, DoubtfulPoint


@dataclass(frozen=True)
class Target:
    """Recipe to run, and the number to compare it with.

    Args:
        name: Name of the row, such as "IFCL, Table 1, IFCL-BERT base".
        source: Citation of the paper, or command and machine of the measurement.
        evaluators: Evaluators of the number. Several are averaged as in papers.
        notes: Doubts about the reported row.
    """

    loaded: LoadedRecipe = field(repr=False)
    name: str
    source: str
    claim: Claim
    evaluators: Sequence[str]
    metric: str
    notes: Sequence[str] = ()

    def value(self, result: Result) -> float:
        """Return the score of a run."""
        if len(self.evaluators) > 1:
            found = paper_average(result.scores, self.evaluators, self.metric)
        else:
            found = result.scores.get(self.evaluators[0], {}).get(self.metric)
        if found is None:
            raise CseError(
                f"run {str(result.run_id)[:8]} has no score for '{self.claim.heading}'",
                f"run it again: cse run {result.recipe} --again",
                code="reproduce.no_score",
            )
        return found


def find_target(argument: str, overrides: Sequence[str] = (), unset: Sequence[str] = ()) -> Target:
    """Return the target that a recipe, or a row such as "ifcl/1/IFCL-BERT base", names.

    Raises:
        UnknownNameError: If there is no such paper, table, row or recipe.
        CseError: If the row cannot be reproduced by a recipe, or the recipe reproduces no row.
    """
    key, slash, address = argument.partition("/")
    names_a_file = argument.endswith(".toml") or bare_file(argument, study=False) is not None
    if not names_a_file and key in papers.names() and slash:
        row, recipe = _find_row(key, address)
        return _paper_target(load(recipe, overrides, unset), row)
    loaded = load(argument, overrides, unset)
    if found := reported_row(loaded.recipe.paper):
        return _paper_target(loaded, found)
    if (measured := papers.measured_rows().get(recipe_name(argument))) is None:
        raise CseError(
            f"recipe '{argument}' reproduces no reported row",
            f"run it without a verdict: cse run {argument}. Rows have addresses such as 'ifcl/1/IFCL-BERT base', and "
            f"these small recipes have measured results: {', '.join(papers.measured_rows())}",
            code="reproduce.no_row",
        )
    if measured.judged not in loaded.recipe.evaluators:
        raise CseError(
            f"'{argument}' has no evaluator '{measured.judged}', whose score was measured",
            "omit --unset",
            code="reproduce.not_comparable",
        )
    others = Spread(len(measured.seeds), measured.std(measured.judged), "measured by this project")
    claim = Claim(
        heading=measured.judged,
        value=measured.mean(measured.judged),
        runs=len(measured.seeds),
        tolerance=measured.tolerance,
        others=others,
    )
    source = f"{measured.command} ({measured.date}, {measured.machine}, {measured.versions})"
    return Target(
        loaded, f"{measured.recipe}, measured by this project", source, claim, (measured.judged,), measured.metric
    )


def _find_row(key: str, address: str) -> tuple[ScoreRow, str]:
    """Return the row "table/row" of a paper and its recipe. The table is a number or an identifier."""
    number, slash, name = address.partition("/")
    paper = papers.load(key)
    tables = {one: table for one, table in paper.tables.items() if number in (one, str(table.number))}
    if not tables:
        known = [*paper.tables, *(str(table.number) for table in paper.tables.values() if table.number is not None)]
        raise UnknownNameError(
            f"there is no table '{number}' in {paper.short}.{suggestion(number, known)}",
            f"show its tables: cse leaderboard --paper {key}",
            code="reproduce.unknown_table",
        )
    rows = {row.name.casefold(): row for one in tables for row in rows_of_table(key, one)}
    if (found := rows.get(name.casefold())) is None:
        names = [row.name for row in rows.values()]
        message = f"'{key}/{address}': there is no row '{name}' in table '{number}' of {paper.short}."
        raise UnknownNameError(
            message + suggestion(name, names) if slash else f"'{key}/{address}' is a table, not a row",
            f"show its rows: cse leaderboard --table {key}/{number}. An address: '{key}/{number}/{names[-1]}'",
            code="reproduce.unknown_row",
        )
    table = table_of(found)
    if found.recipe is not None and table.kind == "scores":
        return found, found.recipe
    column = next((column for row, column in table.printed() if row == found.name), table.columns[0])
    answer = table.answer(found.name, column.name)
    if answer.kind == "study":
        raise CseError(
            f"'{key}/{address}': a study reproduces this row, with one recipe for each cell",
            f"run the study: cse run {answer.text}",
            code="reproduce.study",
        )
    reason = answer.text if answer.kind == "reason" else "its table does not contain scores"
    raise CseError(
        f"'{key}/{address}': no recipe reproduces this row: {reason}",
        f"choose another row: cse leaderboard --table {key}/{found.table}",
        code="reproduce.no_recipe",
    )


def _paper_target(loaded: LoadedRecipe, row: ScoreRow) -> Target:
    """Return the target of a reported row: its average if the recipe scores it, else its first comparable score."""
    reported, table, paper = row.scores, table_of(row), papers.load(str(row.paper))
    tasks = tuple(one.evaluator for one in table.columns if one.evaluator not in (None, AVERAGE)) or STS_TASKS
    found = []
    for column in table.columns:
        evaluators = tasks if column.evaluator == AVERAGE else (column.evaluator,)
        known = column.evaluator and column.name in reported and reported[column.name].comparable
        if known and set(evaluators) <= loaded.recipe.evaluators.keys():
            found.append((column, evaluators))
    if not found:
        reasons = "; ".join(dict.fromkeys(flag.note for flag in (*table.doubts(row.name), *table.flags)))
        raise CseError(
            f"{row.name} of {paper.short}, {table.title}: no score of '{loaded.name}' is the reported quantity"
            f"{f' ({reasons})' if reasons else ''}",
            f"run the recipe without a verdict: cse run {loaded.name}",
            code="reproduce.not_comparable",
        )
    column, evaluators = next((one for one in found if one[0].evaluator == AVERAGE), found[0])
    of_text = ("bold_not_maximum", "text_only", "wording", "unused")  # these do not concern the numbers of a row
    flags = [flag for flag in table.flags if flag.row in (None, row.name) and flag.kind not in of_text]
    return Target(
        loaded=loaded,
        name=f"{paper.short}, {table.title}, {row.name}",
        source=f"{paper.citation} {paper.url}",
        claim=claim_of(row, column, loaded.name),
        evaluators=[name for name in evaluators if name is not None],
        metric=table.score_of(column, row.name),
        notes=list(dict.fromkeys(f"{flag.column}: {flag.note}" if flag.column else flag.note for flag in flags)),
    )


def doubts(loaded: LoadedRecipe) -> Iterator[tuple[DoubtfulPoint, list[str]]]:
    """Yield the doubtful points of a recipe, its own first, with the `--set` options that it accepts."""
    names = [name_of(source.path) for source in loaded.origins.sources]
    points = [point for name in names for point in papers.doubtful_points() if name in point.recipes]
    for point in dict.fromkeys(points):
        accepted: list[list[str]] = []
        for option in map(str.split, point.options):
            try:
                differs = changed(loaded, option).recipe.hash() != loaded.recipe.hash()
            except CseError:
                continue
            if differs and not any(set(option) < set(other) for other in accepted):
                accepted.append(option)
        if accepted:
            yield point, [" ".join(f"--set {shlex.quote(word)}" for word in option) for option in accepted]
