"""Tables of one encoder: all reported and measured scores, or the community leaderboard with your runs.

The community leaderboard is a public list of published results.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from cse_cli.analysis.experiments import Experiment, mixed_environments, why_unreadable
from cse_cli.analysis.papers import (
    ReportedRow,
    ScoreColumn,
    ScoreLayout,
    encoder_of,
    find_reported_row,
    layouts,
    merge_equal,
    model_name,
    reported_for,
    reproductions_of,
    word_overlap_row,
)
from cse_cli.analysis.reproduced import verdict_note
from cse_cli.analysis.score_table import (
    Mark,
    Score,
    ScoreRow,
    ScoreTable,
    correct_row,
    score_against_reported,
    score_against_untrained,
    score_alone,
)
from cse_cli.core.results import STS_TASKS
from registry import papers
from registry.papers import AVERAGE, FieldRow

DEV = "dev"
"""Heading of the score that selected states and configurations. No paper reports it."""
SELECTED = "{}: {}. It selected the state of each run and, by its mean over seeds, the configuration of each recipe."
NO_FILE = "there is no recipe with this name, so the settings are not compared with its file"
UNREADABLE = "its recipe cannot be read, so the settings are not compared with its file: {}"
BEST_OF = "the best of {} configurations by the dev scores of these seeds, so it is not tested: run new seeds together"
COMMUNITY_LANGUAGE = "en"
"""Language of the list."""
ROUNDED = 0.015
"""Largest difference between a listed average and the mean of its cells that rounding explains."""

Chosen = Sequence[tuple[Experiment, int]]
"""Configurations to show, each with the number of configurations of which it is the best."""


def encoder_table(
    encoder: str, language: str, layout: ScoreLayout, members: Sequence[Experiment], *, every: bool = False
) -> ScoreTable:
    """Return all scores of an encoder, untrained encoders first. `every` shows all configurations of a recipe."""
    reported = reported_for(encoder, language, layout)
    known = [*merge_equal(reported), *reproductions_of((row.recipe for row in reported), layout)]
    chosen = _chosen(members, every=every)
    dev = selecting_column(members)
    columns = _columns(language, layout, members, dev)
    measured = [_measured(one, best_of, layout, columns) for one, best_of in chosen]

    def rank(row: ScoreRow) -> tuple[bool, float, str]:
        return *rank_by(layout.ranking, row), "" if layout.ranking else row.recipe or ""

    ranked = sorted([*known, *measured], key=rank)
    remarks: tuple[str, ...] = ()
    if dev is not None:
        headings = (column.heading for column in layout.columns if column.evaluator == dev.evaluator)
        remarks = (SELECTED.format(next(headings, dev.heading), f"{dev.evaluator}.{dev.metric}"),)
    open_recipes = [] if members else list(dict.fromkeys(row.recipe for row in ranked if row.recipe))
    return ScoreTable(
        kind="encoder",
        heading=f"{encoder} ({language}){layout.unit_text}",
        encoder=encoder,
        language=language,
        columns=tuple(column.heading for column in columns),
        ranking=layout.ranking,
        rows=(
            *_untrained(encoder, columns, chosen),
            *_with_empty(ranked, open_recipes),
            *word_overlap_row([one for one, _ in chosen], columns),
        ),
        remarks=remarks,
        command=f"cse run {' '.join(open_recipes)} --seeds 5" if open_recipes else None,
    )


def rank_by(heading: str, row: ScoreRow) -> tuple[bool, float]:
    """Return the sort key of a row: the highest score first, rows without it last."""
    score = row.scores.get(heading)
    return score is None, -score.mean if score else 0.0


def _columns(
    language: str, layout: ScoreLayout, members: Sequence[Experiment], dev: ScoreColumn | None
) -> list[ScoreColumn]:
    """Return the score that selected states, the layout's columns, then evaluators that no paper reports."""
    first = [dev] if dev is not None and dev.evaluator not in layout.evaluators else []
    known = {name for one in (layout, *layouts(language)) for name in one.evaluators}
    known |= {column.evaluator for column in first}
    names = dict.fromkeys(name for member in members for name in member.results[0].scores)
    return [*first, *layout.columns, *(ScoreColumn(name, name) for name in names if name not in known)]


def _measured(experiment: Experiment, best_of: int, layout: ScoreLayout, columns: Sequence[ScoreColumn]) -> ScoreRow:
    paper = experiment.latest.paper
    row = find_reported_row(paper.key, paper.table, paper.row) if paper else None
    reported = layout.reported_scores(row) if row else None
    metric = row.table.rows[row.name].score if row else None
    scores = _scores(experiment, layout, columns, reported, metric)
    return measured_row(experiment, scores, row, best_of, layout.ranking)


def _untrained(encoder: str, columns: Sequence[ScoreColumn], chosen: Chosen) -> Iterator[ScoreRow]:
    """Yield the encoder before training, one row for all recipes that give it the same scores."""
    found: dict[tuple[tuple[str, str], ...], list[tuple[Experiment, dict[str, Score]]]] = {}
    for experiment, _ in chosen:
        if experiment.latest.paper is None:
            values = {column.heading: column.values(experiment, "untrained") for column in columns}
            scores = {heading: score_alone(of_seeds) for heading, of_seeds in values.items() if of_seeds}
            key = tuple((heading, f"{score.mean:.2f}") for heading, score in scores.items())
            found.setdefault(key, []).append((experiment, scores))
    found.pop((), None)
    for equal in found.values():
        first, scores = equal[0]
        recipes = f" ({', '.join(experiment.recipe for experiment, _ in equal)})" if len(found) > 1 else ""
        yield ScoreRow(
            source="untrained",
            name=f"{encoder}, before training{recipes}",
            model=first.latest.model,
            language=first.latest.language,
            seeds=first.seeds if any(score.std is not None for score in scores.values()) else (),
            scores=scores,
        )


def _with_empty(rows: Sequence[ScoreRow], recipes: Sequence[str]) -> Iterator[ScoreRow]:
    """Yield rows, and below the fullest row of each recipe an empty row for its runs."""
    fullest = [
        max((row for row in rows if row.recipe == recipe), key=lambda row: len(row.scores)) for recipe in recipes
    ]
    empty = {"source": "measured", "reported_in": (), "scores": {}, "notes": ()}
    for row in rows:
        yield row
        if any(row is one for one in fullest):
            yield row.model_copy(update={**empty, "reproduces": row.name})


def measured_row(
    experiment: Experiment,
    scores: Mapping[str, Score],
    reproduces: ReportedRow | None = None,
    best_of: int = 1,
    primary: str = "",
) -> ScoreRow:
    """Return the row of an experiment, with the marks of its cells and the verdict on the row that it reproduces.

    Args:
        experiment: Runs of the row.
        scores: Heading → cell.
        reproduces: Reported row that the cells are compared with.
        best_of: Number of configurations of which this one has the best mean dev score.
        primary: Heading of the cell for the verdict. Empty for no verdict.
    """
    latest = experiment.latest
    notes = {
        NO_FILE: experiment.status == "missing",
        UNREADABLE.format(why_unreadable(latest) if experiment.status == "unreadable" else ""): (
            experiment.status == "unreadable"
        ),
        experiment.plan.text: experiment.plan.mode == "incomplete",
        BEST_OF.format(best_of): not experiment.fresh,
    }
    marks = {"stale": experiment.stale, "test_selected": experiment.test_selected}
    return ScoreRow(
        source="measured",
        name=latest.title,
        paper=reproduces.paper.key if reproduces else None,
        table=reproduces.identifier if reproduces else None,
        reproduces=reproduces.name if reproduces else None,
        recipe=experiment.recipe,
        copies=experiment.names[1:],
        recipe_hash=latest.recipe_hash,
        experiment=latest.experiment,
        settings=experiment.settings,
        configurations=best_of,
        model=latest.model,
        language=latest.language,
        seeds=experiment.seeds,
        scores={column: score.marked(**marks) for column, score in scores.items()},
        notes=(
            *(note for note, holds in notes.items() if holds),
            *experiment.notes,
            *mixed_environments(experiment.results),
            *([] if reproduces is None else verdict_note(experiment, reproduces, scores.get(primary))),
        ),
    )


def _scores(
    experiment: Experiment,
    layout: ScoreLayout,
    columns: Sequence[ScoreColumn],
    reported: Mapping[str, Score] | None,
    metric: str | None = None,
) -> dict[str, Score]:
    """Return the cells of one experiment, tested and corrected together.

    `columns` are those of the layout and others. `reported` maps headings to the cells to compare with, None compares
    with the untrained encoder. `metric` is that of the reported row, if it is not the one of its table.
    """
    scores = {}
    for plain in columns:
        column = replace(plain, metric=metric) if metric and plain in layout.columns else plain
        if values := column.values(experiment):
            before = column.values(experiment, "untrained") if reported is None else []
            if before:
                score = score_against_untrained(values, before, experiment.plan.mode)
            else:
                score = score_against_reported(values, (reported or {}).get(column.heading), experiment.plan.mode)
            judges = experiment.fresh and experiment.judges(column.evaluator)
            scores[column.heading] = score if judges else score.untested()
    return correct_row(scores, layout.ranking)


def selecting_column(members: Sequence[Experiment]) -> ScoreColumn | None:
    """Return the score that selected most of the states, or None without a dev score."""
    selected = Counter(
        c.latest.metric_for_best_model for c in members if c.latest.metric_for_best_model and not c.test_selected
    )
    if not selected:
        return None
    evaluator, _, metric = selected.most_common(1)[0][0].rpartition(".")
    return ScoreColumn(DEV, evaluator, metric)


def _chosen(members: Sequence[Experiment], *, every: bool) -> Chosen:
    """Return `every` experiment, or those of each recipe with the best mean dev score.

    Configurations that are not stale precede stale ones, several seeds precede one. All experiments with the best
    settings are returned, and all configurations of a recipe that selects nothing by a dev score.
    """
    if every:
        return [(one, 1) for one in members]
    methods: dict[tuple[str, bool], list[Experiment]] = {}
    for experiment in members:
        key = experiment.origin or experiment.recipe, experiment.test_selected
        methods.setdefault(key, []).append(experiment)
    return [shown for of_one in methods.values() for shown in _best(of_one)]


def _best(of_one: Sequence[Experiment]) -> Chosen:
    fresh = [one for one in of_one if not one.stale] or of_one
    dev = selecting_column(fresh)
    if dev is None:
        return [(one, 1) for one in fresh]

    def quality(experiment: Experiment) -> tuple[bool, float, float]:
        values = dev.values(experiment)
        mean = fmean(values) if values else float("-inf")
        return len(experiment.seeds) > 1, mean, experiment.latest.finished.timestamp()

    best = max(fresh, key=quality).latest.recipe_hash
    count = len({one.latest.recipe_hash for one in fresh})
    chosen = [one for one in fresh if one.latest.recipe_hash == best]
    return [(one if count == 1 else _with_fresh_seeds(one, fresh), count) for one in chosen]


def _with_fresh_seeds(one: Experiment, every: Sequence[Experiment]) -> Experiment:
    """Return an experiment with the seeds that were planned after all other runs, or else marked as not fresh.

    A test on the seeds that chose it among several configurations would find more differences than its level says.
    """
    plans = {result.plan.seeds: result.plan for result in one.results if result.plan is not None}
    for plan in sorted(plans.values(), key=lambda plan: plan.made, reverse=True)[:1]:
        planned = [result for result in one.results if result.plan is not None and result.plan.seeds == plan.seeds]
        others = [result for each in every for result in each.results if all(result is not own for own in planned)]
        made = min(result.plan.made for result in planned if result.plan is not None)
        if all(other.finished < made for other in others):
            return replace(one, results=tuple(planned))
    return replace(one, fresh=False)


def community_tables(ran: Sequence[Experiment], encoder: str | None = None, *, every: bool = False) -> list[ScoreTable]:
    """Return one table for each list and encoder. `every` shows all configurations, where a table has runs."""
    layout = next(one for one in layouts(COMMUNITY_LANGUAGE) if set(one.evaluators) == set(STS_TASKS))
    listed: dict[tuple[str, str], list[FieldRow]] = {}
    for row in papers.listed_rows():
        listed.setdefault((row.list, row.encoder), []).append(row)
    found = []
    for (which, name), rows in listed.items():
        place = (which, model_name(name))
        members = [one for one in ran if community_place(one) == place and layout.scored(one)]
        if encoder in (None, model_name(name)) and (members or not every):
            found.append(_community_table(which, layout, rows, _chosen(members, every=every)))
    return found


def community_place(experiment: Experiment) -> tuple[str, str]:
    """Return the list and the encoder under which it has runs, or would have them. GloVe is listed under BERT base."""
    if experiment.status != "other_model":
        for row in papers.listed_rows():
            if row.recipe in experiment.names:
                return row.list, model_name(row.encoder)
    return papers.COMMUNITY, encoder_of(experiment) if experiment.latest.language == COMMUNITY_LANGUAGE else ""


def community_encoder(experiment: Experiment) -> str:
    """Return the encoder under which a list has runs, or would have them."""
    return community_place(experiment)[1]


def _community_table(which: str, layout: ScoreLayout, listed: Sequence[FieldRow], chosen: Chosen) -> ScoreTable:
    """Return the rows ranked by average, with each measured row below the row that its recipe reproduces."""

    def measured(experiment: Experiment, best_of: int, row: ScoreRow | None, metric: str | None) -> ScoreRow:
        scores = _scores(experiment, layout, layout.columns, row.scores if row else {}, metric)
        made = measured_row(experiment, scores, None, best_of)
        return made.model_copy(update={"reproduces": row.name if row else None})

    blocks, others = [], list(chosen)
    for field in listed:
        row = _listed_row(field, layout)
        below = [one for one in chosen if one[0].status != "other_model" and field.recipe in one[0].names]
        blocks.append([row, *(measured(*one, row, field.score) for one in below)])
        others = [one for one in others if one not in below]
    blocks += [[measured(*one, None, None)] for one in others]
    blocks.sort(key=lambda block: rank_by(layout.ranking, block[0]))
    encoder = listed[0].encoder
    return ScoreTable(
        kind="community",
        heading=f"{encoder}: {papers.LISTS[which]}{layout.unit_text}",
        encoder=model_name(encoder),
        language=COMMUNITY_LANGUAGE,
        table=which,
        columns=tuple(column.heading for column in layout.columns),
        ranking=layout.ranking,
        rows=(
            *(row for block in blocks for row in block),
            *word_overlap_row([one for one, _ in chosen], layout.columns),
        ),
    )


def _listed_row(listed: FieldRow, layout: ScoreLayout) -> ScoreRow:
    cells = listed.cells | {AVERAGE: listed.avg}
    doubts: tuple[Mark, ...] = ("doubtful",) if abs(listed.avg - listed.avg_recomputed) > ROUNDED else ()
    return ScoreRow(
        source="community",
        name=listed.method,
        reported_in=(papers.LISTS[listed.list],),
        recipe=listed.recipe or None,
        model=model_name(listed.encoder),
        language=COMMUNITY_LANGUAGE,
        scores={
            column.heading: Score(
                mean=cells[column.evaluator],
                std=listed.spreads.get(column.evaluator),
                marks=doubts if column.evaluator == AVERAGE else (),
            )
            for column in layout.columns
            if column.evaluator in cells
        },
        notes=(listed.note,) if listed.note else (),
    )
