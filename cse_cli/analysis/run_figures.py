"""Every figure of one finished run: from its result and its evaluators' series to files in a folder."""

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
from cse_cli.analysis.paper_tables import paper_table
from cse_cli.core.plotting import Heading, house_style, save
from cse_cli.core.results import STS_TASKS, Result, metric_value
from registry import papers
from registry.papers import AVERAGE

Series = Mapping[str, Mapping[str, Sequence[float]]]
"""Evaluator → name → the numbers behind a figure, as `Evaluator.series` returns them."""
LEGEND = {"ours": "this run", "untrained": "untrained"}
"""Role → its name in a legend."""
ALIGNMENT, UNIFORMITY = "alignment", "uniformity"
"""Metrics that an evaluator of both reports."""
PRINTED = ("ALGN", "UNIF")
"""Headings under which a paper's table prints them."""
SCATTERS = 3
"""Most scatters drawn of one run: each costs a quarter of a second."""
UNITS = {"spearman": "Spearman × 100", "pearson": "Pearson × 100"}
"""Metric → how an axis names it, where its own name does not say enough."""


def unit(metric: str) -> str:
    """Return how an axis names a metric."""
    return UNITS.get(metric, metric.replace("_", " "))


@dataclass(frozen=True)
class TaskScores:
    """What one bar chart shows.

    Args:
        names: Below each group of bars.
        evaluators: Those of the names that are an evaluator's.
        rows: Role → legend, and one value a name.
        metric: With its unit.
    """

    names: tuple[str, ...]
    evaluators: tuple[str, ...]
    rows: dict[str, tuple[str, tuple[float | None, ...]]]
    metric: str


@dataclass(frozen=True)
class FinishedRun:
    """A run and the numbers behind its figures.

    Args:
        result: Its scores.
        series: What its evaluators give figures.
        data: Evaluator → "dataset/split" names it read, for the titles.
        status_of: How the run relates to its recipe's file; one that is not its recipe's any more has no paper's row.
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
        """The evaluator that chose the state; empty where none did."""
        return (self.result.select or "").rpartition(".")[0]

    def data_name(self, evaluators: Sequence[str]) -> str:
        """Return "dataset/split" of one evaluator, or the splits that several read; their names where unknown."""
        names = [name for evaluator in evaluators for name in self.data.get(evaluator, ())]
        if len(names) == 1 or not names:
            return names[0] if names else ", ".join(evaluators)
        splits = sorted({name.rpartition("/")[2] for name in names})
        return f"{' and '.join(splits)} split{'s' if len(splits) > 1 else ''}"

    def numbers(self, *names: str) -> dict[str, tuple[Sequence[float], ...]]:
        """Return evaluator → series of these names, of those that have all of them, not empty."""
        found = {evaluator: tuple(of.get(name, ()) for name in names) for evaluator, of in self.series.items()}
        return {evaluator: series for evaluator, series in found.items() if all(len(one) for one in series)}

    def similarities(self) -> dict[str, tuple[Sequence[float], ...]]:
        """Return evaluator → gold scores and cosines, of at most `SCATTERS`.

        First those whose metric no other evaluator has, which were asked for by themselves; then the one that selects
        and those on the same data set; then the others as the recipe names them.
        """
        metrics = {evaluator: next(iter(scores), "") for evaluator, scores in self.result.scores.items()}
        datasets = {name.rpartition("/")[0] for name in self.data.get(self.selecting, ())}

        def rank(evaluator: str) -> tuple[bool, bool, bool]:
            alone = list(metrics.values()).count(metrics.get(evaluator, "")) < 2
            same = any(name.rpartition("/")[0] in datasets for name in self.data.get(evaluator, ()))
            return not alone, evaluator != self.selecting, not same

        found = self.numbers("gold", "cosine")
        return {evaluator: found[evaluator] for evaluator in sorted(found, key=rank)[:SCATTERS]}

    def tasks(self) -> dict[str, TaskScores]:
        """Return name → bar chart: beside the paper's row that the run answers, else a metric beside the untrained."""
        if (printed := self._beside_paper()) is not None:
            return {"paper": printed}
        groups: dict[str, list[str]] = {}
        for evaluator, scores in self.result.scores.items():
            if scores and evaluator != self.selecting:
                groups.setdefault(next(iter(scores)), []).append(evaluator)
        return {metric: self._beside_untrained(metric, names) for metric, names in groups.items() if len(names) > 1}

    def _beside_paper(self) -> TaskScores | None:
        paper = self.result.paper
        (configuration,) = configurations([self.result], self.status_of)
        if paper is None or configuration.latest.paper is None:
            return None
        shown, _ = paper_table(paper.key, paper.table, [configuration])
        rows = {row.source: row for row in shown.rows if paper.row in (row.answers, row.name)}
        if "ours" not in rows or "paper" not in rows or not rows["ours"].scores:
            return None
        table = papers.load(paper.key).tables[paper.table]
        columns = [column for column in table.columns if column.name in rows["ours"].scores]
        legend = LEGEND | {"paper": f"{papers.load(paper.key).short}: {paper.row}"}
        values = {
            role: tuple(scores[c.name].mean if c.name in scores else None for c in columns)
            for role in ("paper", "ours")
            if (scores := rows[role].scores) is not None
        }
        return TaskScores(
            names=tuple(column.name for column in columns),
            evaluators=tuple(c.evaluator for c in columns if c.evaluator is not None and c.evaluator != AVERAGE),
            rows={role: (legend[role], of_role) for role, of_role in values.items()},
            metric=table.metric,
        )

    def _beside_untrained(self, metric: str, evaluators: Sequence[str]) -> TaskScores:
        names = [*evaluators, *([AVERAGE] if set(STS_TASKS) <= set(evaluators) else [])]
        shown: dict[str, tuple[str, tuple[float | None, ...]]] = {}
        for role, scores in (("untrained", self.result.untrained), ("ours", self.result.scores)):
            keys = [name if name == AVERAGE else f"{name}.{metric}" for name in names]
            values = tuple(metric_value(scores, key) for key in keys)
            if any(value is not None for value in values):
                shown[role] = (LEGEND[role], values)
        return TaskScores(tuple(names), tuple(evaluators), shown, unit(metric))

    def planes(self) -> dict[str, PlanePoints]:
        """Return evaluator → the run among the papers' points."""
        found: dict[str, PlanePoints] = {}
        for evaluator, scores in self.result.scores.items():
            if {ALIGNMENT, UNIFORMITY} <= set(scores):
                before = self.result.untrained.get(evaluator)
                known = {"untrained": before, "ours": scores} if before else {"ours": scores}
                own = {role: {LEGEND[role]: (of[UNIFORMITY], of[ALIGNMENT])} for role, of in known.items()}
                printed, source = _printed_points()
                links = [(one, other) for one in printed for other in printed if other.startswith(f"{one} + ")]
                if before:
                    links.append((LEGEND["untrained"], LEGEND["ours"]))
                found[evaluator] = PlanePoints({"paper": printed} | own, links, source)
        return found


def _printed_points() -> tuple[dict[str, UniformityAlignment], str]:
    """Return row → uniformity and alignment of every paper's table that prints both, and which tables these are."""
    found: dict[str, UniformityAlignment] = {}
    sources: list[str] = []
    for paper in map(papers.load, papers.names()):
        for table in paper.tables.values():
            if set(PRINTED) <= {column.name for column in table.columns}:
                sources.append(f"{paper.short}, Table {table.number}")
                for name in table.rows:
                    alignment, uniformity = (table.values(name)[heading] for heading in PRINTED)
                    if alignment is not None and uniformity is not None:
                        found[name] = (uniformity, alignment)
    return found, "; ".join(sources)


def draw_run(
    result: Result, series: Series, folder: Path, data: Mapping[str, Sequence[str]] | None = None
) -> list[Path]:
    """Write, as SVG and as PNG, each figure that there is data for; return the files.

    Args:
        result: What the run says.
        series: Evaluator → name → the numbers behind a figure.
        folder: Made if missing.
        data: Evaluator → "dataset/split" names it read, for the titles.
    """
    files: list[Path] = []
    with house_style():
        for name, figure in run_figures(FinishedRun(result, series, data or {})):
            folder.mkdir(parents=True, exist_ok=True)
            files += save(figure, folder / name)
    return files


def run_figures(run: FinishedRun) -> Iterator[tuple[str, Figure]]:
    """Yield the name of each figure there is data for, and the figure; to be drawn and saved inside `styled`."""
    yield from _training_curve(run)
    for name, tasks in run.tasks().items():
        heading = Heading(f"Tasks: {tasks.metric}, {run.data_name(tasks.evaluators)}", run.whose)
        yield f"tasks_{_file_name(name)}", task_bars(tasks.names, tasks.rows, tasks.metric, heading)
    for evaluator, (gold, cosine) in run.similarities().items():
        note = ", ".join([*_ranges(run.result.scores.get(evaluator, {})), f"{len(gold):,}\N{NO-BREAK SPACE}pairs"])
        heading = Heading(f"Gold score and cosine, {run.data_name([evaluator])}", run.whose, note)
        bands = (run.series[evaluator].get("bin_gold", ()), run.series[evaluator].get("bin_cosine", ()))
        yield f"similarity_{_file_name(evaluator)}", similarity_scatter(gold, cosine, bands, heading)
    for evaluator, (values,) in run.numbers("singular_values").items():
        if max(values) > 0:
            rank = run.result.scores.get(evaluator, {}).get("effective_rank")
            note = "" if rank is None else f"effective rank {rank:.1f} of {len(values)}"
            heading = Heading(f"Singular values of the embeddings, {run.data_name([evaluator])}", run.whose, note)
            yield f"singular_values_{_file_name(evaluator)}", singular_value_spectrum(values, heading)
    for evaluator, points in run.planes().items():
        heading = Heading(f"Alignment and uniformity, {run.data_name([evaluator])}", run.whose)
        yield f"alignment_uniformity_{_file_name(evaluator)}", alignment_uniformity_plane(points, heading)


def _training_curve(run: FinishedRun) -> Iterator[tuple[str, Figure]]:
    result = run.result
    if result.curve and result.select is not None:
        metric = unit(result.select.rpartition(".")[2])
        heading = Heading(f"Training curve: {metric}, {run.data_name([run.selecting])}", run.whose)
        untrained = metric_value(result.untrained, result.select)
        yield "training_curve", training_curve(result.curve, result.selected_step, untrained, metric, heading)


def _ranges(scores: Mapping[str, float]) -> list[str]:
    """Return what an evaluator says of its similarities: correlations with their interval, or the cosines' range."""
    lines = []
    for name in ("spearman", "pearson"):
        if name in scores:
            low, high = (scores.get(f"{name}_{end}", scores[name]) for end in ("low", "high"))
            interval = f" ({low:.2f} to {high:.2f})" if low < high else ""
            lines.append(f"{name.capitalize()} {scores[name]:.2f}{interval}")
    if "low" in scores and "high" in scores:
        lines.append(f"most cosines {scores['low']:.2f} to {scores['high']:.2f}")
    return lines


def _file_name(name: str) -> str:
    """Return a name that every file system takes."""
    return re.sub(r"[^\w.-]", "_", name)
