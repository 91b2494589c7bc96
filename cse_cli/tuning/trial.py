"""One trial of a search: a run for each seed, one after the other, whose dev scores are reported to Optuna."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import fmean, pstdev
from uuid import uuid4

import optuna

from cse_cli.core.console import Observer, Pruned, RunInfo
from cse_cli.core.identity import Identity
from cse_cli.core.results import Result
from cse_cli.evaluation.evaluate import score
from cse_cli.recipe.load import LoadedRecipe, load
from cse_cli.runs.events import End
from cse_cli.runs.record import ABOUT, About, RunRecord, delete_checkpoints, folder_of, last_end
from cse_cli.training.build import Job
from cse_cli.training.recording import about_run
from cse_cli.tuning.config import SearchConfig
from cse_cli.tuning.parameter import settings_of
from cse_cli.tuning.record import take_record
from cse_cli.tuning.samplers import pruner_name
from cse_cli.tuning.study import OWN, REASON, RUN, RUNS, SCORES
from registry.errors import RunFailedError


class TrialRuns:
    """The runs of one trial.

    A trial that another process left is continued: the claim of a run returns the result of a finished one, and resumes
    an unfinished one.

    Args:
        config: The search.
        parent: Record of the search.
        trial: The trial. It has its values.
    """

    def __init__(self, config: SearchConfig, parent: About, trial: optuna.Trial) -> None:
        self.trial = trial
        self._config = config
        self._parent = parent
        # What tells trials apart comes first: lists of runs show the beginning of a name.
        self._name = f"trial {trial.number} of {config.name}"
        self._scores: dict[str, float] = dict(trial.user_attrs.get(SCORES, {}))
        self._summary: RunRecord | None = None

    @property
    def score(self) -> float:
        """Mean of the scores of its seeds."""
        return fmean(self._scores.values())

    def next_job(self) -> Job | None:
        """Return the run of the next seed, or None if every seed has a score.

        Raises:
            RunFailedError: If the trial failed before.
            CseError: If its values do not make a valid recipe.
        """
        if (reason := self.trial.user_attrs.get(REASON)) is not None:  # its process was killed before it reported this
            raise RunFailedError(reason)
        seed = next((seed for seed in self._config.seeds if str(seed) not in self._scores), None)
        if seed is None:
            return None
        loaded, several = self._load(seed), len(self._config.seeds) > 1
        if several and self._summary is None:
            self._open_summary(loaded)
        summary = self.trial.user_attrs[RUN] if several else self._parent.run_id
        name = f"seed {seed} of {self._name}" if several else self._name
        begun = self.trial.user_attrs.get(RUNS, {}).get(str(seed))
        resume = begun if begun is not None and _is_unfinished(begun) else None
        return self._job(loaded, seed, parent=summary, run_name=name, resume=resume)

    def take(self, result: Result) -> None:
        """Take the result of a run.

        Raises:
            Pruned: If the other trials are better with the same seeds.
            RunFailedError: If the dev score is NaN.
        """
        self._scores[str(result.seed)] = _selected_score(result)
        if len(self._config.seeds) > 1:
            self._report(len(self._scores) - 1)
        else:
            self._remember(result)

    def observer(self, seed: int, inner: Observer) -> Observer:
        """Return the observer of the run of a seed. Its dev scores count only if it is the only run of the trial."""
        return TrialObserver(self.trial, seed, inner, prunes=len(self._config.seeds) < 2)

    def end(self, kind: End, reason: str = "") -> None:
        """Record how the trial ended. A failed one has nothing to resume."""
        if kind == "failed":
            for run_id in self.trial.user_attrs.get(RUNS, {}).values():
                delete_checkpoints(run_id)
        if self._summary is not None:
            if kind == "finished":
                values = self._scores.values()
                self._summary.metrics({"score/mean": fmean(values), "score/spread": pstdev(values)}, len(values))
            self._summary.end(kind, reason)

    def _remember(self, result: Result) -> None:
        """Remember the run, which was not observed if it was finished before."""
        if RUN not in self.trial.user_attrs:
            self.trial.set_user_attr(RUN, result.run_id)

    def _report(self, place: int) -> None:
        values = list(self._scores.values())
        if self._summary is not None:
            self._summary.metrics({"score/seed": values[-1]}, place)
        # Wilcoxon's test pairs seed with seed; the other pruners compare how high a trial has come.
        self.trial.report(values[-1] if pruner_name(self._config) == "wilcoxon" else fmean(values), place)
        self.trial.set_user_attr(SCORES, self._scores)
        if place + 1 < len(self._config.seeds) and self.trial.should_prune():
            raise Pruned(f"mean {fmean(values):.2f} over {len(values)} seeds")

    def _open_summary(self, loaded: LoadedRecipe) -> None:
        """Open the record that summarizes the runs. Its ID is remembered first, so there is never a second one."""
        if RUN not in self.trial.user_attrs:
            self.trial.set_user_attr(RUN, uuid4().hex)
        job = self._job(loaded, loaded.recipe.train.seed, parent=self._parent.run_id, run_name=self._name)
        own = {"run_id": self.trial.user_attrs[RUN], "summary": "seeds", "seed": None, "identity": None}
        about = about_run(job, Identity(settings=loaded.recipe.hash())).model_copy(update=own)
        self._summary = take_record(about, loaded.recipe.resolved()) or RunRecord(about, None)
        self._summary.started()

    def _job(self, loaded: LoadedRecipe, seed: int, *, parent: str, run_name: str, resume: str | None = None) -> Job:
        config = self._config
        return Job(
            loaded, seed, config.device, resume=resume, may_restart=True, search=config.name, trial=self.trial.number,
            parent=parent, run_name=run_name, tags=config.tags, group=self._parent.group, lean=True,
        )  # fmt: skip

    def _load(self, seed: int) -> LoadedRecipe:
        values = {} if OWN in self.trial.user_attrs else self.trial.params
        chosen, removed = settings_of(self._config.parameters, values)
        overrides = [*self._config.trial_overrides, *chosen, f"train.seed={seed}"]
        return load(self._config.recipe, overrides, [*self._config.unset, *removed])


def _is_unfinished(run_id: str) -> bool:
    """Return whether this state directory has the record of a run that can be resumed."""
    return (folder_of(run_id) / ABOUT).exists() and last_end(run_id) not in ("finished", "pruned")


def _selected_score(result: Result) -> float:
    """Return the dev score of the selected state.

    Raises:
        RunFailedError: If it is NaN.
    """
    if result.selected_step is not None:
        return result.curve[result.selected_step]
    value = score(result.scores, result.select) if result.select is not None and not result.steps else math.nan
    if math.isnan(value):
        raise RunFailedError("the dev score is NaN")
    return value


class TrialObserver:
    """Passes on the progress of a run, reports its dev scores to the trial, and ends the run if the pruner decides so.

    Args:
        trial: The trial.
        seed: Seed of the run.
        inner: Observer of the run.
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
        """Report the score, and end the run if the pruner decides so.

        The score of the untrained state says nothing about a trial, and after the last step nothing is left to save.
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
        """Print nothing: the search is resumed by its own command."""
