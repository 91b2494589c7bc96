"""What a trial makes of what its runs tell: scores to report, and reasons to end."""

from __future__ import annotations

import math
from collections.abc import Mapping

import optuna

from cse_cli.observer import Observer, Pruned, Started
from cse_cli.tuning import trials as words
from registry.errors import RunFailedError


class Heard:
    """Passes on what a run tells, reports its dev scores to the trial, and ends what is not worth going on with.

    Args:
        trial: Receives the scores.
        seed: Of the run.
        inner: The observer of the person watching.
        cut: Whether dev scores of this run can end it; with several seeds, whole runs are compared instead.
    """

    def __init__(self, trial: optuna.Trial, seed: int, inner: Observer, *, cut: bool) -> None:
        self._trial = trial
        self._seed = seed
        self._inner = inner
        self._cut = cut
        self._total = 0

    def preparing(self, what: str, done: int = 0, total: int = 0) -> None:
        """Pass it on."""
        self._inner.preparing(what, done, total)

    def downloading(self, what: str, done: int, total: int | None) -> None:
        """Pass it on."""
        self._inner.downloading(what, done, total)

    def started(self, run: Started) -> None:
        """Remember which run it is, so that it can be taken up again."""
        self._total = run.steps
        runs = {**self._trial.user_attrs.get(words.RUNS, {}), str(self._seed): run.run_id}
        self._trial.set_user_attr(words.RUNS, runs)
        if self._cut:
            self._trial.set_user_attr(words.RUN, run.run_id)
        self._inner.started(run)

    def stepped(self, step: int, loss: float, rate: float) -> None:
        """Pass it on."""
        self._inner.stepped(step, loss, rate)

    def evaluated(self, step: int, scores: Mapping[str, float], best: bool) -> None:
        """Report the score; end the run where it is not worth going on with.

        The untrained state says nothing of a trial, and after the last step nothing is left to save.
        """
        self._inner.evaluated(step, scores, best)
        value = next(iter(scores.values()))
        if not self._cut or step == 0 or math.isnan(value):
            return
        report(self._trial, value, step)
        if step < self._total and self._trial.should_prune():
            raise Pruned(f"step {step}: dev score {value:.2f}")

    def collapsed(self, text: str) -> None:
        """End the run: sentence vectors that have fallen together do not come apart again."""
        raise RunFailedError(text.partition(";")[0])

    def warned(self, text: str) -> None:
        """Pass it on."""
        self._inner.warned(text)

    def stopped(self, run_id: str | None) -> None:
        """Say nothing: the search goes on by its own command."""


def report(trial: optuna.Trial, value: float, step: int) -> None:
    """Report a score once: a run that was taken up again repeats some steps."""
    known = trial.study.get_trials(deepcopy=False)[trial.number].intermediate_values
    if step not in known:
        trial.report(value, step)
