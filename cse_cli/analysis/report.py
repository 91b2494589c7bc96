"""`cse report`: the report of a run, and the file that is written."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from cse_cli.analysis.compare import compare, find_method, find_methods, names_recipe, names_run
from cse_cli.analysis.compare_view import comparison_parts
from cse_cli.analysis.experiments import (
    Experiment,
    by_seed,
    differences,
    group,
    mixed_environments,
    read_resolved,
    study_cells,
)
from cse_cli.analysis.leaderboard_view import table_parts
from cse_cli.analysis.pages import HTML, MARKDOWN, Report, SavedFigure, figures_directory, write_pages
from cse_cli.analysis.paired_tests import main_metrics
from cse_cli.analysis.paper_tables import paper_table
from cse_cli.analysis.papers import find_reported_row
from cse_cli.analysis.report_study import study_report
from cse_cli.analysis.reproduced import compare_with_reproductions
from cse_cli.analysis.rerun import (
    changes_table,
    commands,
    environment_facts,
    environment_settings,
    fingerprints,
    recipe_text,
    rerun,
)
from cse_cli.core.formatting import mean_text, signed
from cse_cli.core.results import WORD_OVERLAP, PaperRow, Result
from cse_cli.core.tables import Cell, Row, Table, plain_table
from cse_cli.recipe.files import all_recipes, all_studies
from cse_cli.recipe.study import find_study
from cse_cli.runs.events import read_history
from cse_cli.runs.index import RecordedRun, all_runs, find_run, finished_runs, read_run
from cse_cli.runs.record import ENVIRONMENT, folder_of
from registry import papers
from registry.errors import CseError, UnknownNameError, suggestion
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
        argument: Prefix of a run's ID, name of a run, name or path of a recipe or study, or `recipe@seed`.
        output: Path with the suffix .html or .md. None selects a name in the working directory.
        baseline: Recipe or run that the run is compared with.
        force: Whether existing files are overwritten.
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


def find_reported_run(argument: str, results: Sequence[Result]) -> str:
    """Return the ID of the run with this ID prefix or name, or of the newest run that `cse compare` has of a recipe."""
    known = all_runs()
    if names_run(argument, known):
        return find_run(argument, known).run_id
    if names_recipe(argument, results):
        return str(find_method(argument, results).latest.run_id)
    near = suggestion(
        argument, [*all_recipes(), *all_studies(), *(run.name for run in known), *(run.about.short for run in known)]
    )
    raise UnknownNameError(
        f"'{argument}' is not a run, a recipe or a study.{near}",
        "list them: cse runs ls, cse list recipes, cse list studies",
        code="report.unknown_run",
    )


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
    (own,) = group(of_row, {run_id: run.about.changes})
    own = replace(own, letter="B", name=f"{result.recipe} (this report)")
    other = None if baseline is None else _find_baseline(run, own, baseline, results)
    seeds, comparison = list(own.seeds), [] if other is None else comparison_parts(compare([other, own]))
    how = rerun(result, resolved, [result.seed])
    repeats = [how.command] if len(seeds) == 1 else [how.command, rerun(result, resolved, seeds).command]
    settings = [f"{name}={shlex.quote(value)} " for name, value in environment_settings(noted).items()]
    variables = noted.get("settings") or {}
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
        "recipe": recipe_text(resolved) if resolved else "",
        "scores": _scores_table(own, result.seed),
        "remarks": [*_remarks(run, own), *left_out],
        "paper": _paper_parts(own, result.paper),
        "distributions": compare_with_reproductions(own.results, notes=True),
        "baseline": other and other.name,
        "comparison": comparison,
        "training_figures": [figure for figure in drawn if figure.name in in_training],
        "other_figures": [figure for figure in drawn if figure.name not in in_training],
        "measures": plain_table(["", "mean ± standard deviation over the seeds"], measures) if measures else None,
        "environment": environment_facts([result], noted),
        "packages": list(noted.get("packages") or ()),
        "fingerprints": fingerprints(own.results),
        "directories": [name for name in ("CSE_DATA", "CSE_MODELS") if variables.get(name)],
        "commands": commands([result], [f"{''.join(settings)}{command}" for command in repeats]),
    }
    return Report(result.title, "report_run.md.j2", values, drawn)


def _find_baseline(run: RecordedRun, own: Experiment, argument: str, results: Sequence[Result]) -> Experiment:
    """Return the baseline with all finished runs of its experiment, or with one run for `recipe@seed`."""
    if find_study(argument) is not None:
        raise CseError(f"--baseline '{argument}' is a study", "name a recipe or a run", code="report.baseline_is_study")
    known = [*(one for one in results if one.run_id != run.run_id), *filter(None, [run.result])]
    (found, _), _ = find_methods([argument, run.run_id], known)
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


def _scores_table(runs: Experiment, own: int) -> Table:
    """Return the scores of every seed, their mean and standard deviation, and the gain over the untrained encoder.

    The report is about the seed `own`.
    """
    several = len(runs.seeds) > 1
    every = {name: runs.values(name) for name in (*runs.latest.scores, AVERAGE)}
    scores = {name: values for name, values in every.items() if values}
    before = {name: runs.values(name, of="untrained") for name in scores}
    rows: list[Row] = []
    if any(before.values()):
        rows.append(_row("before training", [f"{fmean(of):.2f}" if of else "" for of in before.values()]))
        deviations = [stdev(of) if len(of) > 1 else None for of in before.values()]
        if any(one is not None and one >= VISIBLE for one in deviations):  # heads are initialized at random
            rows.append(_row("±", ["" if one is None else f"{one:.2f}" for one in deviations], below=True))
    for place, result in enumerate(runs.results):
        label = f"seed {result.seed}{' (this run)' if result.seed == own and several else ''}"
        rows.append(_row(label, [f"{values[place]:.2f}" for values in scores.values()]))
    if several:
        rows.append(_row("mean", [f"{fmean(values):.2f}" for values in scores.values()]))
        rows.append(_row("±", [f"{stdev(values):.2f}" for values in scores.values()], below=True))
    if any(before.values()):
        gains = [signed(fmean(scores[name]) - fmean(of)) if of else "" for name, of in before.items()]
        rows.append(_row("gain over before training", gains))
    if runs.latest.word_overlap:
        overlaps = [runs.values(name, of="word_overlap") for name in scores]
        rows.append(_row(WORD_OVERLAP, [f"{of[0]:.2f}" if of else "" for of in overlaps]))
    return Table("Scores of every seed", tuple(scores), tuple(rows))


def _row(label: str, cells: Sequence[str], *, below: bool = False) -> Row:
    return Row(label, tuple(map(Cell, cells)), below=below)


def _remarks(run: RecordedRun, runs: Experiment) -> Iterator[str]:
    """Yield notes that a reader needs before comparing the scores."""
    result = runs.runs[run.result.seed] if run.result else runs.latest
    metrics: dict[str, list[str]] = {}
    for evaluator, metric in main_metrics(result.scores).items():
        metrics.setdefault(metric.rpartition(".")[2], []).append(evaluator)
    names = [f"{metric} of {', '.join(of)}" if len(metrics) > 1 else metric for metric, of in metrics.items()]
    yield f"Main metric of each evaluator: {'; '.join(names)}."
    if runs.values(AVERAGE):
        yield "avg: mean of the seven English test sets, each rounded to two decimals first, as in the papers."
    if len(runs.seeds) > 1:
        yield "±: sample standard deviation over the seeds."
    if result.metric_for_best_model is not None:
        yield f"{result.metric_for_best_model} selected the scored checkpoint, so its own score is optimistic."
    if search := run.about.search:
        yield f"This run is a trial of the search {search}. The best of many trials is not a result."
    if runs.test_selected:
        yield "A test split selected the checkpoint, so the scores are optimistic."
    yield from mixed_environments(runs.results)


def _paper_parts(runs: Experiment, recorded: PaperRow | None) -> list[Any]:
    """Return the reported row that the recipe reproduces with your seeds below it, as parts of a report."""
    paper = runs.latest.paper
    row = find_reported_row(paper.key, paper.table, paper.row) if paper else None
    if paper is not None and row is not None:
        table, _ = paper_table(paper.key, paper.table, [runs])
        kept = tuple(line for line in table.rows if paper.row in (line.reproduces, line.name))
        source = papers.load(paper.key)
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
    """Return the loss of this run by step."""
    from cse_cli.analysis.run_figures import loss_curves  # imports matplotlib
    from cse_cli.core.plotting import Heading, as_svg

    metrics = read_history(folder_of(run_id)).metrics
    recorded = {name: sorted(values.items()) for name, values in metrics.items() if len(values) > 1}
    if LOSS not in recorded:
        return []
    parts = {name.removeprefix(PARTS): points for name, points in recorded.items() if name.startswith(PARTS)}
    heading = Heading("Loss", whose)
    return [SavedFigure("loss", "Loss by step", as_svg(lambda: loss_curves(recorded[LOSS], parts, heading)))]
