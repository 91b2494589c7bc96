"""Tables of `cse leaderboard`: all scores of each encoder, the papers' own tables, or the community leaderboard."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from cse_cli.analysis.elsewhere import read_elsewhere
from cse_cli.analysis.experiments import Experiment, FinishedRuns, group
from cse_cli.analysis.origins import is_of_recipe
from cse_cli.analysis.papers import (
    ScoreColumn,
    ScoreLayout,
    encoder_of,
    group_by_layout,
    layouts,
    merge_equal,
    model_name,
    reported_encoders,
    reported_for,
    reported_row,
    reported_rows,
    reproductions_of,
    scores_its_name,
    table_of,
)
from cse_cli.analysis.score_table import Mark, Score, ScoreRow, ScoreTable, measure
from cse_cli.analysis.tables import Cells, build, measured_row, paper_table, rank_by, study_runs, study_table
from cse_cli.core.formatting import grouped
from cse_cli.core.results import STS_TASKS, Result
from cse_cli.recipe.files import all_recipes, find, recipe_name
from cse_cli.recipe.study import studies_of
from registry import papers
from registry.errors import CseError, UnknownNameError, suggestion
from registry.papers import AVERAGE, FieldRow
from registry.paths import is_file

DEV = "dev"
"""Heading of the score that selected states and configurations. No paper reports it."""
SELECTED = "{}: {}. It selected the state of each run and, by its mean over seeds, the configuration of each recipe."
COMMUNITY_LANGUAGE = "en"
"""Language of the list."""
COMMUNITY_SOURCE = "https://github.com/Doragd/Awesome-Sentence-Embedding @ e0c8e45"
"""Source of the rows that name none."""
ROUNDED = 0.015
"""Largest difference between a listed average and the mean of its cells that rounding explains."""


@dataclass(frozen=True)
class LeaderboardQuery:
    """Selection of tables and runs: the options of `cse leaderboard`.

    `elsewhere` names results made elsewhere, as `read_elsewhere` reads them. No other option selects among them.
    """

    paper: str | None = None
    table: str | None = None
    encoder: str | None = None
    language: str | None = None
    recipes: Sequence[str] = ()
    community: bool = False
    pool: bool = False
    elsewhere: Sequence[str] = ()

    @property
    def encoder_name(self) -> str | None:
        """The papers' name of the encoder."""
        return None if self.encoder is None else model_name(self.encoder)

    @property
    def by_paper(self) -> bool:
        """Whether the tables are those of papers."""
        return self.paper is not None or self.table is not None


def score_tables(runs: FinishedRuns, query: LeaderboardQuery) -> list[ScoreTable]:
    """Return the selected tables. Unknown names are errors."""
    if query.community and query.by_paper:
        action = "omit one of them; --encoder and --recipe can be combined with both"
        raise _conflict("--community cannot be combined with --paper or --table", action)
    if query.elsewhere and (query.by_paper or query.recipes):
        action = "omit one of them; results made elsewhere have no recipe"
        raise _conflict("--results cannot be combined with --paper, --table or --recipe", action)
    elsewhere = [one for argument in query.elsewhere for one in read_elsewhere(argument)]
    for recipe in query.recipes:
        if not any(is_of_recipe(one, recipe) for one in runs.results) and not is_file(find(recipe)):
            names = [*(recipe_name(one.recipe) for one in runs.results), *all_recipes()]
            raise UnknownNameError(
                f"--recipe '{recipe}': no run and no recipe has this name.{suggestion(recipe_name(recipe), names)}",
                "run `cse list recipes` to list all",
                code="leaderboard.unknown_recipe",
            )
    languages = [*(one.language for one in runs.results), *(row.language for row in reported_rows())]
    _check_name(query.language, query.language, languages, "language", code="leaderboard.unknown_language")
    selected = [one for one in runs.results if query.language in (None, one.language)]
    if query.recipes:
        selected = [one for one in selected if any(is_of_recipe(one, recipe) for recipe in query.recipes)]
    ran = [*group(replace(runs, results=selected), pool=query.pool), *elsewhere]
    if query.encoder is not None:
        encoders = [*reported_encoders(), *map(encoder_of, ran)]
        _check_name(query.encoder, query.encoder_name, encoders, "encoder", code="leaderboard.unknown_encoder")
        place = (lambda one: community_place(one)[1]) if query.community else encoder_of
        ran = [one for one in ran if place(one) == query.encoder_name]
    every = bool(query.recipes)
    if query.community:  # and tables of encoders that it does not list
        listed = query.language in (None, COMMUNITY_LANGUAGE)
        tables = community_tables(ran, query.encoder_name, every=every) if listed else []
        known = {model_name(row.encoder) for row in papers.field_rows()}
        return tables + encoder_tables([one for one in ran if community_place(one)[1] not in known], every=every)
    if not query.by_paper:
        tables = encoder_tables(ran, every=every)
        return tables if tables or query.recipes else reported_tables(query)
    found = FinishedRuns([result for one in ran for result in one.results], runs.tags)
    tables = []
    for address in find_tables(query.paper, query.table):
        # The studies with the paper's encoders come first.
        of_paper = sorted(studies_of(*address), key=lambda study: (study.name.count("/"), study.name))
        studies = [study_runs(one, found, pool=query.pool) for one in of_paper]
        started = [study for study in studies if study.experiments]
        tables += [study_table(study, *address) for study in started]
        in_studies = {cell.hash for study in started for cell, _ in study.cells}
        table = paper_table(*address, [one for one in ran if one.latest.recipe_hash not in in_studies])
        has_runs = any(row.source == "measured" for row in table.rows)
        if has_runs or (not started and (query.table is not None or not runs.results)):
            commands = "; ".join(f"cse run {study.name}" for study in of_paper)
            tables.append(table.model_copy(update={"command": commands or None}))
    filtered, encoder, language = [], query.encoder_name, query.language
    for table in tables:  # without reported rows of another encoder or language
        rows = tuple(
            row
            for row in table.rows
            if row.source == "measured"
            or (encoder in (None, row.model, table.encoder) and language in (None, row.language or language))
        )
        filtered += [table.model_copy(update={"rows": rows})] if rows else []
    return filtered


def _conflict(message: str, action: str) -> CseError:
    return CseError(message, action, code="leaderboard.conflicting_options")


def _check_name(given: str | None, name: str | None, names: Iterable[str | None], option: str, *, code: str) -> None:
    """Reject the value of an option that no run and no reported row has."""
    known = sorted({one for one in names if one})
    if given is not None and name not in known:
        raise UnknownNameError(
            f"--{option} '{given}': no run and no paper has this {option}.{suggestion(given, known)}",
            f"use one of: {', '.join(known[:5])}{', …' if len(known) > 5 else ''}",
            code=code,
        )


def encoder_tables(ran: Sequence[Experiment], *, every: bool = False) -> list[ScoreTable]:
    """Return one table for each encoder, language and kind of scores. `every` shows all configurations of a recipe."""
    groups = grouped(ran, lambda one: (encoder_of(one), one.latest.language))
    return [
        encoder_table(encoder, language, layout, members, every=every)
        for (encoder, language), of_one in groups.items()
        for layout, members in group_by_layout(language, of_one)
    ]


def reported_tables(query: LeaderboardQuery) -> list[ScoreTable]:
    """Return the reported rows of the selected encoder and language, with the commands that reproduce them."""
    rows = Counter((row.model, row.language) for row in reported_rows() if row.model and row.language)
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
    if query.community or query.recipes or query.encoder is not None or query.language is not None:
        return tables, []
    shown = [table for table in tables if any(row.source == "measured" and row.scores for row in table.rows)]
    if not any(row.source == "paper" for table in shown for row in table.rows):
        shown += reported_tables(query)[:1]
    known = [row.model for row in reported_rows() if row.model]
    return shown, list(dict.fromkeys(name for name in known if all(table.encoder != name for table in shown)))


def find_tables(paper: str | None, table: str | None) -> list[tuple[str, str]]:
    """Return the paper and the identifier of each selected table.

    `table` is "ifcl/5" for a number, "ifcl/queue_length" or "queue_length" for an identifier.
    """
    key, slash, name = (table or "").rpartition("/")
    if slash and paper not in (None, key):
        raise _conflict(f"--paper '{paper}' and --table '{table}' name different papers", "omit --paper")
    keys = [key] if slash else papers.names() if paper is None else [paper]
    every = {(of, identifier): found for of in keys for identifier, found in papers.load(of).tables.items()}
    if table is None:
        return list(every)
    one = papers.load(keys[0]) if len(keys) == 1 else None
    numbers = {address: str(found.number) for address, found in every.items() if one and found.number is not None}
    numbered = [address for address, number in numbers.items() if number == name]
    if found_here := numbered or [address for address in every if address[1] == name]:
        return found_here
    if one and (figure := one.figures.get(name)):
        commands = [f"`cse run {answer.text}`" for answer in figure.answers if answer.kind != "reason"]
        raise CseError(
            f"--table '{one.key}/{name}' is a figure ({one.short}, Figure {figure.number}), not a table",
            f"run {', '.join(commands)} to draw it" if commands else figure.not_reproduced_because,
            code="leaderboard.figure",
        )
    known = list(dict.fromkeys([*(identifier for _, identifier in every), *numbers.values()]))
    raise UnknownNameError(
        f"--table: there is no table '{name}'{f' in {one.short}' if one else ''}.{suggestion(name, known)}",
        f"use a number or an identifier, for example ifcl/5 or ifcl/queue_length; known: {', '.join(known[:5])}, …",
        code="leaderboard.unknown_table",
    )


def encoder_table(
    encoder: str, language: str, layout: ScoreLayout, members: Sequence[Experiment], *, every: bool = False
) -> ScoreTable:
    """Return all scores of an encoder, untrained encoders first. `every` shows all configurations of a recipe."""
    reported = reported_for(encoder, language, layout)
    known = [*merge_equal(reported), *reproductions_of((row.recipe for row in reported), layout)]
    chosen, dev = chosen_by_dev(members, every=every), selecting_column(members)
    columns, primary = _columns(language, layout, members, dev), layout.ranking
    known.sort(key=lambda row: rank_by(primary, row))
    open_recipes = [] if members else list(dict.fromkeys(row.recipe for row in known if row.recipe))
    of_recipes = [[row for row in known if row.recipe == recipe] for recipe in open_recipes]
    fullest = {id(max(rows, key=lambda row: len(row.scores))) for rows in of_recipes}
    blocks: list[list[ScoreRow]] = []
    for row in known:
        empty = {"source": "measured", "reported_in": (), "scores": {}, "notes": (), "reproduces": row.name}
        blocks.append([row, row.model_copy(update=empty)] if id(row) in fullest else [row])
    for experiment in chosen:
        own = reported_row(experiment.latest.paper)
        of_row = layout.in_metric(columns, table_of(own).rows[own.name].score) if own else columns
        cells = Cells(experiment, of_row, layout.reported_scores(own) if own else None)
        blocks.append([measured_row([cells], primary, own)])
    remarks: tuple[str, ...] = ()
    if dev is not None:
        headings = (column.heading for column in layout.columns if column.evaluator == dev.evaluator)
        remarks = (SELECTED.format(next(headings, dev.heading), f"{dev.evaluator}.{dev.metric}"),)
    return build(
        blocks,
        columns,
        chosen,
        primary,
        first=_untrained(encoder, columns, chosen),
        kind="encoder",
        heading=f"{encoder}{language and f' ({language})'}{layout.unit}",
        encoder=encoder,
        language=language,
        remarks=remarks,
        command=f"cse run {' '.join(open_recipes)} --seeds 5" if open_recipes else None,
    )


def _columns(
    language: str, layout: ScoreLayout, members: Sequence[Experiment], dev: ScoreColumn | None
) -> list[ScoreColumn]:
    """Return the score that selected states, the layout's columns, then evaluators that no paper reports, by data."""
    first = [dev] if dev is not None and dev.evaluator not in layout.evaluators else []
    known = {name for one in (layout, *layouts(language)) for name in one.evaluators}
    known |= {column.evaluator for column in first}
    own = {column.evaluator for column in layout.columns if column.data is not None}
    others: dict[str, dict[tuple[str, ...], Result]] = {}
    for member in members:
        for name in member.latest.scores:
            if name not in own and (name not in known or not scores_its_name(member.latest, name)):
                others.setdefault(name, {}).setdefault(member.latest.data_of(name), member.latest)
    found = [*first, *layout.columns]
    for name, each in others.items():
        for data, result in each.items():
            alone = len(each) == 1 and name not in known
            heading = name if alone else f"{name} ({', '.join(result.scored_on.get(name, ['unknown data']))})"
            found.append(ScoreColumn(heading, name, data=data))
    return found


def _untrained(encoder: str, columns: Sequence[ScoreColumn], chosen: Sequence[Experiment]) -> Iterator[ScoreRow]:
    """Yield the encoder before training, one row for all recipes that give it the same scores."""
    found: dict[tuple[tuple[str, str], ...], list[tuple[Experiment, dict[str, Score]]]] = {}
    for experiment in chosen:
        if experiment.latest.paper is None:
            values = {column.heading: column.values(experiment, "untrained") for column in columns}
            scores = {heading: measure(of_seeds) for heading, of_seeds in values.items() if of_seeds}
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


def selecting_column(members: Sequence[Experiment]) -> ScoreColumn | None:
    """Return the score that selected most of the states, with its data, or None without a dev score."""
    selected = Counter(
        (evaluator, metric, c.latest.data_of(evaluator))
        for c in members
        for evaluator, _, metric in [(c.latest.metric_for_best_model or "").rpartition(".")]
        if metric and not c.test_selected
    )
    if not selected:
        return None
    evaluator, metric, data = selected.most_common(1)[0][0]
    return ScoreColumn(DEV, evaluator, metric, data=data)


def chosen_by_dev(members: Sequence[Experiment], *, every: bool) -> list[Experiment]:
    """Return `every` experiment, or those of each recipe with the best mean dev score.

    Configurations that are not stale precede stale ones, several seeds precede one. All experiments with the best
    settings are returned, and all configurations of a recipe that selects nothing by a dev score.
    """
    if every:
        return list(members)
    methods = grouped(members, lambda one: (one.origin or one.recipe, one.test_selected))
    return [shown for of_one in methods.values() for shown in _best(of_one)]


def _best(of_one: Sequence[Experiment]) -> Sequence[Experiment]:
    current = [one for one in of_one if not one.stale] or of_one
    dev, count = selecting_column(current), len({one.latest.recipe_hash for one in current})
    if dev is None or count == 1:
        return current
    new = [_new_seeds(one, current) for one in current]

    def quality(place: int) -> tuple[bool, float, float]:
        one = current[place]
        chose = replace(one, results=tuple(run for run in one.results if run.seed not in new[place]))
        values = dev.values(chose) if chose.results else []
        mean = fmean(values) if values else float("-inf")
        return len(chose.seeds) > 1, mean, one.latest.finished.timestamp()

    best = current[max(range(len(current)), key=quality)].latest.recipe_hash
    found = []
    for one, seeds in zip(current, new, strict=True):
        if one.latest.recipe_hash == best:
            tested = tuple(run for run in one.results if run.seed in seeds)
            found.append(replace(one, results=tested or one.results, best_of=count, fresh=bool(tested)))
    return found


def _new_seeds(one: Experiment, every: Sequence[Experiment]) -> set[int]:
    """Return the seeds that were planned after all other runs had finished, some of them with the same settings.

    They do not choose a configuration, so a test on them has its level. On the seeds that chose it among several, a
    test would find more differences.
    """
    plans = [result.plan for result in one.results if result.plan is not None]
    if len(every) == 1 or not plans:
        return set()
    last = max(plans, key=lambda plan: plan.made)
    planned = [result for result in one.results if result.plan is not None and result.plan.seeds == last.seeds]
    own = [(result.recipe_hash, result.plan) for result in planned]  # also on other test data
    others = [run for each in every for run in each.results if (run.recipe_hash, run.plan) not in own]
    made = min(result.plan.made for result in planned if result.plan is not None)
    chosen = any(other.recipe_hash == one.latest.recipe_hash for other in others)
    return {run.seed for run in planned} if chosen and all(other.finished < made for other in others) else set()


def community_tables(ran: Sequence[Experiment], encoder: str | None = None, *, every: bool = False) -> list[ScoreTable]:
    """Return one table for each list and encoder, ranked by average, with your runs below the row that they reproduce.

    `every` shows all configurations, where a table has runs.
    """
    layout = next(one for one in layouts(COMMUNITY_LANGUAGE) if set(one.evaluators) == set(STS_TASKS))
    found = []
    for (which, name), rows in grouped(papers.listed_rows(), lambda row: (row.list, row.encoder)).items():
        members = [one for one in ran if community_place(one) == (which, model_name(name)) and layout.scored(one)]
        if encoder not in (None, model_name(name)) or (every and not members):
            continue
        chosen, primary = chosen_by_dev(members, every=every), layout.ranking
        blocks, others = [], chosen
        for given in rows:
            row, columns = _listed_row(given, layout), layout.in_metric(layout.columns, given.score)
            below = [one for one in chosen if one.status != "other_model" and given.recipe in one.names]
            cells = [Cells(one, columns, row.scores) for one in below]
            blocks.append([row, *(measured_row([one], primary, row) for one in cells)])
            others = [one for one in others if one not in below]
        blocks += [[measured_row([Cells(one, layout.columns, {})], primary)] for one in others]
        table = build(
            blocks,
            layout.columns,
            chosen,
            primary,
            kind="community",
            heading=f"{name}: {papers.LISTS[which]}{layout.unit}",
            encoder=model_name(name),
            language=COMMUNITY_LANGUAGE,
            table=which,
            remarks=(f"source: {'; '.join(dict.fromkeys(one.source or COMMUNITY_SOURCE for one in rows))}",),
        )
        found.append(table)
    return found


def community_place(experiment: Experiment) -> tuple[str, str]:
    """Return the list and the encoder under which it has runs, or would have them. GloVe is listed under BERT base."""
    if experiment.status != "other_model":
        for row in papers.listed_rows():
            if row.recipe in experiment.names:
                return row.list, model_name(row.encoder)
    return papers.COMMUNITY, encoder_of(experiment) if experiment.latest.language == COMMUNITY_LANGUAGE else ""


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
