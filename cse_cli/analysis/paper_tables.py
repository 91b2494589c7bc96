"""A paper's table in its own layout, with the runs of the recipes that answer its rows.

A paper's table cell by cell beside the runs of a study that answers it: our column, its trend, what is missing.

Whether two columns rise and fall together, exactly where they are short.

Our seeds as lines of the leaderboard.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from cse_cli.analysis.papers import Block, Missing, Printed, Row, Trend, encoder_of, model_name, reference, rows
from cse_cli.analysis.runs import Configuration, settings
from cse_cli.core.results import STS_TASKS, Result
from cse_cli.core.stats import Score, alone, beside_one_run, beside_untrained
from cse_cli.recipe.cells import Cell, cells, tag
from cse_cli.recipe.files import all_studies
from cse_cli.recipe.study import Study, load_study, studies_of
from registry import papers
from registry.errors import CseError
from registry.papers import AVERAGE, Column, Table


def heading(key: str, identifier: str) -> str:
    """Return what stands above a paper's table."""
    paper = papers.load(key)
    table = paper.tables[identifier]
    return f"{paper.short}, {table.title} ({identifier}): {table.caption} [{table.metric}]"


def remarks(key: str, identifier: str) -> tuple[str, ...]:
    """Return the doubts about a whole table."""
    return tuple(flag.note for flag in papers.load(key).tables[identifier].flags if flag.row is None)


def answered(
    key: str, identifier: str, ran: Sequence[Configuration], beside: Collection[str] = ()
) -> tuple[Block, bool]:
    """Return a paper's table and whether any of our runs stands in it.

    Args:
        key: The paper.
        identifier: The table.
        ran: Our runs.
        beside: Hashes of experiments that stand in another table already.
    """
    paper = papers.load(key)
    table = paper.tables[identifier]
    lines: list[Row] = []
    found = False
    for name in table.rows:
        printed = Printed(paper, identifier, name)
        shown = printed.line()
        lines.append(shown)
        for configuration in ran:
            if _answers(configuration, printed) and configuration.latest.recipe_hash not in beside:
                lines.append(_our_line(configuration, printed, shown))
                found = True
    return _block(key, identifier, lines), found


def _block(key: str, identifier: str, lines: Iterable[Row]) -> Block:
    table = papers.load(key).tables[identifier]
    return Block(
        kind="table",
        heading=heading(key, identifier),
        language=table.language,
        paper=key,
        table=identifier,
        columns=tuple(column.name for column in table.columns),
        rows=tuple(lines),
        remarks=remarks(key, identifier),
    )


def _our_line(configuration: Configuration, printed: Printed, shown: Row) -> Row:
    scores = beside_printed(configuration, printed.table, shown)
    place = {"paper": printed.paper.key, "table": printed.identifier, "answers": printed.name}
    return line(configuration, scores).model_copy(update=place)


def _answers(configuration: Configuration, printed: Printed) -> bool:
    """Tell whether a run stands beside a printed row: its own, or another one of the paper its recipe answers too."""
    asked = configuration.latest.paper
    if asked is None or asked.key != printed.paper.key:
        return False
    own = (asked.table, asked.row) == (printed.identifier, printed.name)
    return own or (printed.recipe is not None and printed.recipe == configuration.recipe)


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
            lines.append(_our_line_studies(one.study, printed, lines[-1], ran))
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


def _our_line_studies(study: Study, printed: Printed, shown: Row, ran: Sequence[tuple[Cell, Configuration]]) -> Row:
    """Return one line of what may be several cells: a printed row's columns can be runs of their own."""
    scores: dict[str, Score] = {}
    notes: list[str] = []
    for cell, configuration in ran:
        own = dict(_scores(study, cell, configuration, printed, shown))
        ours = line(configuration, own)
        scores |= ours.scores
        notes += [note for note in ours.notes if own and note != ONE_SEED]  # its mark says so, cell by cell
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
            yield column.name, alike(beside_one_run(values, number), theirs)


def _values(study: Study, column: Column, table: Table, configuration: Configuration) -> Sequence[float]:
    """Return a cell's score of every seed: as the paper's column says, else as the study does."""
    if values := of_column(configuration, column, table):
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


EXACT = 8
"""Most cells whose orders are all counted: 40,320 of them."""
FEWEST = 3
"""Two cells agree or disagree, and that is no trend."""


def trend(along: str, ours: Sequence[float], paper: Sequence[float]) -> Trend | None:
    """Return Spearman's correlation of our cells with the paper's, ties sharing their ranks; None for too few cells."""
    from scipy.stats import rankdata, spearmanr  # half a second to import

    n = len(ours)
    if n < FEWEST:
        return None
    if len(set(ours)) == 1 or len(set(paper)) == 1:
        return Trend(along=along, rho=None, p=None, n=n, exact=True)
    found = spearmanr(ours, paper)
    if n > EXACT:
        return Trend(along=along, rho=float(found.statistic), p=float(found.pvalue), n=n, exact=False)
    a, b = (rankdata(values) - (n + 1) / 2 for values in (ours, paper))
    sums = np.array(list(permutations(a))) @ b
    extreme = np.abs(sums) >= abs(float(a @ b)) - 1e-9
    return Trend(along=along, rho=float(found.statistic), p=float(extreme.mean()), n=n, exact=True)


ONE_SEED = "one seed: no spread known"
STALE = "stale: the recipe's file says something else today, or --set changed it"
NO_FILE = "no recipe of this name is found from here: not compared with its file"
TEST_SELECTED = "state chosen on a test split: optimistic"


def line(configuration: Configuration, scores: Mapping[str, Score]) -> Row:
    """Return a line of our seeds; every cell gets its marks."""
    latest = configuration.latest
    told = {
        ONE_SEED: len(configuration.seeds) == 1,
        STALE: configuration.stale,
        NO_FILE: configuration.standing == "missing",
        TEST_SELECTED: configuration.test_selected,
    }
    marks = {"stale": configuration.stale, "test_selected": configuration.test_selected}
    return Row(
        source="ours",
        name=latest.title,
        recipe=configuration.recipe,
        recipe_hash=latest.recipe_hash,
        settings=settings(latest) if configuration.standing in ("changed", "chosen") else (),
        model=latest.model,
        language=latest.language,
        seeds=configuration.seeds,
        scores={column: score.marked(**marks) for column, score in scores.items()},
        notes=tuple(note for note, holds in told.items() if holds),
    )


def beside_printed(configuration: Configuration, table: Table, printed: Row | None) -> dict[str, Score]:
    """Return our cells of a paper's table, each compared with the printed one.

    Args:
        configuration: Our seeds.
        table: The paper's.
        printed: The line to compare with; None compares with nothing.
    """
    found: dict[str, Score] = {}
    for column in table.columns:
        if values := of_column(configuration, column, table):
            theirs = None if printed is None else printed.scores.get(column.name)
            found[column.name] = alike(beside_one_run(values, reference(theirs)), theirs)
    return found


def alike(score: Score, printed: Score | None) -> Score:
    """Return our cell with as many decimals as the printed one beside it."""
    return score if printed is None else score.model_copy(update={"digits": max(2, printed.digits)})


def of_column(configuration: Configuration, column: Column, table: Table) -> list[float]:
    """Return what a printed column shows, of every seed; nothing where we have no such score."""
    if column.evaluator == AVERAGE:
        others = [c.evaluator for c in table.columns if c.evaluator not in (None, AVERAGE)]
        return configuration.averages([name for name in others if name is not None], table.score)
    return [] if column.evaluator is None else configuration.values(column.evaluator, table.score_of(column))


def with_untrained(configuration: Configuration) -> list[Row]:
    """Return the untrained encoder and our seeds below it, with every evaluator a column: beside no printed row."""
    scores: dict[str, Score] = {}
    before: dict[str, Score] = {}
    evaluators = list(configuration.results[0].scores)
    for name in [*evaluators, AVERAGE]:
        values, start = own_values(configuration, name), own_values(configuration, name, untrained=True)
        if values:
            scores[name] = beside_untrained(values, start) if start else alone(values)
        if values and start:
            before[name] = alone(start)
    trained = line(configuration, scores)
    if not before:
        return [trained]
    start_of = {"source": "untrained", "name": f"{trained.name}, before training", "scores": before, "notes": ()}
    return [trained.model_copy(update=start_of), trained]


def own_values(configuration: Configuration, evaluator: str, *, untrained: bool = False) -> Sequence[float]:
    """Return the metric an evaluator is known by, or the average of the seven English sets, of every seed."""
    if evaluator == AVERAGE:
        return configuration.averages(STS_TASKS, "spearman", untrained=untrained)
    return configuration.values(evaluator, None, untrained=untrained)
