"""The figures of a run: those it drew when it ended, and those of its seeds together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cse_cli.compare.sides import Side
from cse_cli.home import runs
from cse_cli.report.parts import Part, Picture, Section, plain_table
from cse_cli.report.subject import Subject
from cse_cli.report.words import mean
from cse_cli.results import Result
from cse_cli.tracking import reader

CURVE = "training_curve"
"""Figure of a run that belongs to its training."""
LOSS, PARTS = "train/loss", "loss/"
"""Metrics that are recorded while training."""


def training(subject: Subject, beside: Side | None) -> Section:
    """Return the curves, and what was measured of the method."""
    own = [picture for picture in _drawn(subject) if picture.name == CURVE]
    groups = [(subject.result.recipe, subject.results)]
    groups += [(beside.name, list(beside.runs.values()))] if beside else []
    parts: list[Part] = [*own, *_together(groups), *_losses(subject)]
    names = dict.fromkeys(name for result in subject.results for name in result.measures)
    if names:
        rows = [(name, mean([r.measures[name] for r in subject.results if name in r.measures])) for name in names]
        parts.append(plain_table("What was measured", ("mean ± standard deviation over the seeds",), rows))
    return Section("Training", tuple(parts))


def others(subject: Subject) -> Section:
    """Return the other figures that the run drew."""
    return Section("Figures", tuple(picture for picture in _drawn(subject) if picture.name != CURVE))


def _drawn(subject: Subject) -> list[Picture]:
    """Return the figures that the run drew, from its folder on this machine or else from the store."""
    run_id = subject.run.run_id
    here = [f"figures/{path.name}" for path in sorted((runs() / run_id / "figures").glob("*.svg"))]
    kept = here or [name for name in subject.details.artifacts if name.startswith("figures/") and name.endswith(".svg")]
    texts = {Path(name).stem: reader.text_of(run_id, name) for name in kept}
    alt = f"{subject.result.title}, seed {subject.result.seed}"
    return [Picture(name, f"{_words(name)}: {alt}", text.encode()) for name, text in texts.items() if text]


def _words(name: str) -> str:
    return name.replace("_", " ").capitalize()


def _together(groups: Sequence[tuple[str, Sequence[Result]]]) -> list[Picture]:
    """Return the dev score by step over all seeds, a line a recipe; nothing where one seed is all there is."""
    from cse_cli.figures.content import unit  # matplotlib: only where something is drawn
    from cse_cli.figures.study.curves import curves
    from cse_cli.figures.study.panels import Labels
    from cse_cli.figures.study.points import Curve
    from cse_cli.figures.style import Heading

    select = groups[0][1][0].select
    of_all = [(name, [r for r in results if r.curve and r.select == select]) for name, results in groups]
    found = []
    for name, results in of_all:
        steps = tuple(step for step in (results[0].curve if results else ()) if all(step in r.curve for r in results))
        if steps:
            scores = tuple(tuple(result.curve[step] for step in steps) for result in results)
            found.append(Curve(name, steps, scores, (), ()))
    if select is None or sum(len(curve.scores) for curve in found) < 2:
        return []
    labels = Labels("step", unit(select.rpartition(".")[2]), "")
    seeds = " and ".join(str(len(curve.scores)) for curve in found)
    heading = Heading(f"Training curves: {select}", ", ".join(c.label for c in found), f"{seeds} seeds, mean ± std")
    return _picture("training_curves_of_all_seeds", heading.title, lambda: curves(found, labels, heading))


def _losses(subject: Subject) -> list[Picture]:
    """Return what this run minimised."""
    from cse_cli.figures.losses import losses
    from cse_cli.figures.style import Heading

    recorded = subject.details.curves
    if LOSS not in recorded:
        return []
    parts = {name.removeprefix(PARTS): points for name, points in recorded.items() if name.startswith(PARTS)}
    heading = Heading("Loss", f"{subject.result.title}, seed {subject.result.seed}")
    return _picture("loss", "Loss by step", lambda: losses(recorded[LOSS], parts, heading))


def _picture(name: str, alt: str, draw: Callable[[], Any]) -> list[Picture]:
    from cse_cli.figures.style import save, styled

    with TemporaryDirectory() as folder, styled():
        files = save(draw(), Path(folder) / name)
        return [Picture(name, alt, path.read_bytes()) for path in files if path.suffix == ".svg"]
