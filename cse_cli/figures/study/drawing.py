"""The figure of a study, written to a folder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from cse_cli.figures.content import unit
from cse_cli.figures.study.curves import curves
from cse_cli.figures.study.panels import Labels
from cse_cli.figures.study.points import MEASURE, ROW, STEP, Findings
from cse_cli.figures.study.rows import rows
from cse_cli.figures.study.sweep import sweep
from cse_cli.figures.style import Heading, save, styled
from cse_cli.results import Result
from cse_cli.study.cells import Cell
from cse_cli.study.schema import Study
from registry import papers
from registry.papers import AVERAGE

MEAN = "mean Spearman × 100"
NAMED = 2
"""Recipes that a heading names, at most."""


def draw_study(study: Study, cells: Sequence[Cell], results: Iterable[Result], folder: Path) -> list[Path]:
    """Write, as SVG and as PNG, the figure that a study asks for; return the files: none without anything to draw.

    Args:
        study: Without a figure, nothing is drawn.
        cells: Of the study.
        results: Finished runs; those of other recipes than the cells' are left out.
        folder: Made if missing. The files are named after the study.
    """
    findings = Findings(study, cells, results)
    if study.figure is None or not findings.finished():
        return []
    with styled():
        figure = _figure(findings)
        if figure is None:
            return []
        folder.mkdir(parents=True, exist_ok=True)
        return save(figure, folder / study.name.rpartition("/")[2])


def _figure(findings: Findings) -> Figure | None:
    """Return the figure, None where the runs lack what it shows; to be drawn and saved inside `styled`."""
    spec, heading = findings.figure, _heading(findings)
    if spec.x == STEP:
        found = findings.curves()
        labels = Labels(spec.xlabel or STEP, spec.ylabel or _named(spec.y or findings.study.score or ""), "")
        return curves(found, labels, heading) if found else None
    points = findings.points()
    if not any(point.values for point in points):
        return None
    labels = Labels(
        x=spec.xlabel or spec.x.removeprefix(MEASURE),
        y=spec.ylabel or " or ".join(dict.fromkeys(_named(score) for score in findings.scores() if score)),
        ours="this study",
        paper=_source(findings.study),
        log_x=spec.log_x,
        measured=spec.x.startswith(MEASURE),
        joined=not spec.x.startswith(MEASURE) or spec.lines is not None,
    )
    return (rows if spec.x == ROW else sweep)(points, labels, heading)


def _heading(findings: Findings) -> Heading:
    """Return the title, which recipes ran with how many seeds, and how much of the study is still missing."""
    study, finished = findings.study, findings.finished()
    names = list(dict.fromkeys(cell.recipe for cell in findings.cells if findings.runs(cell)))
    least, most = (end(len(runs) for runs in finished) for end in (min, max))
    seeds = f"{least} seed{'s' if most > 1 else ''}" if least == most else f"{least} to {most} seeds"
    spread = "" if most == 1 else ", mean ± standard deviation"
    whole = len({cell.hash for cell in findings.cells})
    notes = [] if len(finished) == whole else [f"{len(finished)} of {whole} settings have finished runs"]
    whose = ", ".join(names) if len(names) <= NAMED else f"{len(names)} recipes"
    return Heading(study.title, f"{whose}; {seeds}{spread}", "; ".join([*notes, *_quoted(study)]))


def _quoted(study: Study) -> list[str]:
    """Return the numbers that a paper's text gives of the figure a study answers."""
    if study.answers is None:
        return []
    key, identifier = study.answers
    paper = papers.load(key)
    figure = paper.figures.get(identifier)
    if figure is None:
        return []
    numbers = [f"{q.what} {q.value:,g}" + (f" to {q.high:,g}" if q.high is not None else "") for q in figure.quoted]
    return [f"{paper.short}, Figure {figure.number}: {', '.join(numbers)}"] if numbers else []


def _named(score: str) -> str:
    """Return how an axis names a score."""
    return MEAN if score == AVERAGE else unit(score.rpartition(".")[2])


def _source(study: Study) -> str:
    """Return the table whose numbers are printed beside ours."""
    if study.answers is None:
        return ""
    key, identifier = study.answers
    paper = papers.load(key)
    return f"{paper.short}, {paper.tables[identifier].title}" if identifier in paper.tables else paper.short
