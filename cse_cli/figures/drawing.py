"""Every figure of one finished run, written to a folder."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from matplotlib.figure import Figure

from cse_cli.figures.bars import task_bars
from cse_cli.figures.content import Outcome, Series, unit
from cse_cli.figures.curve import training_curve
from cse_cli.figures.plane import alignment_uniformity_plane
from cse_cli.figures.similarity import similarity_scatter
from cse_cli.figures.spectrum import singular_value_spectrum
from cse_cli.figures.style import Heading, save, styled
from cse_cli.results import Result

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
