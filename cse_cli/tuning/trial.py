"""One trial of a recipe: a run per seed, one after the other, its dev scores reported to Optuna."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from statistics import fmean, pstdev

import optuna

from cse_cli import tracking
from cse_cli.core.console import Observer, Pruned, RunInfo
from cse_cli.core.results import Result
from cse_cli.core.run_folder import RunFolder, find, is_finished
from cse_cli.evaluation.evaluate import score
from cse_cli.jobs.executor import discard_checkpoints
from cse_cli.recipe.load import LoadedRecipe, load
from cse_cli.tracking import tags
from cse_cli.tracking.reader import close_run, result_of
from cse_cli.tracking.signals import in_one_line
from cse_cli.tracking.store import REFUSED
from cse_cli.training import run as recording
from cse_cli.training.build import Job
from cse_cli.tuning.config import SearchConfig
from cse_cli.tuning.parameter import settings_of
from cse_cli.tuning.samplers import pruner_name
from cse_cli.tuning.study import OWN, RUN, RUNS, SCORES
from registry.errors import CseError, RunFailedError

Jobs = Generator[Job, Result, float]
"""Yields a job, is sent its result, and so on; returns a score. What ended a job in place of a result is thrown."""


class TrialRuns:
    """The runs of one trial.

    A trial that a driver has left is gone on with: results of its runs are read, and an unfinished one is resumed.

    Args:
        config: What is searched.
        parent: The search's run in the tracking store.
        trial: Has its values.
    """

    def __init__(self, config: SearchConfig, parent: str | None, trial: optuna.Trial) -> None:
        self.config = config
        self.trial = trial
        # What tells trials apart comes first: lists of runs show the beginning of a name.
        self.name = f"trial {trial.number} of {config.name}"
        self.jobs = self._mean_over_seeds(parent) if len(config.seeds) > 1 else self._only_seed(parent)
        self._tags = {**config.tags, tags.TUNE: config.name, tags.TRIAL: str(trial.number)}

    def observer(self, seed: int, inner: Observer) -> Observer:
        """Return who hears the run of a seed: scores on the way count only where they are the trial's."""
        return TrialObserver(self.trial, seed, inner, prunes=len(self.config.seeds) < 2)

    def discard_checkpoints(self) -> None:
        """Delete what nobody will resume."""
        for run_id in self.trial.user_attrs.get(RUNS, {}).values():
            discard_checkpoints(run_id)

    def _only_seed(self, parent: str | None) -> Jobs:
        loaded = self._load(*self.config.seeds)
        return (yield from self._score(loaded, parent, self.name))

    def _mean_over_seeds(self, parent: str | None) -> Jobs:
        """Run every seed below a run of the trial's own, which records their mean."""
        tracker = self._summary_run(parent)
        self.trial.set_user_attr(RUN, tracker.run_id)
        by_pairs = pruner_name(self.config) == "wilcoxon"
        known: dict[str, float] = dict(self.trial.user_attrs.get(SCORES, {}))
        scores: list[float] = []
        with _ending(tracker):
            for place, seed in enumerate(self.config.seeds):
                if str(seed) not in known:
                    name = f"seed {seed} of {self.name}"
                    known[str(seed)] = yield from self._score(self._load(seed), tracker.run_id, name)
                    self.trial.set_user_attr(SCORES, known)
                scores.append(known[str(seed)])
                tracker.metrics({"score/seed": scores[-1]}, place)
                # Wilcoxon's test pairs seed with seed; the other pruners compare how high a trial has come.
                self.trial.report(scores[-1] if by_pairs else fmean(scores), place)
                if place + 1 < len(self.config.seeds) and self.trial.should_prune():
                    raise Pruned(f"mean {fmean(scores):.2f} over {len(scores)} seeds")
            tracker.metrics({"score/mean": fmean(scores), "score/spread": pstdev(scores)}, len(scores))
        return fmean(scores)

    def _summary_run(self, parent: str | None) -> tracking.Tracker:
        """Return the record of the trial as a whole."""
        if (run_id := self.trial.user_attrs.get(RUN)) is not None:
            with suppress(CseError):  # another machine's store may have it
                return tracking.start(self.name, {}, self._tags, run_id)
        seeds = self.config.seeds
        loaded = self._load(seeds[0])
        own = {tags.SEED: ",".join(map(str, seeds)), tags.SUMMARY: "seeds"}
        about = {**recording.run_tags(Job(loaded, seeds[0])), **self._tags, **own}
        return tracking.start(self.name, recording.params(loaded.recipe.resolved()), about, parent=parent)

    def _score(self, loaded: LoadedRecipe, parent: str | None, name: str) -> Jobs:
        """Run one seed, or read its result where it is finished, and return its score."""
        seed = loaded.recipe.train.seed
        begun = self.trial.user_attrs.get(RUNS, {}).get(str(seed))
        left = None if begun is None else _left_of(begun, loaded)
        if isinstance(left, Result):
            return _selected_score(left)
        job = Job(loaded, seed, self.config.device, left, may_restart=True, parent=parent, run_name=name)
        return _selected_score((yield replace(job, tags=self._tags, lean=True)))

    def _load(self, seed: int) -> LoadedRecipe:
        values = {} if OWN in self.trial.user_attrs else self.trial.params
        chosen, removed = settings_of(self.config.parameters, values)
        overrides = [*self.config.trial_overrides, *chosen, f"train.seed={seed}"]
        return load(self.config.recipe, overrides, [*self.config.unset, *removed])


def _left_of(run_id: str, loaded: LoadedRecipe) -> Result | RunFolder | None:
    """Return what there is of a run that was begun: its result, or its folder where it can be resumed.

    Raises:
        Pruned: It was pruned.
    """
    folder = None
    with suppress(CseError):  # on another machine
        folder = find(run_id)
    if folder is not None and not is_finished(run_id):
        return folder if folder.is_of(loaded.recipe.resolved()) else None
    if (result := result_of(run_id)) is not None:
        return result
    if folder is not None:
        raise Pruned(f"run {run_id[:8]}")
    with suppress(CseError, *REFUSED):
        close_run(run_id, force=True)
    return None


def _selected_score(result: Result) -> float:
    """Return the dev score of the selected state.

    Raises:
        RunFailedError: It is NaN.
    """
    if result.selected_step is not None:
        return result.curve[result.selected_step]
    value = score(result.scores, result.select) if result.select is not None and not result.steps else math.nan
    if math.isnan(value):
        raise RunFailedError("the dev score is NaN")
    return value


@contextmanager
def _ending(tracker: tracking.Tracker) -> Iterator[None]:
    """Close the record of several runs as that of one is closed: several trials are open at once."""
    try:
        yield
    except Pruned:
        tracker.tags({tags.PRUNED: "true"})
        tracker.finish("FINISHED")
        raise
    except Exception as error:
        tracker.tags({tags.REASON: in_one_line(error)})
        tracker.finish("FAILED")
        raise
    except BaseException:  # the driver leaves the trial
        tracker.finish("KILLED")
        raise
    tracker.finish("FINISHED")


class TrialObserver:
    """Passes on what a run tells, reports its dev scores to the trial, and ends it where the pruner says so.

    Args:
        trial: Gets the scores.
        seed: Of the run.
        inner: Shows the run.
        prunes: Whether dev scores of this run can end it; with several seeds, whole runs are compared instead.
    """

    def __init__(self, trial: optuna.Trial, seed: int, inner: Observer, *, prunes: bool) -> None:
        self._trial = trial
        self._seed = seed
        self._inner = inner
        self._prunes = prunes
        self._total = 0
        self.preparing, self.downloading = inner.preparing, inner.downloading
        self.warned, self.scoring = inner.warned, inner.scoring

    def started(self, run: RunInfo) -> None:
        """Remember which run it is, so that it can be resumed."""
        self._total = run.steps
        self._trial.set_user_attr(RUNS, {**self._trial.user_attrs.get(RUNS, {}), str(self._seed): run.run_id})
        if self._prunes:
            self._trial.set_user_attr(RUN, run.run_id)
        self._inner.started(run)

    def stepped(self, step: int, loss: float, rate: float) -> None:
        """Pass it on."""
        self._inner.stepped(step, loss, rate)

    def evaluated(self, step: int, scores: Mapping[str, float], best: bool) -> None:
        """Report the score; end the run where the pruner says so.

        The untrained state says nothing of a trial, and after the last step nothing is left to save.
        """
        self._inner.evaluated(step, scores, best)
        value = next(iter(scores.values()))
        if not self._prunes or step == 0 or math.isnan(value):
            return
        self._trial.report(value, step)
        if step < self._total and self._trial.should_prune():
            raise Pruned(f"step {step}: dev score {value:.2f}")

    def collapsed(self, text: str) -> None:
        """End the run: collapsed sentence vectors do not recover."""
        raise RunFailedError(text.partition(";")[0])

    def stopped(self, run_id: str | None) -> None:
        """Say nothing: the search is resumed by its own command."""
