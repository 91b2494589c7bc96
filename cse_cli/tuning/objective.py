"""One trial of a recipe: a run per seed, its dev scores reported to Optuna, ended early where the pruner says so.

A trial that repeats a lost one takes over its finished runs and resumes its unfinished one.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from statistics import fmean, pstdev

import optuna
import torch
from optuna.exceptions import OptunaError
from sqlalchemy.exc import SQLAlchemyError

from cse_cli import tracking
from cse_cli.core.console import Observer, Pruned, RunInfo
from cse_cli.core.results import Result
from cse_cli.core.run_folder import RunFolder, find, is_finished
from cse_cli.evaluation.evaluate import score
from cse_cli.recipe.load import LoadedRecipe, load
from cse_cli.runs.study import discard_checkpoints, execute_or_restart
from cse_cli.tracking import tags
from cse_cli.tracking.reader import close_run, text_of
from cse_cli.tracking.signals import in_one_line
from cse_cli.tracking.store import REFUSED
from cse_cli.training import run as recording
from cse_cli.training.build import Job
from cse_cli.tuning.config import SearchConfig
from cse_cli.tuning.samplers import pruner_name
from cse_cli.tuning.study import OWN, RETRY_OF, RUN, RUNS, SCORES
from registry.errors import CseError, MissingError, RunFailedError, TrackingError


class TrialFailed(Exception):  # noqa: N818 - an outcome, beside Optuna's TrialPruned
    """A trial cannot be done, by its own fault: it counts, and the search goes on."""


class RecipeObjective:
    """The objective of a search: trains the recipe with a trial's values, and returns its dev score.

    Args:
        config: What is searched.
        seeds: Of every trial.
        parent: The search's run in the tracking store.
        observer: Of the runs.
    """

    def __init__(self, config: SearchConfig, seeds: Sequence[int], parent: str | None, observer: Observer) -> None:
        self.config = config
        self.seeds = tuple(seeds)
        self.parent = parent
        self.observer = observer

    def __call__(self, trial: optuna.Trial) -> float:
        """Return the score of the selected state, the mean over seeds.

        Raises:
            TrialFailed: It cannot be done with these values.
            TrialPruned: The pruner has ended it.
            CseError: It cannot be done on this machine, whatever the values.
        """
        try:
            if len(self.seeds) > 1:
                return self._mean_over_seeds(trial)
            return self._run(trial, self.seeds[0], self.parent, self._name(trial))
        except Pruned as pruned:
            raise optuna.TrialPruned(str(pruned)) from None
        except (TrackingError, MissingError, optuna.TrialPruned, TrialFailed):
            raise
        except (OptunaError, SQLAlchemyError):
            raise  # of the study's storage
        except Exception as error:
            own_fault = (
                OWN in trial.user_attrs and isinstance(error, CseError) and not isinstance(error, RunFailedError)
            )
            if own_fault:
                raise  # the recipe itself is at fault
            for run_id in trial.user_attrs.get(RUNS, {}).values():
                discard_checkpoints(run_id)
            raise TrialFailed(in_one_line(error)) from None
        finally:
            # The next trial needs the memory: models are in reference cycles, and errors hold models.
            gc.collect()
            torch.cuda.empty_cache()  # does nothing where CUDA is not in use

    def _mean_over_seeds(self, trial: optuna.Trial) -> float:
        """Run every seed below a run of the trial's own, which records their mean."""
        name = self._name(trial)
        tracker = self._summary_run(trial, name)
        trial.set_user_attr(RUN, tracker.run_id)
        by_pairs = pruner_name(self.config) == "wilcoxon"
        known: dict[str, float] = dict(trial.user_attrs.get(SCORES, {}))
        scores: list[float] = []
        with tracking.ending(tracker):
            for place, seed in enumerate(self.seeds):
                if str(seed) not in known:
                    known[str(seed)] = self._run(trial, seed, tracker.run_id, f"seed {seed} of {name}")
                    trial.set_user_attr(SCORES, known)
                scores.append(known[str(seed)])
                tracker.metrics({"score/seed": scores[-1]}, place)
                # Wilcoxon's test pairs seed with seed; the other pruners compare how high a trial has come.
                report_once(trial, scores[-1] if by_pairs else fmean(scores), place)
                if place + 1 < len(self.seeds) and trial.should_prune():
                    tracker.tags({tags.PRUNED: "true"})
                    raise Pruned(f"mean {fmean(scores):.2f} over {len(scores)} seeds")
            tracker.metrics({"score/mean": fmean(scores), "score/spread": pstdev(scores)}, len(scores))
        return fmean(scores)

    def _summary_run(self, trial: optuna.Trial, name: str) -> tracking.Tracker:
        """Return the record of the trial as a whole: that of the lost one that it repeats, or a new one."""
        if (run_id := trial.user_attrs.get(RUN)) is not None:
            with suppress(CseError):
                return tracking.start(name, {}, self._tags(trial), run_id)
        loaded = self._load(trial, self.seeds[0])
        plain = recording.run_tags(Job(loaded, self.seeds[0]))
        own = {tags.SEED: ",".join(map(str, self.seeds)), tags.SUMMARY: "seeds"}
        params = recording.params(loaded.recipe.resolved())
        return tracking.start(name, params, {**plain, **self._tags(trial), **own}, parent=self.parent)

    def _run(self, trial: optuna.Trial, seed: int, parent: str | None, name: str) -> float:
        """Run one seed, or read its result where a lost trial has finished it, and return its score."""
        loaded = self._load(trial, seed)
        lost = trial.user_attrs.get(RUNS, {}).get(str(seed)) if RETRY_OF in trial.user_attrs else None
        result = None if lost is None else _finished_result(lost)
        if result is None:
            resume = None if lost is None else self._unfinished_run(trial, lost, loaded)
            job = Job(
                loaded,
                seed,
                self.config.device,
                resume,
                parent=parent,
                run_name=name,
                tags=self._tags(trial),
                lean=True,
            )
            observer = TrialObserver(trial, seed, self.observer, prunes=len(self.seeds) == 1)
            result = execute_or_restart(job, observer, discard=True)
        return _score(result)

    def _load(self, trial: optuna.Trial, seed: int) -> LoadedRecipe:
        values = {} if OWN in trial.user_attrs else trial.params
        chosen = [
            text
            for parameter in self.config.parameters
            if values.get(parameter.name) is not None
            for text in parameter.overrides(values[parameter.name])
        ]
        overrides = [*self.config.trial_overrides, *chosen, f"train.seed={seed}"]
        return load(self.config.recipe, overrides, self.config.unset)

    def _unfinished_run(self, trial: optuna.Trial, run_id: str, loaded: LoadedRecipe) -> RunFolder | None:
        """Return the run of the lost trial that this one repeats, where its checkpoint lies on this machine."""
        if is_finished(run_id):
            return None  # pruned
        try:
            folder = find(run_id)
        except CseError:
            with suppress(CseError, *REFUSED):
                close_run(run_id, force=True)  # another machine left it behind
            return None
        if not folder.is_of(loaded.recipe.resolved()):
            return None
        if len(self.seeds) == 1:
            lost = trial.study.get_trials(deepcopy=False)[trial.user_attrs[RETRY_OF]]
            for step, value in lost.intermediate_values.items():
                report_once(trial, value, step)
        return folder

    def _name(self, trial: optuna.Trial) -> str:
        # What tells trials apart comes first: lists of runs show the beginning of a name.
        return f"trial {trial.number} of {self.config.name}"

    def _tags(self, trial: optuna.Trial) -> dict[str, str]:
        return {tags.TUNE: self.config.name, tags.TRIAL: str(trial.number)}


def _finished_result(run_id: str) -> Result | None:
    text = text_of(run_id, "result.json") if is_finished(run_id) else None
    return None if text is None else Result.model_validate_json(text)


def _score(result: Result) -> float:
    """Return the dev score of the selected state."""
    if result.selected_step is not None:
        return result.curve[result.selected_step]
    value = score(result.scores, result.select) if result.select is not None and not result.steps else math.nan
    if math.isnan(value):
        raise TrialFailed("the dev score is NaN")
    return value


class TrialObserver:
    """Passes on what a run tells, reports its dev scores to the trial, and ends it where the pruner says so.

    Args:
        trial: Gets the scores.
        seed: Of the run.
        inner: The observer of the search.
        prunes: Whether dev scores of this run can end it; with several seeds, whole runs are compared instead.
    """

    def __init__(self, trial: optuna.Trial, seed: int, inner: Observer, *, prunes: bool) -> None:
        self._trial = trial
        self._seed = seed
        self._inner = inner
        self._prunes = prunes
        self._total = 0

    def preparing(self, what: str, done: int = 0, total: int = 0) -> None:
        """Pass it on."""
        self._inner.preparing(what, done, total)

    def downloading(self, what: str, done: int, total: int | None) -> None:
        """Pass it on."""
        self._inner.downloading(what, done, total)

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
        report_once(self._trial, value, step)
        if step < self._total and self._trial.should_prune():
            raise Pruned(f"step {step}: dev score {value:.2f}")

    def collapsed(self, text: str) -> None:
        """End the run: collapsed sentence vectors do not recover."""
        raise RunFailedError(text.partition(";")[0])

    def warned(self, text: str) -> None:
        """Pass it on."""
        self._inner.warned(text)

    def stopped(self, run_id: str | None) -> None:
        """Say nothing: the search is resumed by its own command."""


def report_once(trial: optuna.Trial, value: float, step: int) -> None:
    """Report a score, unless the step has one: a resumed run repeats some steps."""
    if step not in trial.study.get_trials(deepcopy=False)[trial.number].intermediate_values:
        trial.report(value, step)
