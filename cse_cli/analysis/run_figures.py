"""All figures of one finished run, from its result and the series of its evaluators."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from matplotlib.figure import Figure

from cse_cli.analysis.experiments import StatusOf, configurations
from cse_cli.analysis.figures import (
    PlanePoints,
    UniformityAlignment,
    alignment_uniformity_plane,
    similarity_scatter,
    singular_value_spectrum,
    task_bars,
    training_curve,
)
from cse_cli.analysis.headlines import metric_value
from cse_cli.analysis.paper_tables import paper_table
from cse_cli.core.plotting import Heading, metric_name, save_figures
from cse_cli.core.results import STS_TASKS, Result
from registry import papers
from registry.papers import AVERAGE

Series = Mapping[str, Mapping[str, Sequence[float]]]
"""Evaluator → name → numbers, from `Evaluator.series`."""
LABELS = {"measured": "this run", "untrained": "untrained"}
"""Role → its label in a legend."""
ALIGNMENT, UNIFORMITY = "alignment", "uniformity"
"""Metrics of the evaluators that get a plane."""
REPORTED = ("ALGN", "UNIF")
"""Columns of a paper's table with these two metrics."""
SCATTERS = 3
"""Maximum number of scatter plots of a run. Each takes a quarter of a second."""

Bars = tuple[str, Sequence[float | None]]
"""Label of a row, and its value in each group."""


@dataclass(frozen=True)
class FinishedRun:
    """A finished run and the numbers of its figures.

    Args:
        result: Scores of the run.
        series: Series of its evaluators.
        data: Evaluator → names "dataset/split" of its data, for the titles.
        status_of: Function for the relation of the run to its recipe's file. Only a current run is compared with a
            paper's row.
    """

    result: Result
    series: Series = field(default_factory=dict)
    data: Mapping[str, Sequence[str]] = field(default_factory=dict)
    status_of: StatusOf | None = None

    @property
    def whose(self) -> str:
        """Method and seed."""
        return f"{self.result.title}, seed {self.result.seed}"

    @property
    def selecting(self) -> str:
        """Name of the evaluator that selected the checkpoint, or an empty string."""
        return (self.result.metric_for_best_model or "").rpartition(".")[0]

    def data_name(self, *evaluators: str) -> str:
        """Return "dataset/split" of one evaluator, or the splits of several."""
        names = [name for evaluator in evaluators for name in self.data.get(evaluator, ())]
        if len(names) <= 1:
            return names[0] if names else ", ".join(evaluators)
        splits = sorted({name.rpartition("/")[2] for name in names})
        return f"{' and '.join(splits)} split{'s' if len(splits) > 1 else ''}"

    def with_series(self, *names: str) -> dict[str, tuple[Sequence[float], ...]]:
        """Return evaluator → series with these names. Evaluators without one of them are omitted."""
        found = {evaluator: tuple(of.get(name, ()) for name in names) for evaluator, of in self.series.items()}
        return {evaluator: series for evaluator, series in found.items() if all(len(one) for one in series)}


def draw_run(
    result: Result, series: Series, directory: Path, data: Mapping[str, Sequence[str]] | None = None
) -> list[Path]:
    """Write each figure for which the run has data, as SVG and as PNG, and return the files.

    Args:
        result: Result of the run.
        series: Evaluator → name → numbers.
        directory: Directory of the files. Created if there is a figure.
        data: Evaluator → names "dataset/split" of its data, for the titles.
    """
    return save_figures(run_figures(FinishedRun(result, series, data or {})), directory)


def run_figures(run: FinishedRun) -> Iterator[tuple[str, Figure]]:
    """Yield name and figure for everything for which the run has data. Iterate inside `figure_style`."""
    for kind, figures in (
        ("training_curve", _training_curve(run)),
        ("tasks_", _task_bars(run)),
        ("similarity_", _similarities(run)),
        ("singular_values_", _spectra(run)),
        ("alignment_uniformity_", _planes(run)),
    ):
        for name, figure in figures:
            yield kind + re.sub(r"[^\w.-]", "_", name), figure


def _training_curve(run: FinishedRun) -> Iterator[tuple[str, Figure]]:
    result = run.result
    if result.curve and result.metric_for_best_model is not None:
        metric = metric_name(result.metric_for_best_model.rpartition(".")[2])
        heading = Heading(f"Training curve: {metric}, {run.data_name(run.selecting)}", run.whose)
        untrained = metric_value(result.untrained, result.metric_for_best_model)
        yield "", training_curve(result.curve, result.selected_step, untrained, metric, heading)


def _task_bars(run: FinishedRun) -> Iterator[tuple[str, Figure]]:
    """Yield the bars next to the paper's row that the run reproduces, else one chart for each shared metric."""
    if (reported := _bars_with_paper(run)) is not None:
        yield "paper", reported
        return
    groups: dict[str, list[str]] = {}
    for evaluator, scores in run.result.scores.items():
        if scores and evaluator != run.selecting:
            groups.setdefault(next(iter(scores)), []).append(evaluator)
    for metric, evaluators in groups.items():
        if len(evaluators) > 1:
            yield metric, _bars_with_untrained(run, metric, evaluators)


def _bars_with_paper(run: FinishedRun) -> Figure | None:
    paper = run.result.paper
    (configuration,) = configurations([run.result], run.status_of)
    if paper is None or configuration.latest.paper is None:
        return None
    shown, _ = paper_table(paper.key, paper.table, [configuration])
    scores = {row.source: row.scores for row in shown.rows if paper.row in (row.reproduces, row.name)}
    if "paper" not in scores or not scores.get("measured"):
        return None
    table = papers.load(paper.key).tables[paper.table]
    columns = [column for column in table.columns if column.name in scores["measured"]]
    labels = {"paper": f"{papers.load(paper.key).short}: {paper.row}", **LABELS}
    rows: dict[str, Bars] = {}
    for role in ("paper", "measured"):
        found = [scores[role].get(column.name) for column in columns]
        rows[role] = labels[role], [None if score is None else score.mean for score in found]
    data = run.data_name(*(column.evaluator for column in columns if column.evaluator not in (None, AVERAGE)))
    heading = Heading(f"Tasks: {table.metric}, {data}", run.whose)
    return task_bars([column.name for column in columns], rows, table.metric, heading)


def _bars_with_untrained(run: FinishedRun, metric: str, evaluators: Sequence[str]) -> Figure:
    names = [*evaluators, *([AVERAGE] if set(STS_TASKS) <= set(evaluators) else [])]
    keys = [name if name == AVERAGE else f"{name}.{metric}" for name in names]
    rows: dict[str, Bars] = {}
    for role, scores in (("untrained", run.result.untrained), ("measured", run.result.scores)):
        values = [metric_value(scores, key) for key in keys]
        if any(value is not None for value in values):
            rows[role] = LABELS[role], values
    heading = Heading(f"Tasks: {metric_name(metric)}, {run.data_name(*evaluators)}", run.whose)
    return task_bars(names, rows, metric_name(metric), heading)


def _similarities(run: FinishedRun) -> Iterator[tuple[str, Figure]]:
    """Yield at most `SCATTERS` scatter plots.

    The order is: evaluators whose metric no other evaluator has, the selecting evaluator, those on the same data set,
    and all others as in the recipe.
    """
    metrics = {evaluator: next(iter(scores), "") for evaluator, scores in run.result.scores.items()}
    datasets = {name.rpartition("/")[0] for name in run.data.get(run.selecting, ())}

    def rank(evaluator: str) -> tuple[bool, bool, bool]:
        shared = list(metrics.values()).count(metrics.get(evaluator, "")) > 1
        same = any(name.rpartition("/")[0] in datasets for name in run.data.get(evaluator, ()))
        return shared, evaluator != run.selecting, not same

    found = run.with_series("gold", "cosine")
    for evaluator in sorted(found, key=rank)[:SCATTERS]:
        gold, cosine = found[evaluator]
        note = ", ".join([*_ranges(run.result.scores.get(evaluator, {})), f"{len(gold):,}\N{NO-BREAK SPACE}pairs"])
        heading = Heading(f"Gold score and cosine, {run.data_name(evaluator)}", run.whose, note)
        bands = (run.series[evaluator].get("bin_gold", ()), run.series[evaluator].get("bin_cosine", ()))
        yield evaluator, similarity_scatter(gold, cosine, bands, heading)


def _ranges(scores: Mapping[str, float]) -> Iterator[str]:
    """Yield the correlations with their confidence intervals, and the range of the cosines."""
    for name in ("spearman", "pearson"):
        if name in scores:
            low, high = (scores.get(f"{name}_{end}", scores[name]) for end in ("low", "high"))
            interval = f" ({low:.2f} to {high:.2f})" if low < high else ""
            yield f"{name.capitalize()} {scores[name]:.2f}{interval}"
    if "low" in scores and "high" in scores:
        yield f"most cosines {scores['low']:.2f} to {scores['high']:.2f}"


def _spectra(run: FinishedRun) -> Iterator[tuple[str, Figure]]:
    for evaluator, (values,) in run.with_series("singular_values").items():
        if max(values) > 0:
            rank = run.result.scores.get(evaluator, {}).get("effective_rank")
            note = "" if rank is None else f"effective rank {rank:.1f} of {len(values)}"
            heading = Heading(f"Singular values of the embeddings, {run.data_name(evaluator)}", run.whose, note)
            yield evaluator, singular_value_spectrum(values, heading)


def _planes(run: FinishedRun) -> Iterator[tuple[str, Figure]]:
    """Yield the run and its untrained encoder among the papers' points."""
    for evaluator, scores in run.result.scores.items():
        if {ALIGNMENT, UNIFORMITY} <= set(scores):
            reported, source = _reported_points()
            named = {"paper": reported}
            links = [(one, other) for one in reported for other in reported if other.startswith(f"{one} + ")]
            for role, of in (("untrained", run.result.untrained.get(evaluator)), ("measured", scores)):
                if of:
                    named[role] = {LABELS[role]: (of[UNIFORMITY], of[ALIGNMENT])}
            if "untrained" in named:
                links.append((LABELS["untrained"], LABELS["measured"]))
            note = f"points of papers: {source}"
            heading = Heading(f"Alignment and uniformity, {run.data_name(evaluator)}", run.whose, note)
            yield evaluator, alignment_uniformity_plane(PlanePoints(named, links), heading)


def _reported_points() -> tuple[dict[str, UniformityAlignment], str]:
    """Return row → uniformity and alignment from all papers' tables with both, and the names of these tables."""
    found: dict[str, UniformityAlignment] = {}
    sources: list[str] = []
    for paper in map(papers.load, papers.names()):
        for table in paper.tables.values():
            if set(REPORTED) <= {column.name for column in table.columns}:
                sources.append(f"{paper.short}, Table {table.number}")
                for name in table.rows:
                    alignment, uniformity = (table.values(name)[heading] for heading in REPORTED)
                    if alignment is not None and uniformity is not None:
                        found[name] = (uniformity, alignment)
    return found, "; ".join(sources)
