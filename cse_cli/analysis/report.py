"""`cse report`: the report of a run, and the file that is written."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from cse_cli.analysis.circumstances import mixed_environments
from cse_cli.analysis.compare import compare
from cse_cli.analysis.compare_view import comparison_parts
from cse_cli.analysis.experiments import study_cells
from cse_cli.analysis.leaderboard_view import table_parts
from cse_cli.analysis.pages import HTML, MARKDOWN, Report, SavedFigure, figures_directory, write_pages
from cse_cli.analysis.paired_tests import main_metrics
from cse_cli.analysis.paper_tables import paper_table
from cse_cli.analysis.papers import find_reported_row
from cse_cli.analysis.report_study import study_report
from cse_cli.analysis.reported import ReportedRun, find_reported_run, read_reported_run
from cse_cli.analysis.reproduce import (
    changes_table,
    commands,
    environment_facts,
    environment_settings,
    fingerprints,
    recipe_text,
    reproduce,
)
from cse_cli.analysis.reproductions import compare_with_reproductions
from cse_cli.analysis.runs import Method, by_seed, find_methods
from cse_cli.analysis.study_points import curve_of
from cse_cli.core.formatting import mean_text, signed
from cse_cli.core.results import Result
from cse_cli.core.tables import Cell, Row, Table, plain_table
from cse_cli.recipe.study import find_study
from cse_cli.runs.index import finished_runs
from cse_cli.runs.record import folder_of
from registry.errors import CseError
from registry.papers import AVERAGE

VISIBLE = 0.005
"""Smallest standard deviation that two decimals show."""
CURVE = "training_curve"
"""Name of the figure that belongs to the section on training."""
LOSS, PARTS = "train/loss", "loss/"
"""Name of the recorded loss, and prefix of its parts."""


def write_report(argument: str, output: Path | None, baseline: str | None, *, force: bool) -> Path:
    """Write the report of a run or a study and return its file.

    Args:
        argument: Prefix of a run's ID, name of a run, or name or path of a study.
        output: Path with the suffix .html or .md. None selects a name in the working directory.
        baseline: Recipe or run that the run is compared with.
        force: Whether existing files are overwritten.

    Raises:
        CseError: If nothing can be reported or the file cannot be written.
    """
    study = find_study(argument)
    if study is not None and baseline is not None:
        raise CseError(
            f"--baseline '{baseline}' cannot be combined with study '{argument}'",
            f"omit --baseline, or compare two recipes: cse compare {baseline} RECIPE",
            code="report.baseline_of_study",
        )
    finished = finished_runs()
    results = [run.result for run in finished if run.result is not None]
    run_id = "" if study is not None else find_reported_run(argument, results)
    path = output or Path(f"report-{run_id[:8] if study is None else study.stem}.html")
    _check_target(path, force=force)
    if study is None:
        report = run_report(run_id, baseline, results)
    else:
        report = study_report(argument, results, study_cells(finished))
    try:
        write_pages(report, path)
    except OSError as error:
        raise CseError(
            f"--output: cannot write '{error.filename or path}': {error.strerror}",
            "choose a file in a writable directory",
            code="report.cannot_write",
        ) from error
    return path


def _check_target(path: Path, *, force: bool) -> None:
    if path.suffix.lower() not in (*HTML, *MARKDOWN):
        raise CseError(f"--output: '{path}' is not .html or .md", "use report.html or report.md", code="report.format")
    if path.is_dir():
        raise CseError(f"--output: '{path}' is a directory", f"use {path}/report.html", code="report.is_directory")
    if not path.parent.is_dir():
        raise CseError(
            f"--output: directory '{path.parent}' does not exist", f"mkdir {path.parent}", code="report.no_directory"
        )
    targets = [path, figures_directory(path)] if path.suffix.lower() in MARKDOWN else [path]
    for existing in filter(Path.exists, targets):
        if not force:
            raise CseError(
                f"'{existing}' already exists",
                "add --force to overwrite it, or choose another --output",
                code="report.exists",
            )


def run_report(run_id: str, baseline: str | None, results: Sequence[Result]) -> Report:
    """Return the report of a run.

    Args:
        run_id: ID of a finished run.
        baseline: Recipe or run that it is compared with.
        results: Results of all finished runs.

    Raises:
        CseError: If the run has no scores, or the baseline is not valid.
    """
    run = read_reported_run(run_id, results)
    result, seeds = run.result, list(run.seeds)
    other = None if baseline is None else _find_baseline(run, baseline, results)
    own = Method("B", f"{result.recipe} (this report)", run.seeds)
    comparison = [] if other is None else comparison_parts(compare([other, own]))
    how = reproduce(result, run.resolved, [result.seed])
    repeats = [how.command] if len(seeds) == 1 else [how.command, reproduce(result, run.resolved, seeds).command]
    settings = [f"{name}={shlex.quote(value)} " for name, value in environment_settings(run.environment).items()]
    noted = run.environment.get("settings") or {}
    drawn = [*_drawn_figures(run), *_curves_of_all_seeds(run, other), *_losses(run)]
    in_training = {CURVE, "training_curves_of_all_seeds", "loss"}
    values = {
        "run": run,
        "result": result,
        "seeds": seeds,
        "how": how,
        "changes": changes_table(how.changes or (), ("current file", "this run")),
        "recipe": recipe_text(run.resolved) if run.resolved else "",
        "scores": _scores_table(run),
        "remarks": list(_remarks(run)),
        "paper": _paper_parts(run),
        "distributions": compare_with_reproductions(run.results, notes=True),
        "baseline": other and other.name,
        "comparison": comparison,
        "training_figures": [figure for figure in drawn if figure.name in in_training],
        "other_figures": [figure for figure in drawn if figure.name not in in_training],
        "measures": _measures_table(run),
        "environment": environment_facts([result], run.environment),
        "packages": list(run.environment.get("packages") or ()),
        "fingerprints": fingerprints(run.results),
        "directories": [name for name in ("CSE_DATA", "CSE_MODELS") if noted.get(name)],
        "commands": commands([result], [f"{''.join(settings)}{command}" for command in repeats]),
    }
    return Report(result.title, "report_run.md.j2", values, drawn)


def _find_baseline(run: ReportedRun, argument: str, results: Sequence[Result]) -> Method:
    """Return the baseline with all finished runs of its experiment, or with one run for `recipe@seed`.

    Raises:
        CseError: If nothing of it has finished, or it is the same experiment.
    """
    known = [*(one for one in results if one.run_id != run.result.run_id), run.result]
    found, _ = find_methods([argument, run.run_id], known)
    experiment = found.latest.experiment
    if experiment == run.result.experiment:
        raise CseError(
            f"--baseline: '{found.name}' is the same experiment as run {run.run_id[:8]}",
            "choose another recipe, or a run of one",
            code="report.same_experiment",
        )
    if len(found.runs) > 1 or (argument.rpartition("@")[2].isdecimal() and "@" in argument):
        return found
    same = by_seed(one for one in results if one.experiment == experiment)
    runs = dict(sorted({**same, found.latest.seed: found.latest}.items()))
    return replace(found, name=found.latest.recipe, runs=runs)


def _scores_table(run: ReportedRun) -> Table:
    """Return the scores of every seed, their mean and standard deviation, and the gain over the untrained encoder."""
    runs, several = run.configuration, len(run.seeds) > 1
    every = {name: runs.values(name) for name in (*runs.latest.scores, AVERAGE)}
    scores = {name: values for name, values in every.items() if values}
    before = {name: runs.values(name, untrained=True) for name in scores}
    rows: list[Row] = []
    if any(before.values()):
        rows.append(_row("before training", [f"{fmean(of):.2f}" if of else "" for of in before.values()]))
        deviations = [stdev(of) if len(of) > 1 else None for of in before.values()]
        if any(one is not None and one >= VISIBLE for one in deviations):  # heads are initialized at random
            rows.append(_row("±", ["" if one is None else f"{one:.2f}" for one in deviations], below=True))
    for place, result in enumerate(runs.results):
        label = f"seed {result.seed}{' (this run)' if result.seed == run.result.seed and several else ''}"
        rows.append(_row(label, [f"{values[place]:.2f}" for values in scores.values()]))
    if several:
        rows.append(_row("mean", [f"{fmean(values):.2f}" for values in scores.values()]))
        rows.append(_row("±", [f"{stdev(values):.2f}" for values in scores.values()], below=True))
    if any(before.values()):
        gains = [signed(fmean(scores[name]) - fmean(of)) if of else "" for name, of in before.items()]
        rows.append(_row("gain over before training", gains))
    return Table("Scores of every seed", tuple(scores), tuple(rows))


def _row(label: str, cells: Sequence[str], *, below: bool = False) -> Row:
    return Row(label, tuple(map(Cell, cells)), below=below)


def _remarks(run: ReportedRun) -> Iterator[str]:
    """Yield notes that a reader needs before comparing the scores."""
    result = run.result
    metrics: dict[str, list[str]] = {}
    for evaluator, metric in main_metrics(result.scores).items():
        metrics.setdefault(metric.rpartition(".")[2], []).append(evaluator)
    names = [f"{metric} of {', '.join(of)}" if len(metrics) > 1 else metric for metric, of in metrics.items()]
    yield f"Main metric of each evaluator: {'; '.join(names)}."
    if run.configuration.values(AVERAGE):
        yield "avg: mean of the seven English test sets, each rounded to two decimals first, as in the papers."
    if len(run.seeds) > 1:
        yield "±: sample standard deviation over the seeds."
    if result.metric_for_best_model is not None:
        yield f"{result.metric_for_best_model} selected the scored checkpoint, so its own score is optimistic."
    if search := run.run.about.search:
        yield f"This run is a trial of the search {search}. The best of many trials is not a result."
    if any(one.test_selected for one in run.results):
        yield "A test split selected the checkpoint, so the scores are optimistic."
    yield from (*mixed_environments(run.results), *run.left_out)


def _paper_parts(run: ReportedRun) -> list[Any]:
    """Return the reported row that the recipe reproduces with your seeds below it, as parts of a report."""
    runs = run.configuration
    paper, recorded = runs.latest.paper, run.result.paper
    row = find_reported_row(paper.key, paper.table, paper.row) if paper else None
    if paper is not None and row is not None:
        table, _ = paper_table(paper.key, paper.table, [runs])
        kept = tuple(line for line in table.rows if paper.row in (line.reproduces, line.name))
        return [*table_parts(table.model_copy(update={"rows": kept})), f"{row.paper.citation} {row.paper.url}"]
    if recorded is None:
        return []
    address = f"{recorded.key}, {recorded.table}, {recorded.row}"
    return [f"Not compared with {address}: the model differs, or the table no longer has this row."]


def _measures_table(run: ReportedRun) -> Table | None:
    values: dict[str, list[float]] = {}
    for name, value in (pair for result in run.results for pair in result.measures.items()):
        values.setdefault(name, []).append(value)
    rows = [(name, mean_text(of)) for name, of in values.items()]
    return plain_table(["", "mean ± standard deviation over the seeds"], rows) if rows else None


def _drawn_figures(run: ReportedRun) -> Iterator[SavedFigure]:
    """Yield the figures that the run drew."""
    whose = f"{run.result.title}, seed {run.result.seed}"
    for file in sorted((folder_of(run.run_id) / "figures").glob("*.svg")):
        if content := file.read_bytes():
            yield SavedFigure(file.stem, f"{file.stem.replace('_', ' ').capitalize()}: {whose}", content)


def _curves_of_all_seeds(run: ReportedRun, other: Method | None) -> list[SavedFigure]:
    """Return the dev score by step over all seeds, with the baseline's. Empty for a single curve."""
    from cse_cli.analysis.study_figures import draw_curves  # imports matplotlib
    from cse_cli.core.plotting import Heading, as_svg, metric_name

    metric = run.result.metric_for_best_model
    groups = {run.result.recipe: run.results, **({other.name: list(other.runs.values())} if other else {})}
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


def _losses(run: ReportedRun) -> list[SavedFigure]:
    """Return the loss of this run by step."""
    from cse_cli.analysis.run_figures import loss_curves  # imports matplotlib
    from cse_cli.core.plotting import Heading, as_svg

    recorded = {name: sorted(values.items()) for name, values in run.history.metrics.items() if len(values) > 1}
    if LOSS not in recorded:
        return []
    parts = {name.removeprefix(PARTS): points for name, points in recorded.items() if name.startswith(PARTS)}
    heading = Heading("Loss", f"{run.result.title}, seed {run.result.seed}")
    return [SavedFigure("loss", "Loss by step", as_svg(lambda: loss_curves(recorded[LOSS], parts, heading)))]
