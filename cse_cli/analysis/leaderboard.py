"""The tables of `cse leaderboard`: all that is known of an encoder with ours among it, or papers' own tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from cse_cli.analysis.paper_tables import (
    our_row,
    paper_table,
    studies_of_table,
    study_hashes,
    study_runs,
    study_table,
)
from cse_cli.analysis.papers import (
    Layout,
    LayoutColumn,
    PrintedRow,
    ScoreRow,
    ScoreTable,
    compare_with_printed,
    encoder_of,
    field_rows,
    find_printed_row,
    layouts,
    merge_equal,
    model_name,
    own_layouts,
    printed_beside,
    printed_encoders,
    printed_rows,
    reproduced,
)
from cse_cli.analysis.runs import (
    Configuration,
    RecipeStatus,
    StatusOf,
    configurations,
    recipe_status,
    study_tags,
)
from cse_cli.analysis.runs_here import RunsHere
from cse_cli.core.multiple import correct_row
from cse_cli.core.results import Result
from cse_cli.core.stats import Score, score_against_untrained, score_alone
from cse_cli.recipe.files import recipe_name
from cse_cli.tracking.reader import finished_results
from registry import papers
from registry.errors import CseError, UnknownNameError, suggestion
from registry.papers import PaperTables

DEV = "dev"
"""Heading of the score that chose states and configurations; no paper prints it."""
CHOSEN = "dev: {}, which chose each run's state and, by its mean over seeds, the configuration shown of each recipe"
FIELD_LANGUAGE = "en"
"""Of the field's public leaderboard."""


@dataclass(frozen=True)
class LeaderboardQuery:
    """What the leaderboard is to show.

    Args:
        paper: Key of a paper: its own tables instead of one table an encoder.
        table: Address of one table; it is shown even where nothing has run.
        encoder: As the papers' tables or the recipes call it.
        language: Code such as "en".
        recipe: Only runs of this recipe, and every configuration of it.
        field: The field's public leaderboard too.
    """

    paper: str | None = None
    table: str | None = None
    encoder: str | None = None
    language: str | None = None
    recipe: str | None = None
    field: bool = False

    def wants(self, result: Result) -> bool:
        """Tell whether a run is of the recipe and the language."""
        if self.recipe is not None and recipe_name(result.recipe) != recipe_name(self.recipe):
            return False
        return self.language in (None, result.language)


@dataclass(frozen=True)
class FinishedRuns:
    """What has run.

    Args:
        results: Finished runs.
        tags: Run → the study's cell it was made for.
        status_of: Result → how the experiment it comes from relates to the recipe's file today.
    """

    results: Sequence[Result]
    tags: Mapping[str, str] = field(default_factory=dict)
    status_of: StatusOf = recipe_status


def read_finished_runs() -> FinishedRuns:
    """Return what has run, as the tracking store has it."""
    results = finished_results()
    return FinishedRuns(results, study_tags() if results else {})


def score_tables(runs: FinishedRuns, query: LeaderboardQuery) -> list[ScoreTable]:
    """Return the tables that are asked for.

    Raises:
        UnknownNameError: There is no such paper, table or encoder.
    """
    here = RunsHere(runs.results)
    return [here.told(table) for table in _score_tables(runs, query, here)]


def _score_tables(runs: FinishedRuns, query: LeaderboardQuery, here: RunsHere) -> list[ScoreTable]:
    addresses = find_tables(query.paper, query.table) if query.paper or query.table else None
    wanted = [result for result in runs.results if query.wants(result)]
    ran = configurations(wanted, _status_with_studies(runs) if addresses is None else runs.status_of)
    if query.encoder is not None:
        _check_encoder(query.encoder, ran)
        ran = [one for one in ran if encoder_of(one) == model_name(query.encoder)]
    if addresses is None:
        tables = encoder_tables(ran, every=query.recipe is not None, field=query.field)
        listed = any(row.source == "field" for table in tables for row in table.rows)
        if query.recipe is None and (not tables or (query.field and not listed)):
            tables += printed_tables(query, {(table.encoder or "", table.language or "") for table in tables})
        return tables
    found = FinishedRuns([result for one in ran for result in one.results], runs.tags)
    always = query.table is not None or not runs.results
    tables = [table for address in addresses for table in _paper_tables(*address, ran, found, here, always=always)]
    return [kept for table in tables if (kept := _filtered(table, query)).rows]


def _status_with_studies(runs: FinishedRuns) -> StatusOf:
    """Return the status of runs; what a study asks for today is "chosen", as good as what the recipe's file says."""
    hashes = study_hashes(set(runs.tags.values())) if runs.tags else set()

    def status_of(result: Result) -> RecipeStatus:
        status = runs.status_of(result)
        return "chosen" if status == "changed" and result.recipe_hash in hashes else status

    return status_of


def _check_encoder(name: str, ran: Iterable[Configuration]) -> None:
    known = sorted(printed_encoders() | {encoder_of(one) for one in ran})
    if model_name(name) not in known:
        raise UnknownNameError(
            f"neither a run nor a printed row has encoder '{name}'.{suggestion(name, known)}",
            f"known: {', '.join(known)}",
        )


def _paper_tables(
    key: str, identifier: str, ran: Sequence[Configuration], runs: FinishedRuns, here: RunsHere, *, always: bool
) -> Iterator[ScoreTable]:
    """Yield a paper's table once for each study with results, and with the runs that belong to none."""
    studies = [
        study_runs(study, runs.results, runs.tags, here.cells_of(study)) for study in studies_of_table(key, identifier)
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


def encoder_tables(ran: Sequence[Configuration], *, every: bool = False, field: bool = False) -> list[ScoreTable]:
    """Return one table for each encoder and language that has finished runs, and kind of scores.

    Args:
        ran: Our runs.
        every: All configurations of a recipe, not only the best by its dev mean.
        field: The field's public leaderboard too.
    """
    groups: dict[tuple[str, str], list[Configuration]] = {}
    for configuration in ran:
        groups.setdefault((encoder_of(configuration), configuration.latest.language), []).append(configuration)
    return [
        _EncoderTable(encoder, language, layout, tuple(members)).table(every=every, field=field)
        for (encoder, language), group in groups.items()
        for layout, members in _laid_out(language, group)
    ]


def printed_tables(query: LeaderboardQuery, ran: Collection[tuple[str, str]] = ()) -> list[ScoreTable]:
    """Return what papers print of the encoders that have no finished runs, and the command that puts ours beside it.

    Args:
        query: Which encoder and language; whether the field's public leaderboard is shown too.
        ran: Encoder and language of what has a table already.
    """
    asked = None if query.encoder is None else model_name(query.encoder)
    rows = Counter((row.encoder, row.language or "") for row in printed_rows() if row.encoder and row.language)
    if query.field:
        rows.update((row.encoder.lower(), FIELD_LANGUAGE) for row in papers.field_rows())
    return [
        table
        for (encoder, language), _ in rows.most_common()
        if (encoder, language) not in ran and asked in (None, encoder) and query.language in (None, language)
        for layout in layouts(language)
        if (table := _EncoderTable(encoder, language, layout, ()).table(every=False, field=query.field)).rows
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


@dataclass(frozen=True)
class _EncoderTable:
    """All that is known of one encoder in one layout."""

    encoder: str
    language: str
    layout: Layout
    members: tuple[Configuration, ...]

    def table(self, *, every: bool, field: bool) -> ScoreTable:
        """Return the table: untrained encoders first, all else by its average."""
        printed = printed_beside(self.encoder, self.language, self.layout)
        known = merge_equal([*printed, *(field_rows(self.encoder, self.layout) if field else [])])
        known += reproduced([row.recipe for row in printed], self.layout)
        chosen = [(configuration, 1) for configuration in self.members] if every else self._best()
        ours = [self._our_row(configuration, best_of) for configuration, best_of in chosen]
        untrained = self._untrained([configuration for configuration, _ in chosen])
        ranked = sorted([*known, *ours], key=self._rank)
        open_recipes = [] if self.members else list(dict.fromkeys(row.recipe for row in ranked if row.recipe))
        dev = self._dev()
        return ScoreTable(
            kind="encoder",
            heading=f"{self.encoder} ({self.language}){f' [{self.layout.unit}]' if self.layout.unit else ''}",
            encoder=self.encoder,
            language=self.language,
            columns=tuple(column.heading for column in self._columns()),
            rows=(*untrained, *_with_empty(ranked, open_recipes)),
            remarks=(CHOSEN.format(f"{dev.evaluator}.{dev.metric}"),) if dev else (),
            command=f"cse run {' '.join(open_recipes)} --seeds 5" if open_recipes else None,
        )

    def _rank(self, row: ScoreRow) -> tuple[bool, float]:
        score = row.scores.get(self.layout.ranking)
        return score is None, -score.mean if score else 0.0

    def _columns(self) -> list[LayoutColumn]:
        """Return the score that chose, the papers' columns, and what our runs score besides."""
        dev = self._dev()
        elsewhere = {name for layout in layouts(self.language) for name in layout.evaluators}
        known = {*self.layout.evaluators, *elsewhere, dev.evaluator if dev else ""}
        names = dict.fromkeys(name for member in self.members for name in member.results[0].scores)
        others = [LayoutColumn(name, name, None) for name in names if name not in known]
        return [*([dev] if dev else []), *self.layout.columns, *others]

    def _dev(self) -> LayoutColumn | None:
        """Return the evaluator that chose most of the states, where it is not among the columns."""
        chose = Counter(c.latest.select for c in self.members if c.latest.select and not c.test_selected)
        if not chose:
            return None
        evaluator, _, metric = chose.most_common(1)[0][0].rpartition(".")
        return None if evaluator in self.layout.evaluators else LayoutColumn(DEV, evaluator, metric)

    def _best(self) -> list[tuple[Configuration, int]]:
        """Return the best configuration of each recipe by its dev mean, and of how many.

        What the recipe's file says today goes before what it no longer says, several seeds before one.
        """
        methods: dict[tuple[str, bool], list[Configuration]] = {}
        for configuration in self.members:
            methods.setdefault((configuration.recipe, configuration.test_selected), []).append(configuration)
        best = [(max(of_one, key=self._quality), of_one) for of_one in methods.values()]
        return [(one, sum(other.stale == one.stale for other in of_one)) for one, of_one in best]

    def _quality(self, configuration: Configuration) -> tuple[bool, bool, float, float]:
        dev = self._dev()
        values = self.layout.values(configuration, dev) if dev else []
        mean = fmean(values) if values else float("-inf")
        finished = configuration.latest.finished.timestamp()
        return not configuration.stale, len(configuration.seeds) > 1, mean, finished

    def _our_row(self, configuration: Configuration, best_of: int) -> ScoreRow:
        paper = configuration.latest.paper
        answered = find_printed_row(paper.key, paper.table, paper.row) if paper else None
        printed = self.layout.printed_scores(answered) if answered else {}
        scores: dict[str, Score] = {}
        for heading_column in self._columns():
            column = self._as_printed(heading_column, answered)
            values = self.layout.values(configuration, column)
            before = self.layout.values(configuration, column, untrained=True)
            if values and answered is None and before:
                scores[column.heading] = score_against_untrained(values, before)
            elif values:
                scores[column.heading] = compare_with_printed(values, printed.get(column.heading))
        return our_row(configuration, correct_row(scores, self.layout.ranking), answered, best_of)

    def _as_printed(self, column: LayoutColumn, answered: PrintedRow | None) -> LayoutColumn:
        """Return a column with the metric of the printed row, where that row has one of its own."""
        own = answered.table.rows[answered.name].score if answered is not None else None
        return column if own is None or column not in self.layout.columns else replace(column, metric=own)

    def _untrained(self, chosen: Sequence[Configuration]) -> list[ScoreRow]:
        """Return the encoder before training, once for all recipes that read it alike."""
        found: dict[tuple[tuple[str, str], ...], list[tuple[Configuration, dict[str, Score]]]] = {}
        for configuration in chosen:
            if configuration.latest.paper is not None:
                continue
            columns = [(c.heading, self.layout.values(configuration, c, untrained=True)) for c in self._columns()]
            scores = {heading: score_alone(values) for heading, values in columns if values}
            if scores:
                key = tuple((heading, f"{score.mean:.2f}") for heading, score in scores.items())
                found.setdefault(key, []).append((configuration, scores))
        return [
            ScoreRow(
                source="untrained",
                name=f"{self.encoder}, before training"
                + (f" ({', '.join(configuration.recipe for configuration, _ in equal)})" if len(found) > 1 else ""),
                model=equal[0][0].latest.model,
                language=equal[0][0].latest.language,
                seeds=equal[0][0].seeds,
                scores=equal[0][1],
            )
            for equal in found.values()
        ]


def _with_empty(rows: Sequence[ScoreRow], recipes: Sequence[str]) -> Iterator[ScoreRow]:
    """Yield rows, and below the fullest that a recipe answers the row that its runs would fill."""
    answered = [
        max((row for row in rows if row.recipe == recipe), key=lambda row: len(row.scores)) for recipe in recipes
    ]
    for row in rows:
        yield row
        if any(row is one for one in answered):
            yield row.model_copy(
                update={"source": "ours", "answers": row.name, "printed": (), "scores": {}, "notes": ()}
            )


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
    every = [(key, one) for key in ([paper] if paper else papers.names()) for one in papers.load(key).tables]
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
    numbered = [one for one, table in paper.tables.items() if name.isdigit() and table.number == int(name)]
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
