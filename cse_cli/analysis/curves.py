"""Training curves: the mean over seeds by step, with a band of one standard deviation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from statistics import fmean, stdev
from typing import Any

from matplotlib.figure import Figure

from cse_cli.analysis.headlines import metric_value
from cse_cli.core.plotting import GUIDE, Heading, add_legend, label_steps, line_style, new_figure
from cse_cli.core.results import Result

MeanStd = tuple[float, float]
EQUAL = 0.005
"""Difference below which scores before training count as equal."""


@dataclass(frozen=True)
class Curve:
    """Training curves of one setting: scores of each seed at the steps that all have, and before the first step."""

    label: str
    steps: tuple[int, ...]
    scores: tuple[tuple[float, ...], ...]
    before: tuple[float, ...]

    @property
    def best(self) -> str:
        """Best score and its step, with mean and standard deviation over the seeds."""
        tops = [max(zip(scores, (-step for step in self.steps), strict=True)) for scores in self.scores]
        (score, score_std), (step, step_std) = (mean_std([top[place] for top in tops]) for place in (0, 1))
        if len(tops) == 1:
            return f"best {score:.2f} at step {-step:.0f}"
        return f"best {score:.2f} ± {score_std:.2f} at step {-step:.0f} ± {step_std:.0f}"


def mean_std(values: Sequence[float]) -> MeanStd:
    """Return the mean and the sample standard deviation, which is 0 for one value."""
    return fmean(values), stdev(values) if len(values) > 1 else 0.0


def curve_of(label: str, runs: Sequence[Result]) -> Curve | None:
    """Return the dev score by step of runs with the same metric, or None if they have no step in common."""
    finite = [{step for step, score in run.curve.items() if isfinite(score)} for run in runs]
    steps = sorted(set.intersection(*finite)) if runs else []
    before = [metric_value(run.untrained, run.metric_for_best_model or "") for run in runs]
    scores = tuple(tuple(run.curve[step] for step in steps) for run in runs)
    return Curve(label, tuple(steps), scores, tuple(b for b in before if b is not None)) if steps else None


def draw_curves(curves: Sequence[Curve], xlabel: str, ylabel: str, heading: Heading) -> Figure:
    """Draw the mean over the seeds by step with a band of one standard deviation. A marker shows the best step."""
    figure = new_figure(heading, height=2.1 + 0.13 * len(curves))
    axes = figure.add_subplot()
    for place, curve in enumerate(curves):
        at_steps = [mean_std(scores) for scores in zip(*curve.scores, strict=True)]
        means = [mean for mean, _ in at_steps]
        style: dict[str, Any] = line_style(place) | {"markersize": 5.5, "markerfacecolor": "white"}
        best = means.index(max(means))
        label = f"{curve.label}: {curve.best}"
        axes.plot(curve.steps, means, label=label, zorder=3, markevery=[best], markeredgewidth=1.2, **style)
        if len(curve.scores) > 1:
            low, high = ([mean + sign * std for mean, std in at_steps] for sign in (-1, 1))
            axes.fill_between(curve.steps, low, high, color=style["color"], alpha=0.16, linewidth=0, zorder=2)
    before = [score for curve in curves for score in curve.before]
    if before and max(before) - min(before) < EQUAL:
        axes.axhline(fmean(before), label=f"untrained: {fmean(before):.2f}", **GUIDE)
    label_steps(axes, xlabel, ylabel)
    add_legend(figure)
    return figure
