"""`cse report`: the report of a run or a study, with the commands that run it again, and the file that is written."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from statistics import fmean
from typing import Any

from cse_cli.analysis.compare import ComparisonDocument, compare, compare_rows
from cse_cli.analysis.compare_view import (
    Part,
    baseline_of,
    comparison_parts,
    interval_text,
    summary_legend,
    summary_lines,
    summary_parts,
)
from cse_cli.analysis.experiments import (
    Experiment,
    FinishedRuns,
    by_seed,
    differences,
    group,
    mixed_environments,
    read_finished_runs,
)
from cse_cli.analysis.methods import find_method, find_methods, names_run
from cse_cli.analysis.origins import read_resolved
from cse_cli.analysis.pages import HTML, MARKDOWN, Report, SavedFigure, figures_directory, write_pages
from cse_cli.analysis.papers import reported_row
from cse_cli.analysis.reproduced import compare_with_reproductions
from cse_cli.analysis.table_view import table_parts
from cse_cli.analysis.tables import StudyRuns, own_table, paper_table, seeds_table, study_runs, study_table
from cse_cli.core.formatting import counted, distinct, grouped, mean_text, seed_list, signed, to_toml
from cse_cli.core.results import PaperRow, Result
from cse_cli.core.stats import Paired, p_text, trend
from cse_cli.core.tables import plain_table
from cse_cli.recipe import cells
from cse_cli.recipe.changes import changes_table, rerun, without_directories
from cse_cli.recipe.files import name_of
from cse_cli.recipe.study import Study, find_study, load_study, origins_of
from cse_cli.recipe.trials import choices_table
from cse_cli.runs.events import read_history
from cse_cli.runs.index import RecordedRun, all_runs, find_run, read_run
from cse_cli.runs.record import ENVIRONMENT, folder_of
from cse_cli.runs.scores import headlines, main_metrics, metric_value
from registry import papers
from registry.errors import CseError
from registry.papers import AVERAGE, reported_difference

CURVE = "training_curve"
DIGEST = 16
"""Number of characters of a fingerprint in a report. `result.json` contains all of them."""
ADDRESS = re.compile(r"[/\\]|://")
"""Pattern of values that contain a directory or a server. A report omits them because they are private."""


def write_report(argument: str, output: Path | None, baseline: str | None, *, force: bool) -> Path:
    """Write the report of a run or a study and return its file. `output` of None is a name in the working directory.

    `argument` is the prefix of a run's ID, the name of a run, the name or path of a recipe or study, or `recipe@seed`.
    """
    study = find_study(argument)
    if study is not None and baseline is not None:
        raise CseError(
            f"--baseline '{baseline}' cannot be combined with study '{argument}'",
            f"omit --baseline, or compare two recipes: cse compare {baseline} RECIPE",
            code="report.baseline_of_study",
        )
    finished = read_finished_runs()
    run_id = "" if study is not None else find_reported_run(argument, finished.results)
    path = output or Path(f"report-{run_id[:8] if study is None else study.stem}.html")
    is_html, is_markdown = path.suffix.lower() in HTML, path.suffix.lower() in MARKDOWN
    if not is_html and not is_markdown:
        raise CseError(f"--output: '{path}' is not .html or .md", "use report.html or report.md", code="report.format")
    if path.is_dir():
        raise CseError(f"--output: '{path}' is a directory", f"use {path}/report.html", code="report.is_directory")
    if not path.parent.is_dir():
        raise CseError(
            f"--output: directory '{path.parent}' does not exist", f"mkdir {path.parent}", code="report.no_directory"
        )
    for existing in filter(Path.exists, [path, figures_directory(path)] if is_markdown else [path]):
        if not force:
            raise CseError(
                f"'{existing}' already exists",
                "add --force to overwrite it, or choose another --output",
                code="report.exists",
            )
    report = run_report(run_id, baseline, finished.results) if study is None else study_report(argument, finished)
    try:
        write_pages(report, path)
    except OSError as error:
        raise CseError(
            f"--output: cannot write '{error.filename or path}': {error.strerror}",
            "choose a file in a writable directory",
            code="report.cannot_write",
        ) from error
    return path


def find_reported_run(argument: str, results: Sequence[Result]) -> str:
    """Return the ID of the run with this ID prefix or name, or of the newest run that `cse compare` has of a recipe."""
    known = all_runs()
    if names_run(argument, known):
        return find_run(argument, known).run_id
    return str(find_method(argument, results).latest.run_id)


def run_report(run_id: str, baseline: str | None, results: Sequence[Result]) -> Report:
    """Return the report of a run, compared with a baseline (recipe or run) if there is one."""
    run = read_run(run_id)
    if (result := run.result) is None:
        raise CseError(
            f"run {run.about.short} has no scores to report: {run.unreadable or run.state}",
            "choose a finished run: cse runs ls --status finished",
            code="report.no_scores",
        )
    resolved, noted = read_resolved(run_id), dict[str, Any]()
    with suppress(OSError, ValueError):
        noted = dict(json.loads((folder_of(run_id) / ENVIRONMENT).read_text(encoding="utf-8")))
    candidates = [
        (one, "; ".join(differences(one, result))) for one in results if one.recipe_hash == result.recipe_hash
    ]
    left_out = [f"Seed {one.seed} is not included: {differing}." for one, differing in candidates if differing]
    same = {**by_seed(one for one, differing in candidates if not differing), result.seed: result}
    # The paper's row may be newer than some of the seeds.
    of_row = [same[seed].model_copy(update={"paper": result.paper}) for seed in sorted(same)]
    (own,) = group(FinishedRuns(of_row, changes={run_id: run.about.changes}))
    own = replace(own, letter="B", name=f"{result.recipe} (this report)")
    other = None if baseline is None else _find_baseline(run, own, baseline, results)
    seeds, comparison = list(own.seeds), [] if other is None else comparison_parts(compare([other, own]))
    how = rerun(result, resolved, [result.seed])
    repeats = [how.command] if len(seeds) == 1 else [how.command, rerun(result, resolved, seeds).command]
    variables: dict[str, str] = noted.get("settings") or {}
    settings = {name: value for name, value in variables.items() if value and not ADDRESS.search(value)}
    assignments = "".join(f"{name}={shlex.quote(value)} " for name, value in settings.items())
    whose, drawn = f"{result.title}, seed {result.seed}", list[SavedFigure]()
    for file in sorted((folder_of(run_id) / "figures").glob("*.svg")):
        if content := file.read_bytes():
            drawn.append(SavedFigure(file.stem, f"{file.stem.replace('_', ' ').capitalize()}: {whose}", content))
    drawn += [*_curves_of_all_seeds(result, own, other), *_losses(run_id, whose)]
    in_training = {CURVE, "training_curves_of_all_seeds", "loss"}
    names = dict.fromkeys(name for one in own.results for name in one.measures)
    measures = [
        (name, mean_text([one.measures[name] for one in own.results if name in one.measures])) for name in names
    ]
    values = {
        "run": run,
        "resolved": resolved,
        "result": result,
        "seeds": seeds,
        "how": how,
        "changes": changes_table(how.changes or (), ("current file", "this run")),
        "recipe": to_toml(without_directories(resolved)) if resolved else "",
        "scores": table_parts(seeds_table(own)),
        "remarks": [*_remarks(run, own), *left_out],
        "paper": _paper_parts(own, result.paper),
        "distributions": compare_with_reproductions(own.results, notes=True),
        "baseline": other and other.name,
        "comparison": comparison,
        "training_figures": [figure for figure in drawn if figure.name in in_training],
        "other_figures": [figure for figure in drawn if figure.name not in in_training],
        "measures": plain_table(["", "mean ± standard deviation over the seeds"], measures) if measures else None,
        "results": [result],
        "noted": noted,
        "settings": settings,
        "fingerprints": fingerprints(own.results),
        "directories": [name for name in ("CSE_DATA", "CSE_MODELS") if variables.get(name)],
        "commands": commands([result], [f"{assignments}{command}" for command in repeats]),
    }
    return Report(result.title, "report_run.md.j2", values, drawn)


def _find_baseline(run: RecordedRun, own: Experiment, argument: str, results: Sequence[Result]) -> Experiment:
    """Return the baseline with all finished runs of its experiment, or with one run for `recipe@seed`."""
    if find_study(argument) is not None:
        raise CseError(f"--baseline '{argument}' is a study", "name a recipe or a run", code="report.baseline_is_study")
    known = [*(one for one in results if one.run_id != run.run_id), *filter(None, [run.result])]
    (found, _), _ = find_methods([argument, run.run_id], FinishedRuns(known))
    experiment = found.latest.experiment
    if experiment == own.latest.experiment:
        raise CseError(
            f"--baseline: '{found.name}' is the same experiment as run {run.about.short}",
            "choose another recipe, or a run of one",
            code="report.same_experiment",
        )
    if len(found.runs) > 1 or (argument.rpartition("@")[2].isdecimal() and "@" in argument):
        return found
    same = {**by_seed(one for one in results if one.experiment == experiment), found.latest.seed: found.latest}
    return replace(found, name=found.latest.recipe, results=tuple(same[seed] for seed in sorted(same)))


def _remarks(run: RecordedRun, runs: Experiment) -> Iterator[str]:
    """Yield notes that a reader needs before comparing the scores."""
    result = runs.runs[run.result.seed] if run.result else runs.latest
    metrics = grouped(main_metrics(result.scores), lambda evaluator: next(iter(result.scores[evaluator])))
    names = [f"{metric} of {', '.join(of)}" if len(metrics) > 1 else metric for metric, of in metrics.items()]
    yield f"Main metric of each evaluator: {'; '.join(names)}."
    if all(metric_value(one.scores, AVERAGE) is not None for one in runs.results):
        yield "Avg: mean of the seven English test sets, each rounded to two decimals first, as in the papers."
    if result.metric_for_best_model is not None:
        yield f"{result.metric_for_best_model} selected the scored checkpoint, so its own score is optimistic."
    if search := run.about.search:
        yield f"This run is a trial of the search {search}. The best of many trials is not a result."
    if runs.test_selected:
        yield "A test split selected the checkpoint, so the scores are optimistic."
    yield from mixed_environments(runs.results)


def _paper_parts(runs: Experiment, recorded: PaperRow | None) -> list[Any]:
    """Return the reported row that the recipe reproduces with your seeds below it, as parts of a report."""
    if (row := reported_row(runs.latest.paper)) is not None:
        key = str(row.paper)
        table, source = paper_table(key, str(row.table), [runs]), papers.load(key)
        kept = tuple(line for line in table.rows if row.name in (line.reproduces, line.name))
        return [*table_parts(table.model_copy(update={"rows": kept})), f"{source.citation} {source.url}"]
    if recorded is None:
        return []
    address = f"{recorded.key}, {recorded.table}, {recorded.row}"
    return [f"Not compared with {address}: the model differs, or the table no longer has this row."]


def _curves_of_all_seeds(result: Result, own: Experiment, other: Experiment | None) -> list[SavedFigure]:
    """Return the dev score by step over all seeds, with the baseline's. Empty for a single curve."""
    from cse_cli.analysis.study_figures import curve_of, draw_curves  # imports matplotlib
    from cse_cli.core.plotting import Heading, as_svg, metric_name

    metric = result.metric_for_best_model
    groups = {result.recipe: own.results, **({other.name: other.results} if other else {})}
    curves = []
    for name, results in groups.items():
        curve = curve_of(name, [one for one in results if one.curve and one.metric_for_best_model == metric])
        curves += [replace(curve, before=())] if curve is not None else []
    if metric is None or sum(len(curve.scores) for curve in curves) < 2:
        return []
    seeds = " and ".join(str(len(curve.scores)) for curve in curves)
    names = ", ".join(curve.label for curve in curves)
    heading = Heading(f"Training curves: {metric}", names, f"{seeds} seeds, mean ± std")
    svg = as_svg(lambda: draw_curves(curves, "step", metric_name(metric), heading))
    return [SavedFigure("training_curves_of_all_seeds", heading.title, svg)]


def _losses(run_id: str, whose: str) -> list[SavedFigure]:
    from cse_cli.analysis.figures import loss_curves  # imports matplotlib
    from cse_cli.core.plotting import Heading, as_svg

    metrics = read_history(folder_of(run_id)).metrics
    recorded = {name: sorted(values.items()) for name, values in metrics.items() if len(values) > 1}
    if (whole := recorded.get("train/loss")) is None:
        return []
    parts = {name.removeprefix("loss/"): points for name, points in recorded.items() if name.startswith("loss/")}
    return [SavedFigure("loss", "Loss by step", as_svg(lambda: loss_curves(whole, parts, Heading("Loss", whose))))]


def study_report(argument: str, finished: FinishedRuns) -> Report:
    """Return the report of a study."""
    from cse_cli.analysis.study_figures import study_figure  # imports matplotlib
    from cse_cli.core.plotting import as_svg

    runs = study_runs(load_study(argument), finished)
    study = runs.study
    if not runs.experiments:
        raise CseError(f"no run of '{study.name}' has finished", f"cse run {argument}", code="report.no_finished_run")
    first, current = runs.cells[0][0], [result for of_cell in runs.current.values() for result in of_cell]
    svg = as_svg(lambda: study_figure(runs))
    figures = [SavedFigure(study.name.rpartition("/")[2], study.title, svg)] if svg else []
    rows = []
    for cell, _ in runs.cells:
        settings = [*(f"--set {text}" for text in cell.overrides), *(f"--unset {key}" for key in cell.unset)]
        seeds = ", ".join(str(result.seed) for result in runs.current.get(cell.hash, ()))
        rows.append((cell.label, cell.recipe, " ".join(settings), cell.hash[:8], seeds or "none"))
    reproduced = study.answers if cells.paper_table(study) is not None else None
    source = ""
    if study.answers is not None:  # citation and the table or figure that the study reproduces
        paper, identifier = papers.load(study.answers[0]), study.answers[1]
        drawn, table = paper.figures.get(identifier), paper.tables.get(identifier)
        reproduces = f"Figure {drawn.number}: {drawn.caption}" if drawn else ""
        reproduces = f"{table.title}: {table.caption}" if table else reproduces
        source = f"{paper.citation} {reproduces} {paper.url}"
    cost = [(runs.tried, "trial"), (current, "run")]
    took = [f"{sum(run.seconds for run in of) / 3600:.1f} h for {counted(len(of), what)}" for of, what in cost if of]
    about_choices = f"Settings with the best mean dev score of {seed_list(study.tune_seeds)}. Other seeds score them:"
    report_values = {
        "study": study,
        "runs": runs,
        "finished": len(current),
        "paper": source,
        "sources": [(name_of(source.path), source.text) for source in origins_of(study.path).sources],
        "first": first.label,
        "recipe": to_toml(without_directories(first.load(study.seed_list[0]).recipe.resolved())),
        "scores": table_parts(own_table(runs) if reproduced is None else study_table(runs, *reproduced)),
        "reproduces": reproduced is not None,
        "choices": [about_choices, choices_table(runs.choices)] if runs.choices else [],
        "gains": _gains_parts(runs),
        "differences": _differences_parts(runs, argument, finished),
        "figures": figures,
        "cells": plain_table(["", "recipe", "settings", "hash", "finished seeds"], rows),
        "cost": f"Training took {' and '.join(took)}, with its evaluations." if current else "",
        "results": current,
        "noted": {},
        "settings": {},
        "fingerprints": fingerprints(current),
        "commands": commands(current, [f"cse run {Path(argument).name if Path(argument).is_absolute() else argument}"]),
    }
    return Report(study.title, "report_study.md.j2", report_values, figures)


def _gains_parts(runs: StudyRuns) -> list[Any]:
    """Return the gains over the start of each row, by the first headline with both scores. Empty without one."""
    current = runs.current
    scores = cells.values(runs.study, [cell for cell, _ in runs.cells], current)
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
    ordered = [texts for _, texts in sorted(rows, key=itemgetter(0), reverse=True)]
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


def _differences_parts(runs: StudyRuns, argument: str, finished: FinishedRuns) -> list[Any]:
    """Return the differences from the first row: measured, reported, and in the study that this one extends.

    Without a comparison the reason. Empty for a study that reproduces a paper.
    """
    if runs.study.answers is not None:
        return []
    try:
        document = compare_rows(runs, argument, runs.study.score)
    except CseError as error:
        return [f"Not compared: {error.message}."]
    others = [*extended_parts(runs.study, document, finished), *reported_parts(runs.study, document)]
    return [*summary_parts(document), summary_legend(document), *others]


def extended_parts(study: Study, document: ComparisonDocument, finished: FinishedRuns) -> list[Part]:
    """Return the table of the rows that both studies compare, and how far they agree, as parts of a report.

    Empty if the study extends none, or the two do not compare by the same metric with the same first row.
    """
    sources = origins_of(study.path).sources
    if len(sources) == 1:
        return []
    extended = load_study(str(sources[1].path))
    try:
        other = compare_rows(study_runs(extended, finished), extended.name, extended.score)
    except CseError:
        return []
    metric = document.comparisons[0].main.metric
    there = {line.name: line for line in summary_lines(other, metric) if line.tested is not None}
    pairs = [(there[line.name], line) for line in summary_lines(document, metric) if line.name in there]
    if not pairs or baseline_of(other) != baseline_of(document):
        return []
    rows = [(b.name, signed(a.difference), a.verdict, signed(b.difference), b.verdict) for a, b in pairs]
    same = sum(a.verdict == b.verdict for a, b in pairs)
    about = f"The same rows in {extended.name}, which this study extends. Each study corrects for its own comparisons:"
    agreement = _agreement("", [b.difference for _, b in pairs], [a.difference for a, _ in pairs])
    lines = [f"the same verdict in both: {same} of {counted(len(pairs), 'row')}", *agreement]
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
        recipe, known = of_row.get(names[one.second]), one.main.metric == AVERAGE
        gap = reported_difference(recipe, baseline) if baseline and recipe and known else None
        if gap is not None:
            found.append((names[one.second], gap, one.main.over_seeds))
    if not found:
        return []
    found.sort(key=lambda one: -one[1])
    rows = [(name, signed(gap), signed(over.difference), interval_text(over)) for name, gap, over in found]
    gains = [(gap, over.low, over.high) for _, gap, over in found if gap > 0]
    excluded = sum(low is not None and high is not None and not low <= gap <= high for gap, low, high in gains)
    significant = sum(low is not None and low > 0 for _, low, _ in gains)
    counts = f"reported gains: {len(gains)}; excluded by the interval: {excluded}; measured as a significant gain: "
    measured, reported = [over.difference for _, _, over in found], [gap for _, gap, _ in found]
    agreement = _agreement(" of reported and measured differences", measured, reported)
    about = "Differences of the averages that papers report for the same methods, usually with one seed:"
    table = plain_table(["row", "reported", "here", "interval"], rows, align="prrr")
    return [about, table, [f"{counts}{significant}", *agreement]]


def _agreement(what: str, here: Sequence[float], there: Sequence[float]) -> list[str]:
    """Return a line with the rank correlation of differences here and there. Empty if it is not defined."""
    along = trend(what, here, there)
    if along is None or along.p is None:
        return []
    return [f"rank correlation{what} over {along.n} rows: {signed(along.rho)} ({p_text(along.p)})"]


def commands(results: Sequence[Result], commands: Iterable[str]) -> str:
    """Return commands for the console, after the checkout of the commit that all results have in common."""
    commits = {result.versions.git for result in results if result.versions.git}
    checkout = [f"git checkout {commit}" for commit in commits] if len(commits) == 1 else []
    return "\n".join([*checkout, *commands])


def fingerprints(results: Sequence[Result]) -> dict[str, str]:
    """Return data set → its fingerprints in these runs. Several mean that the runs did not read the same data."""
    names = dict.fromkeys(name for result in results for name in result.fingerprints)
    return {name: distinct(result.fingerprints.get(name, "")[:DIGEST] for result in results) for name in names}
