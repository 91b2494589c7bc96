"""One trial of a recipe: a run a seed, its dev scores reported, cut short where they are not worth going on with.

What a trial makes of what its runs tell: scores to report, and reasons to end.

A run taken up where a killed one left off, and anew where that cannot be.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from statistics import fmean, pstdev

import optuna
import torch
from optuna.exceptions import OptunaError
from sqlalchemy.exc import SQLAlchemyError

from cse_cli import tracking
from cse_cli.core.console import Observer, Pruned, Started
from cse_cli.core.results import Result
from cse_cli.core.run_folder import RunFolder, find, is_finished
from cse_cli.evaluation.evaluate import score
from cse_cli.recipe.load import LoadedRecipe, load
from cse_cli.tracking import location as tags
from cse_cli.tracking.reader import close_run, text_of
from cse_cli.tracking.signals import in_one_line
from cse_cli.tracking.store import REFUSED
from cse_cli.training import run as recording
from cse_cli.training.build import Below, Job
from cse_cli.training.run import execute
from cse_cli.tuning import study as words
from cse_cli.tuning.config import Plan
from cse_cli.tuning.samplers import pruner_name
from cse_cli.tuning.study import common
from cse_cli.tuning.workers import TrialFailed
from registry.errors import CseError, MissingError, RunFailedError, TrackingError


class RecipeTrial:
    """The objective of a search: trains the recipe with a trial's values, and returns its dev score.

    Args:
        plan: What is searched.
        seeds: Of every trial.
        parent: The search's run in the tracking store.
        observer: Hears of the runs.
    """

    def __init__(self, plan: Plan, seeds: Sequence[int], parent: str | None, observer: Observer) -> None:
        self.plan = plan
        self.seeds = tuple(seeds)
        self.parent = parent
        self.observer = observer

    def __call__(self, trial: optuna.Trial) -> float:
        """Return the score of the selected state, the mean over seeds.

        Raises:
            TrialFailed: It cannot be done with these values.
            TrialPruned: It is not worth going on with.
            CseError: It cannot be done on this machine, whatever the values.
        """
        own = words.OWN in trial.user_attrs
        try:
            return self._one_run(trial) if len(self.seeds) == 1 else self._several_runs(trial)
        except Pruned as pruned:
            raise optuna.TrialPruned(str(pruned)) from None
        except (TrackingError, MissingError, optuna.TrialPruned, TrialFailed):
            raise
        except CseError as error:
            if own and not isinstance(error, RunFailedError):
                raise  # the recipe itself is at fault
            raise self._failed(trial, error) from None
        except (OptunaError, SQLAlchemyError):
            raise  # the study's storage
        except Exception as error:
            raise self._failed(trial, error) from None
        finally:
            # The next trial needs the room: models hold themselves by cycles, and errors hold models.
            gc.collect()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()

    def _failed(self, trial: optuna.Trial, error: Exception) -> TrialFailed:
        for run_id in trial.user_attrs.get(words.RUNS, {}).values():
            discard(run_id)
        return TrialFailed(in_one_line(error))

    def _one_run(self, trial: optuna.Trial) -> float:
        below = Below(self.parent, self._named(trial), self._tags(trial))
        return self._run(trial, self.seeds[0], below)

    def _several_runs(self, trial: optuna.Trial) -> float:
        """Run every seed below a run of the trial's own, which has their mean."""
        named = self._named(trial)
        tracker = self._summary(trial, named)
        trial.set_user_attr(words.RUN, tracker.run_id)
        with tracking.ending(tracker):
            scores = self._each_seed(trial, tracker, named)
            tracker.metrics({"score/mean": fmean(scores), "score/spread": pstdev(scores)}, len(scores))
        return fmean(scores)

    def _summary(self, trial: optuna.Trial, named: str) -> tracking.Tracker:
        """Return the record of the trial as a whole: that of the lost one that it repeats, or a new one."""
        if (run_id := trial.user_attrs.get(words.RUN)) is not None:
            with suppress(CseError):
                return tracking.start(named, {}, self._tags(trial), run_id)
        loaded = self._load(trial, self.seeds[0])
        plain = recording.run_tags(Job(loaded, self.seeds[0]))
        mine = {**plain, **self._tags(trial), tags.SEED: _listed(self.seeds), tags.SUMMARY: "seeds"}
        return tracking.start(named, recording.params(loaded.recipe.resolved()), mine, parent=self.parent)

    def _each_seed(self, trial: optuna.Trial, tracker: tracking.Tracker, named: str) -> list[float]:
        by_pairs = pruner_name(self.plan) == "wilcoxon"
        known: dict[str, float] = dict(trial.user_attrs.get(words.SCORES, {}))
        scores: list[float] = []
        for place, seed in enumerate(self.seeds):
            if str(seed) not in known:
                below = Below(tracker.run_id, f"seed {seed} of {named}", self._tags(trial))
                known[str(seed)] = self._run(trial, seed, below)
                trial.set_user_attr(words.SCORES, known)
            scores.append(known[str(seed)])
            tracker.metrics({"score/seed": scores[-1]}, place)
            # Wilcoxon's test pairs seed with seed; the others compare how high a trial has come.
            report(trial, scores[-1] if by_pairs else fmean(scores), place)
            if place + 1 < len(self.seeds) and trial.should_prune():
                tracker.tags({tags.PRUNED: "true"})
                raise Pruned(f"mean {fmean(scores):.2f} over {len(scores)} seeds")
        return scores

    def _run(self, trial: optuna.Trial, seed: int, below: Below) -> float:
        loaded = self._load(trial, seed)
        if (known := self._finished(trial, seed)) is not None:
            return _score(known)
        heard = Heard(trial, seed, self.observer, cut=len(self.seeds) == 1)
        resume = self._unfinished(trial, seed, loaded)
        job = Job(loaded, seed, self.plan.device, resume, below=below, lean=True)
        return _score(resumed(job, heard))

    def _load(self, trial: optuna.Trial, seed: int) -> LoadedRecipe:
        values = {} if words.OWN in trial.user_attrs else trial.params
        chosen = [
            text
            for knob in self.plan.knobs
            if values.get(knob.name) is not None
            for text in knob.overrides(values[knob.name])
        ]
        return load(self.plan.recipe, [*common(self.plan), *chosen, f"train.seed={seed}"], self.plan.unset)

    def _finished(self, trial: optuna.Trial, seed: int) -> Result | None:
        """Return what the lost trial that this one repeats had come to before it could say so."""
        run_id = trial.user_attrs.get(words.RUNS, {}).get(str(seed))
        if words.RETRY_OF not in trial.user_attrs or run_id is None or not is_finished(run_id):
            return None
        text = text_of(run_id, "result.json")
        return None if text is None else Result.model_validate_json(text)

    def _unfinished(self, trial: optuna.Trial, seed: int, loaded: LoadedRecipe) -> RunFolder | None:
        """Return the run of the lost trial that this one repeats, where its checkpoint lies on this machine."""
        run_id = trial.user_attrs.get(words.RUNS, {}).get(str(seed))
        if words.RETRY_OF not in trial.user_attrs or run_id is None or is_finished(run_id):
            return None  # a pruned run is finished too
        try:
            folder = find(run_id)
        except CseError:
            _close(run_id)
            return None
        if not folder.is_of(loaded.recipe.resolved()):
            return None
        lost = trial.study.get_trials(deepcopy=False)[trial.user_attrs[words.RETRY_OF]]
        if len(self.seeds) == 1:
            for step, value in lost.intermediate_values.items():
                report(trial, value, step)
        return folder

    def _named(self, trial: optuna.Trial) -> str:
        """Return what sets the trial apart first: lists of runs show no more of a name than its beginning."""
        return f"trial {trial.number} of {self.plan.name}"

    def _tags(self, trial: optuna.Trial) -> dict[str, str]:
        return {tags.TUNE: self.plan.name, tags.TRIAL: str(trial.number)}


def _score(result: Result) -> float:
    """Return the dev score of the selected state."""
    if result.selected_step is not None:
        return result.curve[result.selected_step]
    value = score(result.scores, result.select) if result.select is not None and not result.steps else math.nan
    if math.isnan(value):
        raise TrialFailed("the dev score is not a number")
    return value


def _close(run_id: str) -> None:
    """Close the record of a run that another machine left behind."""
    with suppress(CseError, *REFUSED):
        close_run(run_id, force=True)


def _listed(seeds: Sequence[int]) -> str:
    return ",".join(map(str, seeds))


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


def resumed(job: Job, observer: Observer) -> Result:
    """Run a job to its end, anew where the run it is to take up cannot go on.

    Raises:
        CseError: It could not start, or failed on the way.
        Pruned: The observer ended it.
    """
    try:
        return execute(job, observer)
    except CseError as error:
        if job.resume is None or error.exit_code != CseError.exit_code:
            raise
        observer.warned(f"run {job.resume.run_id[:8]} cannot go on, so it starts anew: {error.message}")
    discard(job.resume.run_id)
    return execute(replace(job, resume=None), observer)


def discard(run_id: str) -> None:
    """Delete the checkpoints of a run that nobody will go on with."""
    with suppress(CseError):
        find(run_id).close()
