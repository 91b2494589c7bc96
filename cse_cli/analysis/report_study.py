"""Report of a study: its cells in the paper's layout or their differences, its figure, and the cells without runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from statistics import fmean
from typing import Any

from cse_cli.analysis.compare import ComparisonDocument, compare_rows
from cse_cli.analysis.compare_view import (
    Part,
    baseline_of,
    interval_text,
    summary_legend,
    summary_lines,
    summary_parts,
)
from cse_cli.analysis.headlines import headlines
from cse_cli.analysis.leaderboard_view import missing_cells, table_parts
from cse_cli.analysis.pages import Report, SavedFigure
from cse_cli.analysis.paper_tables import StudyRuns, study_runs, study_table, trend
from cse_cli.analysis.rerun import commands, environment_facts, fingerprints, recipe_text
from cse_cli.analysis.verdict import p_text
from cse_cli.core.formatting import counted, mean_text, seed_list, signed
from cse_cli.core.results import Result
from cse_cli.core.stats import Paired
from cse_cli.core.tables import Table, plain_table
from cse_cli.recipe.cells import headings, paper_table, values
from cse_cli.recipe.files import name_of
from cse_cli.recipe.study import load_study, origins_of
from cse_cli.recipe.study_schema import Study
from cse_cli.recipe.trials import choices_table
from registry import papers
from registry.errors import CseError
from registry.papers import AVERAGE, reported_difference


def study_report(argument: str, results: Sequence[Result], tags: Mapping[str, str]) -> Report:
    """Return the report of a study. `tags` maps each run to the cell of the study for which it was started."""
    runs = study_runs(load_study(argument), results, tags)
    study, cells = runs.study, [cell for cell, _ in runs.cells]
    if not runs.any:
        raise CseError(f"no run of '{study.name}' has finished", f"cse run {argument}", code="report.no_finished_run")
    current = [result for of_cell in runs.current.values() for result in of_cell]
    figures = _figure(runs)
    cost = [(runs.tried, "trial"), (current, "run")]
    took = [f"{sum(run.seconds for run in of) / 3600:.1f} h for {counted(len(of), what)}" for of, what in cost if of]
    about_choices = f"Settings with the best mean dev score of {seed_list(study.tune_seeds)}. Other seeds score them:"
    report_values = {
        "study": study,
        "runs": runs,
        "finished": len(current),
        "paper": _paper_text(study),
        "sources": [(name_of(source.path), source.text) for source in origins_of(study.path).sources],
        "first": cells[0].label,
        "recipe": recipe_text(cells[0].load(study.seed_list[0]).recipe.resolved()),
        "scores": _scores_parts(runs),
        "reproduces": study.answers is not None and paper_table(study) is not None,
        "choices": [about_choices, choices_table(runs.choices)] if runs.choices else [],
        "gains": _gains_parts(runs),
        "differences": _differences_parts(runs, argument, results, tags),
        "figures": figures,
        "cells": _cells_table(runs),
        "cost": f"Training took {' and '.join(took)}, with its evaluations." if current else "",
        "environment": environment_facts(current, {}) if current else {},
        "packages": [],
        "fingerprints": fingerprints(current),
        "commands": commands(current, [f"cse run {Path(argument).name if Path(argument).is_absolute() else argument}"]),
    }
    return Report(study.title, "report_study.md.j2", report_values, figures)


def _paper_text(study: Study) -> str:
    """Return citation and table or figure that the study reproduces."""
    if study.answers is None:
        return ""
    key, identifier = study.answers
    paper = papers.load(key)
    shown = ""
    if figure := paper.figures.get(identifier):
        shown = f"Figure {figure.number}: {figure.caption}"
    elif table := paper.tables.get(identifier):
        shown = f"{table.title}: {table.caption}"
    return f"{paper.citation} {shown} {paper.url}"


def _scores_parts(runs: StudyRuns) -> list[Any]:
    """Return the paper's table with your scores, or the study's own rows and columns, as parts of a report."""
    study = runs.study
    if study.answers is not None and paper_table(study) is not None:
        return table_parts(study_table(runs, *study.answers))
    scores = values(study, [cell for cell, _ in runs.cells], runs.current)
    columns = headings(study, scores)
    rows = []
    for name, of_row in scores.items():
        seeds = max((len(numbers) for numbers in of_row.values()), default=0)
        constant = seeds > 1 and all(len(set(numbers)) == 1 for numbers in of_row.values())
        scored = (mean_text(of_row.get(column, [])) for column in columns)
        rows.append([name, "no seeds" if constant else str(seeds), *scored])
    table = plain_table(["", "n", *columns], rows, align="p" + "r" * (1 + len(columns)))
    missing = runs.missing()
    lines = missing_cells(missing, f"cse run {study.name}") if missing else []
    about = "n: number of seeds. No seeds: the scores do not depend on the seed. ±: sample standard deviation."
    return [table, (about, *lines)]


def _gains_parts(runs: StudyRuns) -> list[Any]:
    """Return the gains over the start of each row, by the first headline with both scores. Empty without one."""
    current = runs.current
    scores = values(runs.study, [cell for cell, _ in runs.cells], current)
    name, rows, gains, pairs = "", [], [], []
    for cell, _ in runs.cells:
        results = current.get(cell.hash, ())
        found = [one for run in results for one in headlines(run) if one.gain is not None]
        if not found or cell.resolved is None:
            continue
        evaluate, encoders = cell.resolved.evaluate, cell.resolved.encoders
        scored = encoders[evaluate.selection_encoder or evaluate.encoder]
        read = scored.params.get("eval_pooling") or scored.params.get("pooling") or scored.name
        name = found[0].name
        dev, gained = [one.score for one in found], [one.gain or 0.0 for one in found]
        start, seconds = fmean(dev) - fmean(gained), min(run.seconds for run in results)
        counts = (str(read), str(len(cell.resolved.views)), f"{seconds:.0f}")
        rows.append((fmean(gained), (cell.label, *counts, f"{start:.2f}", mean_text(dev), signed(fmean(gained)))))
        gains += gained
        pairs += [(fmean(of_row), fmean(dev)) for of_row in scores[cell.row].values() if of_row]
    if not rows:
        return []
    header = ["row", "read-out", "views", "time (s)", "start", name, "gain"]
    ordered = [cells for _, cells in sorted(rows, key=itemgetter(0), reverse=True)]
    below = sum(gain < 0 for gain, _ in rows)
    lines = [
        f"below their own start: {below} of {counted(len(rows), 'row')}, and the selected state of "
        f"{sum(gain < 0 for gain in gains)} of {counted(len(gains), 'run')}",
        "start: score before training; read-out: pooling of the scored encoder, or the component that reads it; "
        "views: texts that a step encodes; time: that of the fastest run, with its evaluations",
    ]
    if (along := trend(name, *map(list, zip(*pairs, strict=True)))) is not None:
        lines.append(f"rank correlation of {name} and score over {along.n} rows: {signed(along.rho)}")
    return [plain_table(header, ordered, align="plrrrrr"), lines]


def _differences_parts(runs: StudyRuns, argument: str, results: Sequence[Result], tags: Mapping[str, str]) -> list[Any]:
    """Return the differences from the first row: measured, reported, and in the study that this one extends.

    Without a comparison the reason. Empty for a study that reproduces a paper.
    """
    if runs.study.answers is not None:
        return []
    try:
        document = compare_rows(runs, argument, runs.study.score)
    except CseError as error:
        return [f"Not compared: {error.message}."]
    others = [*extended_parts(runs.study, document, results, tags), *reported_parts(runs.study, document)]
    return [*summary_parts(document), summary_legend(document), *others]


def _figure(runs: StudyRuns) -> list[SavedFigure]:
    from cse_cli.analysis.study_figures import study_figure  # imports matplotlib
    from cse_cli.core.plotting import as_svg

    svg = as_svg(lambda: study_figure(runs))
    return [SavedFigure(runs.study.name.rpartition("/")[2], runs.study.title, svg)] if svg else []


def _cells_table(runs: StudyRuns) -> Table:
    """Return recipe, settings, hash and finished seeds of each cell."""
    rows, current = [], runs.current
    for cell, _ in runs.cells:
        settings = [*(f"--set {text}" for text in cell.overrides), *(f"--unset {key}" for key in cell.unset)]
        seeds = ", ".join(str(result.seed) for result in current.get(cell.hash, ()))
        rows.append((cell.label, cell.recipe, " ".join(settings), cell.hash[:8], seeds or "none"))
    return plain_table(["", "recipe", "settings", "hash", "finished seeds"], rows)


def extended_parts(
    study: Study, document: ComparisonDocument, results: Sequence[Result], tags: Mapping[str, str]
) -> list[Part]:
    """Return the table of the rows that both studies compare, and how far they agree, as parts of a report.

    Empty if the study extends none, or the two do not compare by the same metric with the same first row.
    """
    sources = origins_of(study.path).sources
    if len(sources) == 1:
        return []
    extended = load_study(str(sources[1].path))
    name = extended.name
    try:
        other = compare_rows(study_runs(extended, results, tags), name, extended.score)
    except CseError:
        return []
    metric = document.comparisons[0].main.metric
    there = {line.name: line for line in summary_lines(other, metric) if line.tested is not None}
    pairs = [(there[line.name], line) for line in summary_lines(document, metric) if line.name in there]
    if not pairs or baseline_of(other) != baseline_of(document):
        return []
    rows = [(b.name, signed(a.difference), a.verdict, signed(b.difference), b.verdict) for a, b in pairs]
    same = sum(a.verdict == b.verdict for a, b in pairs)
    lines = [f"the same verdict in both: {same} of {counted(len(pairs), 'row')}"]
    along = trend(metric, [b.difference for _, b in pairs], [a.difference for a, _ in pairs])
    if along is not None and along.p is not None:
        lines.append(f"rank correlation over {along.n} rows: {signed(along.rho)} ({p_text(along.p)})")
    about = f"The same rows in {name}, which this study extends. Each study corrects for its own comparisons:"
    return [about, plain_table(["row", "there", "", "here", ""], rows, align="prlrl"), lines]


def reported_parts(study: Study, document: ComparisonDocument) -> list[Part]:
    """Return the table of reported and measured differences from the first row, as parts of a report.

    It has the rows that state a reported average, compared by the average of the seven sets. Empty if the first row
    states none.
    """
    of_row = {row.row: row.reported for _, row in study.placed_rows() if row.reported}
    baseline = of_row.get(study.rows[0].row) if study.rows else None
    names = {side.letter: side.name for side in document.sides}
    found: list[tuple[str, float, Paired]] = []
    for one in document.comparisons:
        recipe = of_row.get(names[one.second])
        if baseline and recipe and one.main.metric == AVERAGE:
            difference = reported_difference(recipe, baseline)
            if difference is not None:
                found.append((names[one.second], difference, one.main.over_seeds))
    if not found:
        return []
    found.sort(key=lambda one: -one[1])
    rows = [(name, signed(gap), signed(over.difference), interval_text(over)) for name, gap, over in found]
    gains = [(gap, over.low, over.high) for _, gap, over in found if gap > 0]
    excluded = sum(low is not None and high is not None and not low <= gap <= high for gap, low, high in gains)
    significant = sum(low is not None and low > 0 for _, low, _ in gains)
    lines = [
        f"reported gains: {len(gains)}; excluded by the interval: {excluded}; measured as a significant gain: "
        f"{significant}"
    ]
    along = trend(AVERAGE, [over.difference for _, _, over in found], [gap for _, gap, _ in found])
    if along is not None and along.p is not None:
        lines.append(
            f"rank correlation of reported and measured differences over {along.n} rows: {signed(along.rho)} "
            f"({p_text(along.p)})"
        )
    about = "Differences of the averages that papers report for the same methods, usually with one seed:"
    return [about, plain_table(["row", "reported", "here", "interval"], rows, align="prrr"), lines]
