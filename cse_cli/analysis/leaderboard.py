"""The tables of `cse leaderboard`: all that is known of an encoder with ours among it, or papers' own tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cse_cli.analysis.encoder_table import EncoderTable
from cse_cli.analysis.experiments import ChangesOf, Configuration, StatusOf, configurations, study_cells
from cse_cli.analysis.field import LANGUAGE as FIELD_LANGUAGE
from cse_cli.analysis.field import field_encoder, field_tables
from cse_cli.analysis.paper_tables import (
    paper_table,
    studies_of_table,
    study_runs,
    study_table,
)
from cse_cli.analysis.papers import (
    Layout,
    ScoreRow,
    ScoreTable,
    encoder_of,
    layouts,
    model_name,
    own_layouts,
    printed_encoders,
    printed_rows,
)
from cse_cli.analysis.runs import is_of_recipe
from cse_cli.analysis.runs_here import RunsHere
from cse_cli.core.results import Result
from cse_cli.recipe.files import all_recipes, find, recipe_name
from cse_cli.runs.index import finished_runs
from registry import papers
from registry.errors import CseError, UnknownNameError, suggestion
from registry.papers import PaperTables
from registry.paths import is_file


@dataclass(frozen=True)
class LeaderboardQuery:
    """What the leaderboard is to show.

    Args:
        paper: Key of a paper: its own tables instead of one table an encoder.
        table: Address of one table; it is shown even where nothing has run.
        encoder: As the papers' tables or the recipes call it.
        language: Code such as "en".
        recipe: Only runs of this recipe, and every configuration of it.
        field: The field's public leaderboard, in place of what papers print of its encoders.
        pool: Merge experiments with the same settings, although text, weights or code differ.
    """

    paper: str | None = None
    table: str | None = None
    encoder: str | None = None
    language: str | None = None
    recipe: str | None = None
    field: bool = False
    pool: bool = False

    def wants(self, result: Result) -> bool:
        """Return whether a run is of the recipe and the language."""
        if self.recipe is not None and not is_of_recipe(result, self.recipe):
            return False
        return self.language in (None, result.language)


@dataclass(frozen=True)
class FinishedRuns:
    """What has run.

    Args:
        results: Finished runs.
        tags: Run → the study's cell it was made for.
        status_of: Result → how the experiment it comes from relates to the recipe's file today, if not by its settings.
        changes: Run → what its `--set` changed.
    """

    results: Sequence[Result]
    tags: Mapping[str, str] = field(default_factory=dict)
    status_of: StatusOf | None = None
    changes: ChangesOf = field(default_factory=dict)


def read_finished_runs() -> FinishedRuns:
    """Return what has run."""
    runs = finished_runs()
    changes = {run.run_id: run.about.changes for run in runs if run.about.changes}
    return FinishedRuns([run.result for run in runs if run.result is not None], study_cells(runs), changes=changes)


def score_tables(runs: FinishedRuns, query: LeaderboardQuery) -> list[ScoreTable]:
    """Return the tables that are asked for.

    Raises:
        UnknownNameError: There is no such paper, table or encoder.
    """
    here = RunsHere(runs.results)
    return [here.completed(table) for table in _score_tables(runs, query, here)]


def _score_tables(runs: FinishedRuns, query: LeaderboardQuery, here: RunsHere) -> list[ScoreTable]:
    if query.field and (query.paper or query.table):
        raise CseError(
            "--field shows the field's public list, --paper and --table show a paper's own tables",
            "leave one of them out; --encoder and --recipe go with both",
        )
    is_asked = query.paper is not None or query.table is not None
    addresses = find_tables(query.paper, query.table) if is_asked else None
    _check_runs(query, runs.results)
    wanted = [result for result in runs.results if query.wants(result)]
    ran = configurations(wanted, runs.status_of, runs.changes, pool=query.pool)
    if query.encoder is not None:
        _check_encoder(query.encoder, ran)
        known_as = field_encoder if query.field else encoder_of
        ran = [one for one in ran if known_as(one) == model_name(query.encoder)]
    if query.field:
        return _with_field(ran, query, here)
    if addresses is None:
        tables = encoder_tables(ran, every=query.recipe is not None)
        return tables if tables or query.recipe is not None else printed_tables(query)
    found = FinishedRuns([result for one in ran for result in one.results], runs.tags)
    always = query.table is not None or not runs.results
    tables = [
        table
        for address in addresses
        for table in _paper_tables(*address, ran, found, here, always=always, pool=query.pool)
    ]
    return [kept for table in tables if (kept := _filtered(table, query)).rows]


def _with_field(ran: Sequence[Configuration], query: LeaderboardQuery, here: RunsHere) -> list[ScoreTable]:
    """Return the field's list, and tables of the encoders that ran and that it does not have."""
    every = query.recipe is not None
    encoder = None if query.encoder is None else model_name(query.encoder)
    tables = field_tables(ran, here, encoder, every=every) if query.language in (None, FIELD_LANGUAGE) else []
    names = {model_name(row.encoder) for row in papers.field_rows()}
    return tables + encoder_tables([one for one in ran if field_encoder(one) not in names], every=every)


def _check_runs(query: LeaderboardQuery, results: Sequence[Result]) -> None:
    """Refuse a recipe and a language that no run and nothing here has."""
    asked = query.recipe
    if asked is not None and not any(is_of_recipe(one, asked) for one in results) and not is_file(find(asked)):
        near = suggestion(recipe_name(asked), [*(recipe_name(one.recipe) for one in results), *all_recipes()])
        raise UnknownNameError(f"no run and no recipe is called '{asked}'.{near}", "`cse list recipes` shows all")
    found = [*(result.language for result in results), *(row.language for row in printed_rows())]
    known = {language for language in found if language}
    if query.language is not None and query.language not in known:
        raise UnknownNameError(
            f"neither a run nor a printed row has language '{query.language}'.{suggestion(query.language, known)}",
            f"known: {', '.join(sorted(known))}",
        )


def _check_encoder(name: str, ran: Iterable[Configuration]) -> None:
    known = sorted(printed_encoders() | {encoder_of(one) for one in ran})
    if model_name(name) not in known:
        raise UnknownNameError(
            f"neither a run nor a printed row has encoder '{name}'.{suggestion(name, known)}",
            f"known: {', '.join(known)}",
        )


def _paper_tables(
    key: str,
    identifier: str,
    ran: Sequence[Configuration],
    runs: FinishedRuns,
    here: RunsHere,
    *,
    always: bool,
    pool: bool,
) -> Iterator[ScoreTable]:
    """Yield a paper's table once for each study with results, and with the runs that belong to none."""
    studies = [
        study_runs(study, runs.results, runs.tags, here.cells_of(study), pool=pool)
        for study in studies_of_table(key, identifier)
    ]
    begun = [study for study in studies if study.any]
    yield from (study_table(study, key, identifier) for study in begun)
    table, has_runs = paper_table(key, identifier, ran, {digest for study in begun for digest in study.hashes})
    if has_runs or (always and not begun):
        commands = "; ".join(f"cse run {study.study.name}" for study in studies)
        yield table.model_copy(update={"command": commands or None})


def _filtered(table: ScoreTable, query: LeaderboardQuery) -> ScoreTable:
    """Return the table without printed rows of another encoder or language."""
    encoder = None if query.encoder is None else model_name(query.encoder)

    def fits(row: ScoreRow) -> bool:
        return row.source == "ours" or (
            encoder in (None, row.model, table.encoder) and query.language in (None, row.language or query.language)
        )

    return table.model_copy(update={"rows": tuple(filter(fits, table.rows))})


def encoder_tables(ran: Sequence[Configuration], *, every: bool = False) -> list[ScoreTable]:
    """Return one table for each encoder and language that has finished runs, and kind of scores.

    Args:
        ran: Our runs.
        every: All configurations of a recipe, not only the best by its dev mean.
    """
    groups: dict[tuple[str, str], list[Configuration]] = {}
    for configuration in ran:
        groups.setdefault((encoder_of(configuration), configuration.latest.language), []).append(configuration)
    return [
        EncoderTable(encoder, language, layout, tuple(members)).table(every=every)
        for (encoder, language), group in groups.items()
        for layout, members in _laid_out(language, group)
    ]


def printed_tables(query: LeaderboardQuery) -> list[ScoreTable]:
    """Return what papers print of the encoder and language that are asked for, and what puts ours beside it."""
    asked = None if query.encoder is None else model_name(query.encoder)
    rows = Counter((row.encoder, row.language or "") for row in printed_rows() if row.encoder and row.language)
    return [
        table
        for (encoder, language), _ in rows.most_common()
        if asked in (None, encoder) and query.language in (None, language)
        for layout in layouts(language)
        if (table := EncoderTable(encoder, language, layout, ()).table()).rows
    ]


def _laid_out(
    language: str, configurations: Sequence[Configuration]
) -> Iterable[tuple[Layout, Sequence[Configuration]]]:
    """Yield the columns that papers print together, with the runs that stand in no earlier table with all they have."""
    shown: dict[int, set[tuple[str, str | None]]] = {}
    for layout in layouts(language):
        members = [(place, c) for place, c in enumerate(configurations) if layout.scored(c) - shown.get(place, set())]
        if members:
            yield layout, [configuration for _, configuration in members]
        for place, configuration in members:
            shown[place] = shown.get(place, set()) | layout.scored(configuration)
    yield from own_layouts([c for place, c in enumerate(configurations) if place not in shown])


def find_tables(paper: str | None, table: str | None) -> list[tuple[str, str]]:
    """Return paper and identifier of the tables that are meant, in printed order.

    Args:
        paper: Key; None is any.
        table: "ifcl/5" by its number, "ifcl/queue_length" by its identifier, or a bare identifier; None is all.

    Raises:
        UnknownNameError: There is none; the message suggests the nearest.
        CseError: It is a figure, or the two name different papers.
    """
    if table is not None and "/" in table:
        key, _, name = table.partition("/")
        if paper not in (None, key):
            raise CseError(f"--paper {paper} and --table {table} are of different papers", "leave --paper out")
        return [(key, identifier) for identifier in _in_paper(papers.load(key), name)]
    every = [(key, one) for key in (papers.names() if paper is None else [paper]) for one in papers.load(key).tables]
    if table is None:
        return every
    if not (named := [(key, one) for key, one in every if one == table]):
        known = [one for _, one in every]
        raise UnknownNameError(
            f"unknown table '{table}'.{suggestion(table, known)}",
            f"`--table ifcl/5` means it by its number; known: {', '.join(dict.fromkeys(known))}",
        )
    return named


def _in_paper(paper: PaperTables, name: str) -> list[str]:
    numbered = [one for one, table in paper.tables.items() if name.isdecimal() and table.number == int(name)]
    if found := numbered or [one for one in paper.tables if one == name]:
        return found
    if figure := paper.figures.get(name):
        draws = ", ".join(f"`cse run {answer.text}`" for answer in figure.answers if answer.kind != "reason")
        raise CseError(
            f"'{paper.key}/{name}' is a figure ({paper.short}, Figure {figure.number}), not a table",
            f"{draws} draws ours" if draws else figure.unanswered,
        )
    known = [*paper.tables, *(str(table.number) for table in paper.tables.values() if table.number is not None)]
    raise UnknownNameError(
        f"unknown table '{name}' of {paper.short}.{suggestion(name, known)}",
        f"known: {', '.join(dict.fromkeys(known))}",
    )
