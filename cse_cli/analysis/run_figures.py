"""What a finished run has to show: from its result to what each figure draws.

Every figure of one finished run, written to a folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from matplotlib.figure import Figure

from cse_cli.analysis import leaderboard
from cse_cli.analysis.figures import (
    Points,
    alignment_uniformity_plane,
    similarity_scatter,
    singular_value_spectrum,
    task_bars,
    training_curve,
)
from cse_cli.core.plotting import Heading, save, styled
from cse_cli.core.results import STS_TASKS, Result
from registry import papers
from registry.papers import AVERAGE

Series = Mapping[str, Mapping[str, Sequence[float]]]
"""Evaluator → name → the numbers behind a figure, as `Evaluator.series` returns them."""
Row = tuple[str, tuple[float | None, ...]]
"""Name in the legend, and one value a task."""
LEGEND = {"ours": "this run", "untrained": "untrained"}
"""Role → how a figure names it."""

ALIGNMENT, UNIFORMITY = "alignment", "uniformity"
"""Metrics that an evaluator of both reports."""
SCATTERS = 3
"""Scatters drawn of one run: each costs a quarter of a second."""
PRINTED = ("ALGN", "UNIF")
"""Headings under which a paper's table prints them."""
UNITS = {"spearman": "Spearman × 100", "pearson": "Pearson × 100"}
"""Metric → how an axis names it, where its own name does not say enough."""


@dataclass(frozen=True)
class Tasks:
    """What one bar chart shows.

    Args:
        names: Below each group of bars.
        evaluators: Those of the names that are an evaluator's.
        rows: Role → legend and values.
        metric: With its unit.
    """

    names: tuple[str, ...]
    evaluators: tuple[str, ...]
    rows: dict[str, Row]
    metric: str


@dataclass(frozen=True)
class Outcome:
    """A finished run.

    Args:
        result: Its scores.
        series: What its evaluators give figures.
        data: Evaluator → "dataset/split" names it read.
        judge: How the run relates to its recipe's file; one that is not its recipe's any more has no paper's row.
    """

    result: Result
    series: Series = field(default_factory=dict)
    data: Mapping[str, Sequence[str]] = field(default_factory=dict)
    judge: leaderboard.Judge = leaderboard.standing

    @property
    def whose(self) -> str:
        """Method and seed."""
        return f"{self.result.title}, seed {self.result.seed}"

    def read(self, evaluators: Sequence[str]) -> str:
        """Return "dataset/split" of one evaluator, or the splits that several read; their names where unknown."""
        names = [name for evaluator in evaluators for name in self.data.get(evaluator, ())]
        if len(names) == 1 or not names:
            return names[0] if names else ", ".join(evaluators)
        splits = sorted({name.rpartition("/")[2] for name in names})
        return f"{' and '.join(splits)} split{'s' if len(splits) > 1 else ''}"

    def numbers(self, *names: str) -> dict[str, tuple[Sequence[float], ...]]:
        """Return evaluator → series of these names, of those that have all of them, not empty."""
        found = {evaluator: tuple(of.get(name, ()) for name in names) for evaluator, of in self.series.items()}
        return {evaluator: those for evaluator, those in found.items() if all(len(one) for one in those)}

    def similarities(self) -> dict[str, tuple[Sequence[float], ...]]:
        """Return evaluator → gold scores and cosines, of at most `SCATTERS`.

        First those whose metric no other evaluator has, which were asked for by themselves; then the one that selects
        and those on the same data set; then the others as the recipe names them.
        """
        selecting = (self.result.select or "").rpartition(".")[0]
        shown = {evaluator: next(iter(scores), "") for evaluator, scores in self.result.scores.items()}
        datasets = {name.rpartition("/")[0] for name in self.data.get(selecting, ())}

        def rank(evaluator: str) -> tuple[bool, bool, bool]:
            alone = list(shown.values()).count(shown.get(evaluator, "")) < 2
            same = any(name.rpartition("/")[0] in datasets for name in self.data.get(evaluator, ()))
            return not alone, evaluator != selecting, not same

        found = self.numbers("gold", "cosine")
        return {evaluator: found[evaluator] for evaluator in sorted(found, key=rank)[:SCATTERS]}

    def tasks(self) -> dict[str, Tasks]:
        """Return name → bar chart: beside the paper's row that the run answers, else a metric beside the untrained."""
        printed = self._beside_paper()
        return {"paper": printed} if printed else self._beside_untrained()

    def points(self) -> dict[str, Points]:
        """Return evaluator → the run among the papers' points."""
        found: dict[str, Points] = {}
        for evaluator, scores in self.result.scores.items():
            if {ALIGNMENT, UNIFORMITY} <= set(scores):
                before = self.result.untrained.get(evaluator)
                known = {"untrained": before, "ours": scores} if before else {"ours": scores}
                own = {role: {LEGEND[role]: (of[UNIFORMITY], of[ALIGNMENT])} for role, of in known.items()}
                printed, source = _printed_points()
                links = [(one, other) for one in printed for other in printed if other.startswith(f"{one} + ")]
                if before:
                    links.append((LEGEND["untrained"], LEGEND["ours"]))
                found[evaluator] = Points({"paper": printed} | own, links, source)
        return found

    def _beside_paper(self) -> Tasks | None:
        asked = self.result.paper
        if asked is None:
            return None
        rows = leaderboard.rows([self.result], self.judge, asked.key, asked.table)
        ours = next((row for row in rows if row.source == "ours" and row.answers == asked.row), None)
        paper = next((row for row in rows if row.source == "paper" and row.name == asked.row), None)
        if ours is None or paper is None or not ours.scores:
            return None
        table = papers.load(asked.key).tables[asked.table]
        shown = [column for column in table.columns if column.name in ours.scores]
        names = tuple(column.name for column in shown)
        values = {
            role: tuple(row.scores[name].mean if name in row.scores else None for name in names)
            for role, row in (("paper", paper), ("ours", ours))
        }
        legend = LEGEND | {"paper": f"{papers.load(asked.key).short}: {asked.row}"}
        evaluators = tuple(column.evaluator for column in shown if column.evaluator not in (None, AVERAGE))
        return Tasks(names, evaluators, {role: (legend[role], values[role]) for role in values}, table.metric)

    def _beside_untrained(self) -> dict[str, Tasks]:
        selecting = (self.result.select or "").rpartition(".")[0]
        groups: dict[str, list[str]] = {}
        for evaluator, scores in self.result.scores.items():
            if scores and evaluator != selecting:
                groups.setdefault(next(iter(scores)), []).append(evaluator)
        return {metric: self._group(metric, names) for metric, names in groups.items() if len(names) > 1}

    def _group(self, metric: str, evaluators: Sequence[str]) -> Tasks:
        rows = {row.source: row.scores for row in leaderboard.rows([self._unprinted], self.judge)}
        names = [*evaluators, *([AVERAGE] if set(STS_TASKS) <= set(evaluators) else [])]
        shown: dict[str, Row] = {}
        for role in ("untrained", "ours"):
            values = tuple(rows[role][name].mean if name in rows.get(role, {}) else None for name in names)
            if any(value is not None for value in values):
                shown[role] = (LEGEND[role], values)
        return Tasks(tuple(names), tuple(evaluators), shown, unit(metric))

    @property
    def _unprinted(self) -> Result:
        """The result as one that answers no printed row."""
        return self.result.model_copy(update={"paper": None})


def unit(metric: str) -> str:
    """Return how an axis names a metric."""
    return UNITS.get(metric, metric.replace("_", " "))


def _printed_points() -> tuple[dict[str, tuple[float, float]], str]:
    """Return row → uniformity and alignment of every paper's table that prints both, and which tables these are."""
    found: dict[str, tuple[float, float]] = {}
    sources: list[str] = []
    for key in papers.names():
        for table in papers.load(key).tables.values():
            if set(PRINTED) <= {column.name for column in table.columns}:
                sources.append(f"{papers.load(key).short}, Table {table.number}")
                for name in table.rows:
                    alignment, uniformity = (table.values(name)[heading] for heading in PRINTED)
                    if alignment is not None and uniformity is not None:
                        found[name] = (uniformity, alignment)
    return found, "; ".join(sources)


UNKNOWN: Mapping[str, Sequence[str]] = MappingProxyType({})


def draw(result: Result, series: Series, folder: Path, data: Mapping[str, Sequence[str]] = UNKNOWN) -> list[Path]:
    """Write, as SVG and as PNG, each figure that there is data for; return the files.

    Args:
        result: What the run says.
        series: Evaluator → name → the numbers behind a figure.
        folder: Made if missing.
        data: Evaluator → "dataset/split" names it read, for the titles.
    """
    files: list[Path] = []
    with styled():
        for name, figure in figures(Outcome(result, series, data)):
            folder.mkdir(parents=True, exist_ok=True)
            files += save(figure, folder / name)
    return files


def figures(outcome: Outcome) -> Iterator[tuple[str, Figure]]:
    """Yield the name of each figure there is data for, and the figure; to be drawn and saved inside `styled`."""
    yield from _curve(outcome)
    yield from _tasks(outcome)
    yield from _similarities(outcome)
    yield from _spectra(outcome)
    yield from _planes(outcome)


def _curve(outcome: Outcome) -> Iterator[tuple[str, Figure]]:
    result = outcome.result
    if result.curve and result.select is not None:
        evaluator, _, metric = result.select.rpartition(".")
        heading = Heading(f"Training curve: {unit(metric)}, {outcome.read([evaluator])}", outcome.whose)
        untrained = result.untrained.get(evaluator, {}).get(metric)
        figure = training_curve(result.curve, result.selected_step, untrained, unit(metric), heading)
        yield "training_curve", figure


def _tasks(outcome: Outcome) -> Iterator[tuple[str, Figure]]:
    for name, tasks in outcome.tasks().items():
        heading = Heading(f"Tasks: {tasks.metric}, {outcome.read(tasks.evaluators)}", outcome.whose)
        yield f"tasks_{_file_name(name)}", task_bars(tasks.names, tasks.rows, tasks.metric, heading)


def _similarities(outcome: Outcome) -> Iterator[tuple[str, Figure]]:
    for evaluator, (gold, cosine) in outcome.similarities().items():
        note = ", ".join([*_range(outcome.result.scores.get(evaluator, {})), f"{len(gold):,}\N{NO-BREAK SPACE}pairs"])
        heading = Heading(f"Gold score and cosine, {outcome.read([evaluator])}", outcome.whose, note)
        of = outcome.series[evaluator]
        bands = (of.get("bin_gold", ()), of.get("bin_cosine", ()))
        yield f"similarity_{_file_name(evaluator)}", similarity_scatter(gold, cosine, bands, heading)


def _range(scores: Mapping[str, float]) -> list[str]:
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


def _spectra(outcome: Outcome) -> Iterator[tuple[str, Figure]]:
    for evaluator, (values,) in outcome.numbers("singular_values").items():
        if max(values) > 0:
            rank = outcome.result.scores.get(evaluator, {}).get("effective_rank")
            note = "" if rank is None else f"effective rank {rank:.1f} of {len(values)}"
            heading = Heading(f"Singular values of the embeddings, {outcome.read([evaluator])}", outcome.whose, note)
            yield f"singular_values_{_file_name(evaluator)}", singular_value_spectrum(values, heading)


def _planes(outcome: Outcome) -> Iterator[tuple[str, Figure]]:
    for evaluator, points in outcome.points().items():
        heading = Heading(f"Alignment and uniformity, {outcome.read([evaluator])}", outcome.whose)
        yield f"alignment_uniformity_{_file_name(evaluator)}", alignment_uniformity_plane(points, heading)


def _file_name(name: str) -> str:
    """Return a name that every file system takes."""
    return re.sub(r"[^\w.-]", "_", name)
