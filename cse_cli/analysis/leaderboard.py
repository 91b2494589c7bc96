"""Tables of `cse leaderboard`: all scores of each encoder, the papers' own tables, or the community leaderboard."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cse_cli.analysis.encoder_table import COMMUNITY_LANGUAGE, community_encoder, community_tables, encoder_table
from cse_cli.analysis.experiments import Experiment, RecipeStatus, group, is_of_recipe, study_cells
from cse_cli.analysis.paper_tables import paper_table, study_runs, study_table
from cse_cli.analysis.papers import encoder_of, group_by_layout, layouts, model_name, reported_encoders, reported_rows
from cse_cli.analysis.score_table import ScoreRow, ScoreTable
from cse_cli.core.results import Result
from cse_cli.recipe.files import all_recipes, find, recipe_name
from cse_cli.recipe.study import studies_of
from cse_cli.runs.index import finished_runs
from registry import papers
from registry.errors import CseError, UnknownNameError, suggestion
from registry.papers import PaperTables
from registry.paths import is_file


@dataclass(frozen=True)
class LeaderboardQuery:
    """Selection of tables and runs: the options of `cse leaderboard`."""

    paper: str | None = None
    table: str | None = None
    encoder: str | None = None
    language: str | None = None
    recipe: str | None = None
    community: bool = False
    pool: bool = False

    @property
    def encoder_name(self) -> str | None:
        """The papers' name of the encoder."""
        return None if self.encoder is None else model_name(self.encoder)

    @property
    def by_paper(self) -> bool:
        """Whether the tables are those of papers."""
        return self.paper is not None or self.table is not None

    def selects(self, result: Result) -> bool:
        """Return whether a run has the recipe and the language."""
        if self.recipe is not None and not is_of_recipe(result, self.recipe):
            return False
        return self.language in (None, result.language)


@dataclass(frozen=True)
class FinishedRuns:
    """Finished runs and their origin."""

    results: Sequence[Result]
    tags: Mapping[str, str] = field(default_factory=dict)
    """Run → cell of the study that it was started for."""
    status: RecipeStatus | None = None
    """Relation of all runs to the files of their recipes. Default: by the files."""
    changes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Run → settings that its `--set` changed."""


def read_finished_runs() -> FinishedRuns:
    """Return all finished runs."""
    runs = finished_runs()
    changes = {run.run_id: run.about.changes for run in runs if run.about.changes}
    return FinishedRuns([run.result for run in runs if run.result is not None], study_cells(runs), changes=changes)


def score_tables(runs: FinishedRuns, query: LeaderboardQuery) -> list[ScoreTable]:
    """Return the selected tables. Unknown names are errors."""
    if query.community and query.by_paper:
        raise CseError(
            "--community cannot be combined with --paper or --table",
            "omit one of them; --encoder and --recipe can be combined with both",
            code="leaderboard.conflicting_options",
        )
    addresses = find_tables(query.paper, query.table) if query.by_paper else []
    _check_names(query, runs.results)
    selected = [result for result in runs.results if query.selects(result)]
    ran = group(selected, runs.changes, status=runs.status, pool=query.pool)
    if query.encoder is not None:
        known = reported_encoders() | {encoder_of(one) for one in ran}
        if query.encoder_name not in known:
            raise UnknownNameError(*_unknown("encoder", query.encoder, known), code="leaderboard.unknown_encoder")
        known_as = community_encoder if query.community else encoder_of
        ran = [one for one in ran if known_as(one) == query.encoder_name]
    if query.community:
        return _with_community(ran, query)
    if not query.by_paper:
        tables = encoder_tables(ran, every=query.recipe is not None)
        return tables if tables or query.recipe is not None else reported_tables(query)
    found = FinishedRuns([result for one in ran for result in one.results], runs.tags)
    always = query.table is not None or not runs.results
    made = [table for one in addresses for table in _paper_tables(one, ran, found, always, query.pool)]
    filtered = (_filtered(table, query) for table in made)
    return [table for table in filtered if table.rows]


def _with_community(ran: Sequence[Experiment], query: LeaderboardQuery) -> list[ScoreTable]:
    """Return the community leaderboard, and tables of encoders that it does not list."""
    every = query.recipe is not None
    listed = query.language in (None, COMMUNITY_LANGUAGE)
    tables = community_tables(ran, query.encoder_name, every=every) if listed else []
    names = {model_name(row.encoder) for row in papers.field_rows()}
    return tables + encoder_tables([one for one in ran if community_encoder(one) not in names], every=every)


def _check_names(query: LeaderboardQuery, results: Sequence[Result]) -> None:
    """Reject a recipe that does not exist and a language that no run and no reported row has."""
    recipe = query.recipe
    if recipe is not None and not any(is_of_recipe(one, recipe) for one in results) and not is_file(find(recipe)):
        names = [*(recipe_name(one.recipe) for one in results), *all_recipes()]
        raise UnknownNameError(
            f"--recipe '{recipe}': no run and no recipe has this name.{suggestion(recipe_name(recipe), names)}",
            "run `cse list recipes` to list all",
            code="leaderboard.unknown_recipe",
        )
    if query.language is not None:
        found = [*(result.language for result in results), *(row.language for row in reported_rows())]
        known = {language for language in found if language}
        if query.language not in known:
            raise UnknownNameError(*_unknown("language", query.language, known), code="leaderboard.unknown_language")


def _unknown(option: str, given: str, known: set[str]) -> tuple[str, str]:
    """Return message and next action for an unknown value of an option."""
    message = f"--{option} '{given}': no run and no paper has this {option}.{suggestion(given, sorted(known))}"
    more = ", …" if len(known) > 5 else ""
    return message, f"use one of: {', '.join(sorted(known)[:5])}{more}"


def _paper_tables(
    address: tuple[str, str],
    ran: Sequence[Experiment],
    runs: FinishedRuns,
    always: bool,
    pool: bool,
) -> Iterator[ScoreTable]:
    """Yield a paper's table for each study with results, and for the runs that belong to no study."""
    # The studies with the paper's encoders come first.
    found = sorted(studies_of(*address), key=lambda study: (study.name.count("/"), study.name))
    studies = [study_runs(one, runs.results, runs.tags, pool=pool) for one in found]
    started = [study for study in studies if study.any]
    yield from (study_table(study, *address) for study in started)
    table, has_runs = paper_table(*address, ran, {cell.hash for study in started for cell, _ in study.cells})
    if has_runs or (always and not started):
        commands = "; ".join(f"cse run {study.study.name}" for study in studies)
        yield table.model_copy(update={"command": commands or None})


def _filtered(table: ScoreTable, query: LeaderboardQuery) -> ScoreTable:
    """Return the table without reported rows of another encoder or language."""

    def fits(row: ScoreRow) -> bool:
        return row.source == "measured" or (
            query.encoder_name in (None, row.model, table.encoder)
            and query.language in (None, row.language or query.language)
        )

    return table.model_copy(update={"rows": tuple(filter(fits, table.rows))})


def encoder_tables(ran: Sequence[Experiment], *, every: bool = False) -> list[ScoreTable]:
    """Return one table for each encoder, language and kind of scores. `every` shows all configurations of a recipe."""
    groups: dict[tuple[str, str], list[Experiment]] = {}
    for experiment in ran:
        groups.setdefault((encoder_of(experiment), experiment.latest.language), []).append(experiment)
    return [
        encoder_table(encoder, language, layout, members, every=every)
        for (encoder, language), group in groups.items()
        for layout, members in group_by_layout(language, group)
    ]


def reported_tables(query: LeaderboardQuery) -> list[ScoreTable]:
    """Return the reported rows of the selected encoder and language, with the commands that reproduce them."""
    rows = Counter((row.encoder, row.language or "") for row in reported_rows() if row.encoder and row.language)
    tables = (
        encoder_table(name, language, layout, ())
        for (name, language), _ in rows.most_common()
        if query.encoder_name in (None, name) and query.language in (None, language)
        for layout in layouts(language)
    )
    return [table for table in tables if table.rows]


def overview(tables: Sequence[ScoreTable], query: LeaderboardQuery) -> tuple[Sequence[ScoreTable], list[str]]:
    """Return the tables that fit on one screen, and the names of the other encoders with published rows.

    A query that names an encoder, a language, a recipe or the community leaderboard shows all of its tables. Without
    one, these are the tables of your runs, and the first table with published rows if no other has any.
    """
    if query.community or any(value is not None for value in (query.encoder, query.language, query.recipe)):
        return tables, []
    shown = [table for table in tables if any(row.source == "measured" and row.scores for row in table.rows)]
    if not any(row.source == "paper" for table in shown for row in table.rows):
        shown += reported_tables(query)[:1]
    known = [row.encoder for row in reported_rows() if row.encoder]
    return shown, list(dict.fromkeys(name for name in known if all(table.encoder != name for table in shown)))


def find_tables(paper: str | None, table: str | None) -> list[tuple[str, str]]:
    """Return the paper and the identifier of each selected table.

    `table` is "ifcl/5" for a number, "ifcl/queue_length" or "queue_length" for an identifier.

    Raises:
        UnknownNameError: If there is no such paper or table.
        CseError: If the address is a figure, or the arguments name different papers.
    """
    if table is not None and "/" in table:
        key, _, name = table.partition("/")
        if paper not in (None, key):
            raise CseError(
                f"--paper '{paper}' and --table '{table}' name different papers",
                "omit --paper",
                code="leaderboard.conflicting_options",
            )
        return [(key, identifier) for identifier in _in_paper(papers.load(key), name)]
    every = [(key, one) for key in (papers.names() if paper is None else [paper]) for one in papers.load(key).tables]
    if table is None:
        return every
    if not (named := [(key, one) for key, one in every if one == table]):
        raise _unknown_table(table, "", [one for _, one in every])
    return named


def _in_paper(paper: PaperTables, name: str) -> list[str]:
    numbered = [one for one, table in paper.tables.items() if name.isdecimal() and table.number == int(name)]
    if found := numbered or [one for one in paper.tables if one == name]:
        return found
    if figure := paper.figures.get(name):
        commands = [f"`cse run {answer.text}`" for answer in figure.answers if answer.kind != "reason"]
        raise CseError(
            f"--table '{paper.key}/{name}' is a figure ({paper.short}, Figure {figure.number}), not a table",
            f"run {', '.join(commands)} to draw it" if commands else figure.not_reproduced_because,
            code="leaderboard.figure",
        )
    numbers = (str(table.number) for table in paper.tables.values() if table.number is not None)
    raise _unknown_table(name, f" in {paper.short}", [*paper.tables, *numbers])


def _unknown_table(name: str, where: str, known: Sequence[str]) -> UnknownNameError:
    return UnknownNameError(
        f"--table: there is no table '{name}'{where}.{suggestion(name, known)}",
        "use a number or an identifier, for example ifcl/5 or ifcl/queue_length; "
        f"known: {', '.join(list(dict.fromkeys(known))[:5])}, …",
        code="leaderboard.unknown_table",
    )
