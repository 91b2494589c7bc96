"""Our seeds as lines of the leaderboard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cse_cli.board.printed import reference
from cse_cli.board.runs import Configuration, settings
from cse_cli.board.shape import Row
from cse_cli.results import STS_TASKS
from cse_cli.spread import Score, alone, beside_one_run, beside_untrained
from registry.papers import AVERAGE, Column, Table

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
