"""Rows of measured scores, and the configuration that represents each recipe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from cse_cli.analysis.circumstances import mixed_environments
from cse_cli.analysis.experiments import Configuration
from cse_cli.analysis.layouts import LayoutColumn, ScoreLayout
from cse_cli.analysis.papers import ReportedRow
from cse_cli.analysis.score import Score, correct_row, score_against_reported, score_against_untrained
from cse_cli.analysis.score_table import ScoreRow

DEV = "dev"
"""Heading of the score that selected states and configurations. No paper reports it."""
ONE_SEED = "one seed: the standard deviation is unknown"
STALE = "stale: the recipe's file now describes another experiment"
NO_FILE = "there is no recipe with this name, so the settings are not compared with its file"
TEST_SELECTED = "a test split selected the state: optimistic"


def measured_row(
    configuration: Configuration, scores: Mapping[str, Score], reproduces: ReportedRow | None = None, best_of: int = 1
) -> ScoreRow:
    """Return the row of a configuration, the best of this number by mean dev score, with the marks of its cells."""
    latest = configuration.latest
    notes = {
        ONE_SEED: len(configuration.seeds) == 1,
        STALE: configuration.stale,
        NO_FILE: configuration.status == "missing",
        TEST_SELECTED: configuration.test_selected,
        configuration.plan.text: configuration.plan.mode == "incomplete",
    }
    marks = {"stale": configuration.stale, "test_selected": configuration.test_selected}
    return ScoreRow(
        source="measured",
        name=latest.title,
        paper=reproduces.paper.key if reproduces else None,
        table=reproduces.identifier if reproduces else None,
        reproduces=reproduces.name if reproduces else None,
        recipe=configuration.recipe,
        copies=configuration.names[1:],
        recipe_hash=latest.recipe_hash,
        experiment=latest.experiment,
        settings=configuration.settings,
        configurations=best_of,
        model=latest.model,
        language=latest.language,
        seeds=configuration.seeds,
        scores={column: score.marked(**marks) for column, score in scores.items()},
        notes=(
            *(note for note, holds in notes.items() if holds),
            *configuration.notes,
            *mixed_environments(configuration.results),
        ),
    )


def layout_scores(
    configuration: Configuration,
    layout: ScoreLayout,
    columns: Sequence[LayoutColumn],
    reported: Mapping[str, Score] | None,
    metric: str | None = None,
) -> dict[str, Score]:
    """Return the cells of one configuration, tested and corrected together.

    Args:
        configuration: Runs of all seeds.
        layout: Layout of the table.
        columns: Columns of the table: those of the layout and others.
        reported: Heading → reported cell to compare with. None to compare with the untrained encoder.
        metric: Metric of the reported row, if it is not the one of its table.
    """
    mode, scores = configuration.plan.mode, dict[str, Score]()
    for plain in columns:
        column = replace(plain, metric=metric) if metric and plain in layout.columns else plain
        values = layout.values(configuration, column)
        if not values:
            continue
        before = layout.values(configuration, column, untrained=True) if reported is None else []
        if before:
            score = score_against_untrained(values, before, mode)
        else:
            score = score_against_reported(values, (reported or {}).get(column.heading), mode)
        scores[column.heading] = score if configuration.judges(column.evaluator) else score.with_p(None)
    return correct_row(scores, layout.ranking)


def selecting_column(members: Sequence[Configuration]) -> LayoutColumn | None:
    """Return the score that selected most of the states, or None without a dev score."""
    selected = Counter(
        c.latest.metric_for_best_model for c in members if c.latest.metric_for_best_model and not c.test_selected
    )
    if not selected:
        return None
    evaluator, _, metric = selected.most_common(1)[0][0].rpartition(".")
    return LayoutColumn(DEV, evaluator, metric)


def best_configurations(members: Sequence[Configuration], layout: ScoreLayout) -> list[tuple[Configuration, int]]:
    """Return the configuration of each recipe with the best mean dev score, and the number of its configurations.

    Configurations that are not stale precede stale ones, several seeds precede one. All experiments with the best
    settings are returned, and all configurations of a recipe that selects nothing by a dev score.
    """
    methods: dict[tuple[str, bool], list[Configuration]] = {}
    for configuration in members:
        key = configuration.origin or configuration.recipe, configuration.test_selected
        methods.setdefault(key, []).append(configuration)
    return [shown for of_one in methods.values() for shown in _best(of_one, layout)]


def _best(of_one: Sequence[Configuration], layout: ScoreLayout) -> list[tuple[Configuration, int]]:
    fresh = [one for one in of_one if not one.stale] or of_one
    dev = selecting_column(fresh)
    if dev is None:
        return [(one, 1) for one in fresh]

    def quality(configuration: Configuration) -> tuple[bool, float, float]:
        values = layout.values(configuration, dev)
        mean = fmean(values) if values else float("-inf")
        return len(configuration.seeds) > 1, mean, configuration.latest.finished.timestamp()

    best = max(fresh, key=quality).latest.recipe_hash
    count = len({one.latest.recipe_hash for one in fresh})
    return [(one, count) for one in fresh if one.latest.recipe_hash == best]
