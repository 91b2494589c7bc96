"""Which numbers of two runs can be compared, and what they are called."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from cse_cli.results import STS_TASKS, Result
from registry.errors import UnknownNameError, suggestion

AVERAGE = "avg"
"""The mean of the seven English sets."""
RANKED = "spearman"
"""Metric of the seven sets in every table."""


def value(result: Result, metric: str) -> float | None:
    """Return a run's `evaluator.metric`, or its average as the papers make it: of scores rounded to two decimals."""
    if metric == AVERAGE:
        found = [result.scores.get(name, {}).get(RANKED) for name in STS_TASKS]
        known = [round(score, 2) for score in found if score is not None]
        return fmean(known) if len(known) == len(STS_TASKS) else None
    evaluator, _, name = metric.rpartition(".")
    return result.scores.get(evaluator, {}).get(name)


def shared(runs: Sequence[Result]) -> list[str]:
    """Return each evaluator's main metric that all runs have, in their order, then the average."""
    # Evaluators report the metric they are known by first.
    leading = [f"{name}.{next(iter(scores))}" for name, scores in runs[0].scores.items() if scores]
    return [metric for metric in [*leading, AVERAGE] if all(value(run, metric) is not None for run in runs)]


def asked(names: Sequence[str], runs: Sequence[Result]) -> list[str]:
    """Return the metrics that names mean: `evaluator.metric`, an evaluator for its main metric, or the average.

    Raises:
        UnknownNameError: No run has it.
    """
    every = {f"{name}.{metric}" for run in runs for name, scores in run.scores.items() for metric in scores}
    every |= {AVERAGE for run in runs if value(run, AVERAGE) is not None}
    main = {name: f"{name}.{next(iter(scores))}" for run in runs for name, scores in run.scores.items() if scores}
    found: list[str] = []
    for name in names:
        metric = main.get(name, name)
        if metric not in every:
            raise UnknownNameError(
                f"no run has metric '{name}'.{suggestion(name, [*main, *sorted(every)])}",
                f"known evaluators: {', '.join(main)}; a metric is evaluator.metric, or {AVERAGE}",
            )
        found.append(metric)
    return list(dict.fromkeys(found))


def evaluators(metrics: Sequence[str]) -> list[str]:
    """Return the evaluators whose pairs stand behind metrics."""
    names = [name for m in metrics for name in (STS_TASKS if m == AVERAGE else (m.rpartition(".")[0],))]
    return list(dict.fromkeys(names))
