"""A paper's table cell by cell beside the runs of a study that answers it: our column, its trend, what is missing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from cse_cli.board import ours
from cse_cli.board.printed import Printed, encoder_of, model_name, reference, rows
from cse_cli.board.runs import Configuration
from cse_cli.board.shape import Block, Missing, Row, Trend
from cse_cli.board.tables import heading, remarks
from cse_cli.board.trend import trend
from cse_cli.results import STS_TASKS, Result
from cse_cli.spread import Score, beside_one_run
from cse_cli.study.cells import Cell, cells, tag
from cse_cli.study.load import all_studies, load_study, studies_of
from cse_cli.study.schema import Study
from registry import papers
from registry.errors import CseError
from registry.papers import AVERAGE, Column, Table

OTHER_ENCODER = "{}, not the paper's encoder: levels do not compare, only the trend does"


@dataclass(frozen=True)
class Ran:
    """What has run.

    Args:
        results: Finished runs.
        tags: Run → the study's cell it was made for.
    """

    results: Sequence[Result]
    tags: Mapping[str, str]

    def of(self, study: Study, cell: Cell) -> Configuration | None:
        """Return the runs of a cell as it is today; where there are none, the newest that were made for it earlier."""
        current = [result for result in self.results if result.recipe_hash == cell.hash]
        made = [result for result in self.results if self.tags.get(result.run_id or "") == tag(study, cell)]
        if not current and not made:
            return None
        newest = max(current or made, key=lambda result: result.finished)
        same = [result for result in current or made if result.recipe_hash == newest.recipe_hash]
        by_seed = {result.seed: result for result in sorted(same, key=lambda r: r.finished)}
        seeds = tuple(by_seed[seed] for seed in sorted(by_seed))
        return Configuration(seeds, "current" if current else "changed")


@dataclass(frozen=True)
class Filled:
    """A study's cells and the runs of each.

    Args:
        study: The study.
        cells: Each with its runs, where there are any.
    """

    study: Study
    cells: Sequence[tuple[Cell, Configuration | None]]

    @property
    def any(self) -> bool:
        """Whether anything has run."""
        return any(configuration is not None for _, configuration in self.cells)

    @property
    def hashes(self) -> set[str]:
        """Of all experiments that it asks for."""
        return {cell.hash for cell, _ in self.cells}

    def in_row(self, name: str) -> list[tuple[Cell, Configuration]]:
        """Return the cells of one printed row that have runs."""
        return [(cell, ran) for cell, ran in self.cells if cell.row == name and ran is not None]

    def missing(self) -> tuple[Missing, ...]:
        """Return the cells that lack seeds."""
        wanted = set(self.study.seed_list)
        have = [(cell, _current(ran) & wanted) for cell, ran in self.cells]
        return tuple(
            Missing(row=cell.row, columns=cell.columns, seeds=len(seeds), wanted=len(wanted))
            for cell, seeds in have
            if len(seeds) < len(wanted)
        )


def _current(ran: Configuration | None) -> set[int]:
    return set(ran.seeds) if ran is not None and ran.standing == "current" else set()


def of_table(key: str, identifier: str) -> list[Study]:
    """Return the studies that answer a table, those on the paper's own encoders first."""
    return sorted(studies_of(key, identifier), key=lambda study: (study.name.count("/"), study.name))


def asked_for(tags: Collection[str]) -> set[str]:
    """Return the experiments that studies ask for today, of those studies that runs were made for."""
    named = [name for name in all_studies() if any(tag.startswith(f"{name}/") for tag in tags)]
    return {cell.hash for name in named for cell in _valid(name)}


def _valid(name: str) -> list[Cell]:
    try:
        return cells(load_study(name))
    except CseError:  # `cse check` tells; what ran of it before is stale
        return []


def filled(study: Study, ran: Ran) -> Filled:
    """Return a study's cells with their runs."""
    return Filled(study, [(cell, ran.of(study, cell)) for cell in cells(study)])


def block(one: Filled, key: str, identifier: str) -> Block:
    """Return a paper's table with the runs of a study: ours below each printed row, and what they say together."""
    paper = papers.load(key)
    table = paper.tables[identifier]
    lines: list[Row] = []
    for name in table.rows:
        printed = Printed(paper, identifier, name)
        lines.append(printed.line())
        if ran := one.in_row(name):
            lines.append(_our_line(one.study, printed, lines[-1], ran))
    encoders = dict.fromkeys(encoder_of(ran) for _, ran in one.cells if ran is not None)
    strangers = [name for name in encoders if name not in known_encoders()]
    missing = one.missing()
    return Block(
        kind="study",
        heading=f"{heading(key, identifier)}: {one.study.name} on {', '.join(encoders) or 'nothing yet'}",
        encoder=", ".join(encoders) or None,
        language=table.language,
        paper=key,
        table=identifier,
        study=one.study.name,
        columns=tuple(column.name for column in table.columns),
        rows=tuple(lines),
        remarks=(*(OTHER_ENCODER.format(name) for name in strangers), *remarks(key, identifier)),
        trends=tuple(_trends(lines, table)),
        missing=missing,
        command=f"cse run {one.study.name}" if missing else None,
    )


def known_encoders() -> set[str]:
    """Return every encoder that some paper prints scores of."""
    return {printed.encoder for printed in rows()} - {""}


def _our_line(study: Study, printed: Printed, shown: Row, ran: Sequence[tuple[Cell, Configuration]]) -> Row:
    """Return one line of what may be several cells: a printed row's columns can be runs of their own."""
    scores: dict[str, Score] = {}
    notes: list[str] = []
    for cell, configuration in ran:
        own = dict(_scores(study, cell, configuration, printed, shown))
        line = ours.line(configuration, own)
        scores |= line.scores
        notes += [note for note in line.notes if own and note != ours.ONE_SEED]  # its mark says so, cell by cell
    first = ran[0][1]
    order = [column.name for column in printed.table.columns if column.name in scores]
    return Row(
        source="ours",
        name=printed.name,
        paper=printed.paper.key,
        table=printed.identifier,
        answers=printed.name,
        recipe=first.recipe,
        recipe_hash=first.latest.recipe_hash if len(ran) == 1 else None,
        model=first.latest.model,
        language=first.latest.language,
        seeds=tuple(sorted({seed for _, configuration in ran for seed in configuration.seeds})),
        scores={name: scores[name] for name in order},
        notes=tuple(dict.fromkeys(notes)),
    )


def _scores(
    study: Study, cell: Cell, configuration: Configuration, printed: Printed, shown: Row
) -> Iterable[tuple[str, Score]]:
    for column in printed.table.columns:
        if cell.columns and column.name not in cell.columns:
            continue
        if values := _values(study, column, printed.table, configuration):
            theirs = shown.scores.get(column.name)
            number = reference(theirs) if _same_encoder(configuration, printed) else None
            yield column.name, ours.alike(beside_one_run(values, number), theirs)


def _values(study: Study, column: Column, table: Table, configuration: Configuration) -> Sequence[float]:
    """Return a cell's score of every seed: as the paper's column says, else as the study does."""
    if values := ours.of_column(configuration, column, table):
        return values
    said = next((c.score for c in study.columns if column.name in c.names and c.score), study.score)
    if said is None or column.evaluator is not None:
        return []
    if said == AVERAGE:
        return configuration.averages(STS_TASKS, "spearman")
    evaluator, _, metric = said.partition(".")
    return configuration.values(evaluator, metric)


def _same_encoder(configuration: Configuration, printed: Printed) -> bool:
    encoder = encoder_of(configuration)
    if configuration.standing != "current":
        encoder = model_name(configuration.latest.model)
    return encoder == printed.encoder if printed.encoder else encoder in known_encoders()


def _trends(lines: Sequence[Row], table: Table) -> Iterable[Trend]:
    """Yield the trend of each column, or of each row of a table that is printed sideways."""
    printed = {row.name: row.scores for row in lines if row.source == "paper"}
    own = {row.name: row.scores for row in lines if row.source == "ours"}
    places = [(row, column) for row in own for column in own[row] if column in printed[row]]
    sideways = len(table.rows) == 1
    along = list(printed) if sideways else [column.name for column in table.columns]
    for name in along:
        here = [place for place in places if place[0 if sideways else 1] == name]
        left = [own[row][column].mean for row, column in here]
        right = [reference(printed[row][column]) or 0.0 for row, column in here]
        if (found := trend(name, left, right)) is not None:
            yield found
