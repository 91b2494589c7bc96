"""Scores of a finished run by name, its main metrics, and its gains over the untrained encoder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cse_cli.core.results import RANKED, STS_TASKS, Result, Scores, paper_average
from registry.papers import AVERAGE


def metric_value(scores: Scores, metric: str) -> float | None:
    """Return `evaluator.metric` of a run's scores, or as `avg` the papers' average of the seven English sets."""
    if metric == AVERAGE:
        return paper_average(scores, STS_TASKS, RANKED)
    evaluator, _, name = metric.rpartition(".")
    return scores.get(evaluator, {}).get(name)


def main_metrics(scores: Scores) -> dict[str, str]:
    """Return evaluator → its main metric as `evaluator.metric`. Evaluators report it first."""
    return {name: f"{name}.{next(iter(metrics))}" for name, metrics in scores.items() if metrics}


def main_metric(result: Result) -> str | None:
    """Return the primary metric of a run, or None without scores.

    This is the papers' average if all seven sets are scored, else the first test score by the metric that selects
    states, else the score that selects them.
    """
    if metric_value(result.scores, AVERAGE) is not None:
        return AVERAGE
    tests, metric = result.tests()
    scored = [name for name, values in result.scores.items() if metric in values]
    if not scored:
        return None
    return f"{tests[0]}.{metric}" if tests else result.metric_for_best_model or f"{scored[0]}.{metric}"


@dataclass(frozen=True)
class Headline:
    """One score of a run, and that of its encoder before training. `metric`: `avg` or `evaluator.metric`."""

    metric: str
    score: float
    untrained: float | None

    @property
    def name(self) -> str:
        """Short name of the metric: `avg`, or its evaluator."""
        return self.metric.rpartition(".")[0] or self.metric

    @property
    def gain(self) -> float | None:
        """Difference of the score from that before training."""
        return None if self.untrained is None else self.score - self.untrained


def headlines(result: Result) -> Iterator[Headline]:
    """Yield the primary metric, and also the selecting one if the primary has no score before training."""
    main = main_metric(result)
    for metric in dict.fromkeys((main, result.metric_for_best_model)):
        score = None if metric is None else metric_value(result.scores, metric)
        if metric is not None and score is not None:
            before = metric_value(result.untrained, metric)
            if before is None and metric == result.metric_for_best_model:
                before = result.curve.get(0)
            yield (found := Headline(metric, score, before))
            if found.untrained is not None:
                return
