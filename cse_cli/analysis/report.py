"""`cse report`: the page about a finished run, and where pages go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean, stdev

from cse_cli.analysis.compare import compare
from cse_cli.analysis.compare_view import comparison_section
from cse_cli.analysis.evidence import main_metrics
from cse_cli.analysis.experiments import mixed, study_cells
from cse_cli.analysis.leaderboard_view import table_parts
from cse_cli.analysis.pages import (
    Page,
    Part,
    Picture,
    Remarks,
    Section,
    Words,
    html,
    markdown,
    pictures,
    word_table,
)
from cse_cli.analysis.paper_tables import paper_table
from cse_cli.analysis.papers import find_printed_row
from cse_cli.analysis.report_study import study_page
from cse_cli.analysis.reported import ReportedRun, find_reported_run, read_reported_run
from cse_cli.analysis.reproduce import data_section, environment_section, recipe_section, reproduce, rerun_section
from cse_cli.analysis.reproductions import compare_with_reproductions
from cse_cli.analysis.runs import Method, by_seed, find_methods
from cse_cli.core.formatting import counted, mean_text, seed_list, signed
from cse_cli.core.results import Result
from cse_cli.core.tables import Cell, Row, Table
from cse_cli.recipe.study import find_study
from cse_cli.runs.index import finished_runs
from cse_cli.runs.record import folder_of
from registry.errors import CseError
from registry.papers import AVERAGE
from registry.paths import write_atomically

HTML, MARKDOWN = (".html", ".htm"), (".md", ".markdown")
VISIBLE = 0.005
"""Spread that two decimals show."""
CURVE = "training_curve"
"""Figure of a run that belongs to its training."""
LOSS, PARTS = "train/loss", "loss/"
"""Metrics that are recorded while training."""


def write_report(argument: str, output: Path | None, beside: str | None, *, force: bool) -> Path:
    """Write the report of a run or a study and return its file.

    Args:
        argument: The beginning of a run's id, its name, or the name or path of a study.
        output: Ends in ".html" or ".md"; None is a name of its own in the working directory.
        beside: Recipe or run that a run is compared with.
        force: Overwrite what is there.

    Raises:
        CseError: There is nothing to report, or nowhere to write it.
    """
    study = find_study(argument)
    if study is not None and beside is not None:
        raise CseError("--beside is for a run: a study stands beside its paper", "`cse compare` compares recipes")
    finished = finished_runs()
    results = [run.result for run in finished if run.result is not None]
    run_id = "" if study is not None else find_reported_run(argument, results)
    path = output or Path(f"report-{run_id[:8] if study is None else study.stem}.html")
    _check_target(path, force=force)
    page = run_page(run_id, beside, results) if study is None else study_page(argument, results, study_cells(finished))
    try:
        _write(page, path)
    except OSError as error:
        raise CseError(
            f"--output: '{error.filename or path}' cannot be written: {error.strerror}",
            "name a file in a folder that can be written",
        ) from error
    return path


def _check_target(path: Path, *, force: bool) -> None:
    """Refuse what cannot be written, before any work."""
    if path.suffix.lower() not in (*HTML, *MARKDOWN):
        raise CseError(f"--output: '{path}' is neither HTML nor Markdown", "let it end in .html or .md")
    if not path.parent.is_dir():
        raise CseError(f"--output: there is no folder '{path.parent}'", "make it, or name another one")
    if path.is_dir():
        raise CseError(f"--output: '{path}' is a folder", "name a file in it")
    for there in (path, *([_figures(path)] if path.suffix.lower() in MARKDOWN else [])):
        if there.exists() and not force:
            raise CseError(f"'{there}' is there already", "--force overwrites it; --output names another file")


def _figures(path: Path) -> Path:
    """Return the folder of a Markdown page's figures."""
    return path.with_name(f"{path.stem}_figures")


def _write(page: Page, path: Path) -> None:
    if path.suffix.lower() in HTML:
        write_atomically(path, html(page))
        return
    figures = _figures(path)
    for picture in page.pictures:
        write_atomically(figures / f"{picture.name}.svg", picture.svg)
    write_atomically(path, markdown(page, figures.name))


def run_page(run_id: str, beside: str | None, results: Sequence[Result]) -> Page:
    """Return the report of a run.

    Args:
        run_id: Of a finished run.
        beside: Recipe or run that it is compared with.
        results: All finished runs.

    Raises:
        CseError: It has no scores, or there is nothing to compare it with.
    """
    run = read_reported_run(run_id, results)
    result = run.result
    other = None if beside is None else _find_beside(run, beside, results)
    own = Method("B", f"{result.recipe} (this report)", run.seeds)
    one = reproduce(result, run.resolved, [result.seed])
    every = reproduce(result, run.resolved, list(run.seeds))
    drawn = _drawn(run)
    sections = (
        recipe_section(run, one),
        _scores_section(run),
        _paper_section(run),
        _reproductions_section(run),
        *([] if other is None else [comparison_section(compare([other, own]))]),
        _training_section(run, other, [picture for picture in drawn if picture.name == CURVE]),
        Section("Figures", tuple(picture for picture in drawn if picture.name != CURVE)),
        environment_section([result], run.environment),
        data_section(run.results),
        rerun_section(run, one, every),
    )
    which = f"{result.recipe}, seed {result.seed}, run {run_id[:8]}"
    return Page(result.title, which, tuple(section for section in sections if section.parts))


def _find_beside(run: ReportedRun, argument: str, results: Sequence[Result]) -> Method:
    """Return what a run's recipe is compared with: all finished runs of that recipe, or of that run's recipe.

    Raises:
        CseError: It is neither a recipe nor a run, nothing of it has finished, or it is the same recipe.
    """
    known = [*(one for one in results if one.run_id != run.result.run_id), run.result]
    found, _ = find_methods([argument, run.run_id], known)
    experiment = found.latest.experiment
    if experiment == run.result.experiment:
        raise CseError(
            f"--beside: {found.name} is the same experiment as run {run.run_id[:8]}",
            "the report shows all seeds of it; name another recipe, or a run of one",
        )
    if len(found.runs) > 1 or (argument.rpartition("@")[2].isdecimal() and "@" in argument):
        return found
    same = by_seed(one for one in results if one.experiment == experiment)
    runs = dict(sorted({**same, found.latest.seed: found.latest}.items()))
    return replace(found, name=found.latest.recipe, runs=runs)


def _scores_section(run: ReportedRun) -> Section:
    """Return every seed's scores, mean and spread, and the gain over the encoder before training."""
    seeds = list(run.seeds)
    which = (
        f"One run of this experiment has finished, with seed {seeds[0]}: no spread over seeds is known."
        if len(seeds) == 1
        else f"{counted(len(seeds), 'run')} of this experiment ({run.result.experiment}) have finished, with "
        f"{seed_list(seeds)}; all are shown, the one that finished last of each seed."
    )
    return Section("Scores", (Words(which), _scores_table(run), Remarks(tuple(_remarks(run)))))


def _scores_table(run: ReportedRun) -> Table:
    runs, own, several = run.configuration, run.result.seed, len(run.seeds) > 1
    every = {name: runs.values(name) for name in (*runs.latest.scores, AVERAGE)}
    scores = {name: values for name, values in every.items() if values}
    before = {name: runs.values(name, untrained=True) for name in scores}
    rows = _before_training(before)
    for place, result in enumerate(runs.results):
        label = f"seed {result.seed}{' (this run)' if result.seed == own and several else ''}"
        cells = [f"{values[place]:.2f}" for values in scores.values()]
        rows.append(_row(label, cells, "ours" if result.seed == own else ""))
    if several:
        rows.append(_row("mean", [f"{fmean(values):.2f}" for values in scores.values()]))
        rows.append(_row("±", [f"{stdev(values):.2f}" for values in scores.values()], below=True))
    if any(before.values()):
        gains = [
            signed(fmean(after - start for after, start in zip(values, before[name], strict=True)))
            if before[name]
            else ""
            for name, values in scores.items()
        ]
        rows.append(_row("gain over before training", gains))
    return Table("Scores of every seed", tuple(scores), tuple(rows))


def _before_training(columns: Mapping[str, Sequence[float]]) -> list[Row]:
    """Return the encoder before training; its spread where heads that are drawn by chance give it one."""
    if not any(columns.values()):
        return []
    rows = [_row("before training", [f"{fmean(values):.2f}" if values else "" for values in columns.values()])]
    spreads = [stdev(values) if len(values) > 1 else 0.0 for values in columns.values()]
    if max(spreads) >= VISIBLE:
        rows.append(_row("±", [f"{spread:.2f}" for spread in spreads], below=True))
    return rows


def _row(label: str, cells: Sequence[str], emphasis: str = "", *, below: bool = False) -> Row:
    return Row(label, tuple(map(Cell, cells)), emphasis, below)


def _remarks(run: ReportedRun) -> list[str]:
    """Return what the scores are, and what a reader must know before comparing them."""
    result = run.result
    metrics: dict[str, list[str]] = {}
    for evaluator, metric in main_metrics(result.scores).items():
        metrics.setdefault(metric.rpartition(".")[2], []).append(evaluator)
    names = "; ".join(f"{metric} of {', '.join(of)}" if len(metrics) > 1 else metric for metric, of in metrics.items())
    lines = [f"main metric of each evaluator: {names}"]
    if run.configuration.values(AVERAGE):
        lines.append("avg: mean of the seven English test sets, each rounded to two decimals first, as in the papers")
    if len(run.seeds) > 1:
        lines.append("±: sample standard deviation over the seeds")
    if result.select is not None:
        lines.append(f"{result.select} chose the state that is scored: its own score is optimistic")
    if search := run.run.about.search:
        lines.append(f"a trial of the search {search}: the best of many is no result by itself")
    if any(one.test_selected for one in run.results):
        lines.append("the state was chosen on a test split: such scores are optimistic")
    return [*lines, *mixed(run.results), *run.left_out]


def _paper_section(run: ReportedRun) -> Section:
    """Return the printed row that the recipe answers with our seeds below it, and doubts about it."""
    runs = run.configuration
    paper, recorded = runs.latest.paper, run.result.paper
    row = find_printed_row(paper.key, paper.table, paper.row) if paper else None
    parts: tuple[Part, ...] = ()
    if paper is not None and row is not None:
        table, _ = paper_table(paper.key, paper.table, [runs])
        kept = tuple(line for line in table.rows if paper.row in (line.answers, line.name))
        cited = Words(f"{row.paper.citation} {row.paper.url}")
        parts = (*table_parts(table.model_copy(update={"rows": kept})), cited)
    elif recorded is not None:
        address = f"{recorded.key}, {recorded.table}, {recorded.row}"
        parts = (Words(f"Not compared with {address}: another model, or no such row today."),)
    return Section("Beside the paper", parts)


def _reproductions_section(run: ReportedRun) -> Section:
    """Return where each seed falls in the distribution that others published, where one is known."""
    lines = compare_with_reproductions(run.results, notes=True)
    parts = (Words(f"{lines[0]}."), Remarks(tuple(lines[1:]), small=False)) if lines else ()
    return Section("Among runs by others", parts)


def _training_section(run: ReportedRun, beside: Method | None, drawn: Sequence[Picture]) -> Section:
    """Return the curves, and what was measured of the method."""
    groups = [(run.result.recipe, run.results), *([(beside.name, list(beside.runs.values()))] if beside else [])]
    parts: list[Part] = [*drawn, *_curves_of_all_seeds(groups), *_losses(run)]
    names = dict.fromkeys(name for result in run.results for name in result.measures)
    if names:
        rows = [(name, mean_text([r.measures[name] for r in run.results if name in r.measures])) for name in names]
        parts.append(word_table("What was measured", ("mean ± standard deviation over the seeds",), rows))
    return Section("Training", tuple(parts))


def _drawn(run: ReportedRun) -> list[Picture]:
    """Return the figures that the run drew."""
    files = sorted((folder_of(run.run_id) / "figures").glob("*.svg"))
    whose = f"{run.result.title}, seed {run.result.seed}"
    return [
        Picture(file.stem, f"{file.stem.replace('_', ' ').capitalize()}: {whose}", content)
        for file in files
        if (content := file.read_bytes())
    ]


def _curves_of_all_seeds(groups: Sequence[tuple[str, Sequence[Result]]]) -> Sequence[Picture]:
    """Return the dev score by step over all seeds, a line a recipe; nothing where one seed is all there is."""
    from cse_cli.analysis.run_figures import unit  # matplotlib: only where something is drawn
    from cse_cli.analysis.study_figures import curve_of, draw_curves
    from cse_cli.core.plotting import Heading

    select = groups[0][1][0].select
    of_groups = [(name, [run for run in results if run.curve and run.select == select]) for name, results in groups]
    curves = [curve for name, results in of_groups if (curve := curve_of(name, results)) is not None]
    if select is None or sum(len(curve.scores) for curve in curves) < 2:
        return ()
    seeds = " and ".join(str(len(curve.scores)) for curve in curves)
    names = ", ".join(curve.label for curve in curves)
    heading = Heading(f"Training curves: {select}", names, f"{seeds} seeds, mean ± std")
    metric = unit(select.rpartition(".")[2])
    shown = [replace(curve, before=()) for curve in curves]
    draw = partial(draw_curves, shown, "step", metric, heading)
    return pictures("training_curves_of_all_seeds", heading.title, draw)


def _losses(run: ReportedRun) -> Sequence[Picture]:
    """Return what this run minimised."""
    from cse_cli.analysis.figures import loss_curves
    from cse_cli.core.plotting import Heading

    recorded = {name: sorted(values.items()) for name, values in run.history.metrics.items() if len(values) > 1}
    if LOSS not in recorded:
        return ()
    parts = {name.removeprefix(PARTS): points for name, points in recorded.items() if name.startswith(PARTS)}
    heading = Heading("Loss", f"{run.result.title}, seed {run.result.seed}")
    return pictures("loss", "Loss by step", lambda: loss_curves(recorded[LOSS], parts, heading))
