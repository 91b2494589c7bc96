"""Finished results beside the papers' printed rows: the tables asked for. Pure data, no store and no rendering.

The leaderboard proper: everything known of one encoder in one table, ours among it.

Which printed tables a name on the command line means.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from cse_cli.analysis import paper_tables as ours
from cse_cli.analysis import paper_tables as studies
from cse_cli.analysis import paper_tables as tables
from cse_cli.analysis import papers as layouts
from cse_cli.analysis import papers as references
from cse_cli.analysis.papers import SCHEMA_VERSION, Block, Layout, Row, TableColumn, encoder_of, find, model_name
from cse_cli.analysis.runs import Configuration, Judge, Standing, configurations, standing
from cse_cli.core.results import Result
from cse_cli.core.stats import Score, alone, beside_one_run, beside_untrained
from cse_cli.recipe.files import recipe_name
from registry import papers
from registry.errors import CseError, UnknownNameError, suggestion
from registry.papers import PaperTables

__all__ = [
    "SCHEMA_VERSION", "Asked", "Block", "Judge", "Row", "Standing", "blocks", "check_names", "rows",
    "standing",
]  # fmt: skip


@dataclass(frozen=True)
class Asked:
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


@dataclass(frozen=True)
class Found:
    """What there is to show.

    Args:
        results: Finished runs.
        tags: Run → the study's cell it was made for.
        judge: Result → how the experiment it comes from relates to the recipe's file today.
    """

    results: Sequence[Result]
    tags: Mapping[str, str] = field(default_factory=dict)
    judge: Judge = standing


def blocks(found: Found, asked: Asked) -> list[Block]:
    """Return the tables asked for.

    Raises:
        UnknownNameError: There is no such paper, table or encoder.
    """
    own_tables = asked.paper is not None or asked.table is not None
    kept = [result for result in found.results if _wanted(result, asked)]
    ran = configurations(kept, found.judge if own_tables else _with_studies(found))
    if asked.encoder is not None:
        _check_encoder(asked.encoder, ran)
        ran = [one for one in ran if encoder_of(one) == model_name(asked.encoder)]
    if not own_tables:
        return encoder_blocks(ran, every=asked.recipe is not None, field=asked.field)
    kept = [result for one in ran for result in one.results]
    shown = [
        block
        for key, identifier in find_tables(asked.paper, asked.table)
        for block in _of_table(key, identifier, ran, studies.Ran(kept, found.tags), always=asked.table is not None)
    ]
    return [block for block in (_only(block, asked) for block in shown) if block.rows]


def _with_studies(found: Found) -> Judge:
    """Return a judge to whom settings that a study asks for today are as good as the recipe's file."""
    hashes = studies.asked_for(set(found.tags.values())) if found.tags else set()

    def judge(result: Result) -> Standing:
        state = found.judge(result)
        return "chosen" if state == "changed" and result.recipe_hash in hashes else state

    return judge


def _wanted(result: Result, asked: Asked) -> bool:
    if asked.recipe is not None and recipe_name(result.recipe) != recipe_name(asked.recipe):
        return False
    return asked.language in (None, result.language)


def _check_encoder(name: str, ran: Iterable[Configuration]) -> None:
    known = sorted(studies.known_encoders() | {encoder_of(one) for one in ran})
    if model_name(name) not in known:
        raise UnknownNameError(
            f"neither a run nor a printed row has encoder '{name}'.{suggestion(name, known)}",
            f"known: {', '.join(known)}",
        )


def _of_table(
    key: str, identifier: str, ran: Sequence[Configuration], runs: studies.Ran, *, always: bool
) -> Iterator[Block]:
    """Yield a paper's table once for each study with results, and with the runs that belong to none."""
    every = [studies.filled(study, runs) for study in studies.of_table(key, identifier)]
    filled = [one for one in every if one.any]
    yield from (studies.block(one, key, identifier) for one in filled)
    beside = {digest for one in filled for digest in one.hashes}
    table, answered = tables.answered(key, identifier, ran, beside)
    if answered or (always and not filled):
        commands = "; ".join(f"cse run {one.study.name}" for one in every)
        yield table.model_copy(update={"command": commands or None})


def _only(block: Block, asked: Asked) -> Block:
    """Return the block without printed rows of another encoder or language."""
    encoder = None if asked.encoder is None else model_name(asked.encoder)

    def fits(row: Row) -> bool:
        return row.source == "ours" or (
            encoder in (None, row.model, block.encoder) and asked.language in (None, row.language or asked.language)
        )

    return block.model_copy(update={"rows": tuple(row for row in block.rows if fits(row))})


def rows(results: Iterable[Result], judge: Judge, paper: str | None = None, table: str | None = None) -> list[Row]:
    """Return the lines of the papers' tables, a printed row first, ours below it, what compares with no paper last.

    Args:
        results: Finished runs.
        judge: Result → how the experiment it comes from relates to the recipe's file today.
        paper: Only this paper's tables.
        table: Only the table of this identifier; it is shown even where no run answers it.
    """
    ran = configurations(results, judge)
    lines: list[Row] = []
    for key in papers.names() if paper is None else [paper]:
        for identifier in papers.load(key).tables:
            if table in (None, identifier):
                block, answered = tables.answered(key, identifier, ran)
                lines += block.rows if answered or table is not None else ()
    if paper is None and table is None:
        for configuration in ran:
            if configuration.latest.paper is None:
                lines += ours.with_untrained(configuration)
    return lines


DEV = "dev"
"""Heading of the score that chose states and configurations; no paper prints it."""
CHOSEN = "dev: {}, which chose each run's state and, by its mean over seeds, the configuration shown of each recipe"


def encoder_blocks(ran: Sequence[Configuration], *, every: bool = False, field: bool = False) -> list[Block]:
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
        _Board(encoder, language, layout, tuple(members)).block(every=every, field=field)
        for (encoder, language), configurations in groups.items()
        for layout, members in _laid_out(language, configurations)
    ]


def _laid_out(
    language: str, configurations: Sequence[Configuration]
) -> Iterable[tuple[Layout, Sequence[Configuration]]]:
    """Yield the columns that papers print together, with the runs that stand in no earlier table with all they have."""
    shown: set[tuple[int, str, str | None]] = set()
    for layout in layouts.layouts(language):
        members = [
            (place, configuration)
            for place, configuration in enumerate(configurations)
            if {(place, *score) for score in layout.scored(configuration)} - shown
        ]
        if members:
            yield layout, [configuration for _, configuration in members]
        shown |= {(place, *score) for place, configuration in members for score in layout.scored(configuration)}
    places = {place for place, *_ in shown}
    yield from layouts.own([c for place, c in enumerate(configurations) if place not in places])


@dataclass(frozen=True)
class _Board:
    encoder: str
    language: str
    layout: Layout
    members: tuple[Configuration, ...]

    def block(self, *, every: bool, field: bool) -> Block:
        """Return the table: untrained encoders first, all else by its average."""
        printed = references.printed(self.encoder, self.language, self.layout)
        known = references.merged([*printed, *(references.field(self.encoder, self.layout) if field else [])])
        known += references.reproduced([row.recipe for row in printed], self.layout)
        chosen = [(configuration, 1) for configuration in self.members] if every else self._best()
        lines = [self._line(configuration, count) for configuration, count in chosen]
        untrained = self._untrained([configuration for configuration, _ in chosen])
        dev = self._dev()
        columns = [*([DEV] if dev else []), *self.layout.headings, *(column.heading for column in self._extra())]
        remarks = (CHOSEN.format(f"{dev.evaluator}.{dev.metric}"),) if dev else ()
        return Block(
            kind="encoder",
            heading=f"{self.encoder} ({self.language}){f' [{self.layout.unit}]' if self.layout.unit else ''}",
            encoder=self.encoder,
            language=self.language,
            columns=tuple(columns),
            rows=(*untrained, *sorted([*known, *lines], key=self._rank)),
            remarks=remarks,
        )

    def _rank(self, row: Row) -> tuple[bool, float]:
        score = row.scores.get(self.layout.ranking)
        return score is None, -score.mean if score else 0.0

    def _dev(self) -> TableColumn | None:
        """Return the evaluator that chose most of the states, where it is not among the columns."""
        chose = Counter(c.latest.select for c in self.members if c.latest.select and not c.test_selected)
        if not chose:
            return None
        evaluator, _, metric = chose.most_common(1)[0][0].rpartition(".")
        return None if evaluator in self.layout.evaluators else TableColumn(DEV, evaluator, metric)

    def _extra(self) -> list[TableColumn]:
        """Return what our runs score besides."""
        dev = self._dev()
        elsewhere = {name for layout in layouts.layouts(self.language) for name in layout.evaluators}
        known = {*self.layout.evaluators, *elsewhere, dev.evaluator if dev else ""}
        names = dict.fromkeys(name for member in self.members for name in member.results[0].scores)
        return [TableColumn(name, name, None) for name in names if name not in known]

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

    def _line(self, configuration: Configuration, count: int) -> Row:
        asked = configuration.latest.paper
        answered = find(asked.key, asked.table, asked.row) if asked else None
        printed = layouts.numbers(self.layout.of_printed(answered)) if answered else {}
        scores: dict[str, Score] = {}
        for column in self._columns():
            values = self.layout.values(configuration, column)
            before = self.layout.values(configuration, column, untrained=True)
            if values and answered is None and before:
                scores[column.heading] = beside_untrained(values, before)
            elif values:
                scores[column.heading] = beside_one_run(values, printed.get(column.heading))
        place = {"paper": asked.key, "table": asked.table, "answers": asked.row} if asked and answered else {}
        return ours.line(configuration, scores).model_copy(update={**place, "configurations": count})

    def _columns(self) -> list[TableColumn]:
        dev = self._dev()
        return [*([dev] if dev else []), *self.layout.columns, *self._extra()]

    def _untrained(self, chosen: Sequence[Configuration]) -> list[Row]:
        """Return the encoder before training, once for all recipes that read it alike."""
        found: dict[tuple[tuple[str, str], ...], list[tuple[Configuration, dict[str, Score]]]] = {}
        for configuration in chosen:
            if configuration.latest.paper is not None:
                continue
            columns = [(c.heading, self.layout.values(configuration, c, untrained=True)) for c in self._columns()]
            scores = {heading: alone(values) for heading, values in columns if values}
            if scores:
                key = tuple((heading, f"{score.mean:.2f}") for heading, score in scores.items())
                found.setdefault(key, []).append((configuration, scores))
        several = len(found) > 1
        return [_untrained(self.encoder, alike, several=several) for alike in found.values()]


def _untrained(encoder: str, alike: Sequence[tuple[Configuration, dict[str, Score]]], *, several: bool) -> Row:
    first, scores = alike[0]
    recipes = ", ".join(configuration.recipe for configuration, _ in alike)
    return Row(
        source="untrained",
        name=f"{encoder}, before training" + (f" ({recipes})" if several else ""),
        model=first.latest.model,
        language=first.latest.language,
        seeds=first.seeds,
        scores=scores,
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
        return [(key, identifier) for identifier in _of_paper(papers.load(key), name)]
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


def check_names(paper: str | None, table: str | None) -> None:
    """Refuse a paper or table that does not exist.

    Raises:
        CseError: It does not; the message suggests the nearest.
    """
    find_tables(paper, table)


def _of_paper(paper: PaperTables, name: str) -> list[str]:
    numbered = [
        identifier for identifier, table in paper.tables.items() if name.isdigit() and table.number == int(name)
    ]
    if found := numbered or [identifier for identifier in paper.tables if identifier == name]:
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
