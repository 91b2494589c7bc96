"""Finished results beside the papers' printed rows: the tables asked for. Pure data, no store and no rendering."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cse_cli.board import encoders, ours, studies, tables
from cse_cli.board.address import check_names, find_tables
from cse_cli.board.printed import encoder_of, model_name
from cse_cli.board.runs import Configuration, Judge, Standing, configurations, standing
from cse_cli.board.shape import SCHEMA_VERSION, Block, Row
from cse_cli.recipe.find import recipe_name
from cse_cli.results import Result
from registry import papers
from registry.errors import UnknownNameError, suggestion

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
        return encoders.blocks(ran, every=asked.recipe is not None, field=asked.field)
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
