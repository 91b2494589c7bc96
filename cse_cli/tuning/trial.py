"""One trial of a search: one run per seed, one after the other, whose dev scores are reported to Optuna."""

from __future__ import annotations

import math
from statistics import fmean, pstdev
from uuid import uuid4

import optuna

from cse_cli.core.events import Collapsed, Evaluated, Event, Observer, Pruned, RunInfo, Started, Stopped
from cse_cli.core.identity import Identity
from cse_cli.core.results import Result
from cse_cli.evaluation.evaluate import score
from cse_cli.recipe.load import LoadedRecipe, Override, load
from cse_cli.runs.events import End
from cse_cli.runs.record import ABOUT, About, RunRecord, delete_checkpoints, folder_of, last_end
from cse_cli.training.build import Job
from cse_cli.training.recording import about_run
from cse_cli.tuning.config import SearchConfig
from cse_cli.tuning.parameter import settings_of
from cse_cli.tuning.record import take_record
from cse_cli.tuning.samplers import pruner_name
from cse_cli.tuning.study import OWN, REPORTED, RUN, RUNS, SCORES, number_of
from registry.errors import RunFailedError


class TrialRuns:
    """The runs of one trial.

    A trial that an ended process left is continued: the claim of a run returns the result of a finished run, and
    resumes an unfinished one.
    """

    def __init__(self, config: SearchConfig, parent: About, trial: optuna.Trial) -> None:
        self.trial = trial
        self._config = config
        self._parent = parent
        self._several = len(config.seeds) > 1
        self._name = f"trial {number_of(trial)} of {config.name}"  # lists of runs show the beginning of a name
        self._scores: dict[str, float] = dict(trial.user_attrs.get(SCORES, {}))
        self._summary: RunRecord | None = None
        for step, value in trial.user_attrs.get(REPORTED, {}).items():
            trial.report(value, int(step))

    @property
    def score(self) -> float:
        """Mean score over the seeds."""
        return fmean(self._scores.values())

    def next_job(self) -> Job | None:
        """Return the run of the next seed, or None if every seed has a score."""
        seed = next((seed for seed in self._config.seeds if str(seed) not in self._scores), None)
        if seed is None:
            return None
        loaded = self._load(seed)
        if not self._several:
            return self._job(loaded, seed, parent=self._parent.run_id, run_name=self._name)
        if self._summary is None:
            self._summary = self._open_summary(loaded)
        return self._job(loaded, seed, parent=self._summary.run_id, run_name=f"seed {seed} of {self._name}")

    def take(self, result: Result) -> None:
        """Receive the result of a run.

        Raises:
            Pruned: If the other trials are better with the same seeds.
            RunFailedError: If the dev score is NaN.
        """
        self._scores[str(result.seed)] = _selected_score(result)
        if self._several:
            self._report(len(self._scores) - 1)
        elif RUN not in self.trial.user_attrs:  # the run was finished before, and not observed
            self.trial.set_user_attr(RUN, result.run_id)

    def observer(self, seed: int, inner: Observer) -> Observer:
        """Return the observer of the run of a seed. Its dev scores count only if it is the only run of the trial."""
        return TrialObserver(self.trial, seed, inner, prunes=not self._several)

    def end(self, kind: End, reason: str = "") -> None:
        """Record the end of the trial. A failed one is not resumed."""
        if kind == "failed":
            for run_id in self.trial.user_attrs.get(RUNS, {}).values():
                delete_checkpoints(run_id)
        if self._summary is not None:
            if kind == "finished":
                values = self._scores.values()
                self._summary.metrics({"score/mean": fmean(values), "score/spread": pstdev(values)}, len(values))
            self._summary.end(kind, reason)

    def _report(self, place: int) -> None:
        values = list(self._scores.values())
        if self._summary is not None:
            self._summary.metrics({"score/seed": values[-1]}, place)
        # Wilcoxon's test compares seed with seed. The other pruners compare means over the seeds so far.
        self.trial.report(values[-1] if pruner_name(self._config) == "wilcoxon" else fmean(values), place)
        self.trial.set_user_attr(SCORES, self._scores)
        if place + 1 < len(self._config.seeds) and self.trial.should_prune():
            raise Pruned(f"mean {fmean(values):.2f} over {len(values)} seeds")

    def _open_summary(self, loaded: LoadedRecipe) -> RunRecord:
        """Return the record that summarizes the runs. Its ID is stored first, so there is never a second one."""
        if RUN not in self.trial.user_attrs:
            self.trial.set_user_attr(RUN, uuid4().hex)
        job = self._job(loaded, loaded.recipe.train.seed, parent=self._parent.run_id, run_name=self._name)
        own = {"run_id": self.trial.user_attrs[RUN], "summary": "seeds", "seed": None, "identity": None}
        about = about_run(job, Identity(settings=loaded.recipe.hash())).model_copy(update=own)
        record = take_record(about, loaded.recipe.resolved())
        record.started()
        return record

    def _job(self, loaded: LoadedRecipe, seed: int, *, parent: str, run_name: str) -> Job:
        config = self._config
        begun = self.trial.user_attrs.get(RUNS, {}).get(str(seed))
        resume = begun if begun is not None and _is_unfinished(begun) else None
        return Job(
            loaded, seed, config.request.device, resume=resume, may_restart=True, search=config.name,
            trial=number_of(self.trial), parent=parent, run_name=run_name, tags=config.tags, group=self._parent.group,
            scores_only=True,
        )  # fmt: skip

    def _load(self, seed: int) -> LoadedRecipe:
        values = {} if OWN in self.trial.user_attrs else self.trial.params
        overrides, removed = settings_of(self._config.parameters, values)
        seeded: list[str | Override] = [*self._config.trial_overrides, *overrides, Override.of("train.seed", seed)]
        return load(self._config.recipe, seeded, [*self._config.unset, *removed])


def _is_unfinished(run_id: str) -> bool:
    """Return whether this state directory has the record of a run that can be resumed."""
    return (folder_of(run_id) / ABOUT).exists() and last_end(run_id) not in ("finished", "pruned")


def _selected_score(result: Result) -> float:
    """Return the dev score of the selected checkpoint."""
    if result.selected_step is not None:
        return result.curve[result.selected_step]
    value = math.nan
    if result.metric_for_best_model is not None and not result.steps:
        value = score(result.scores, result.metric_for_best_model)
    if math.isnan(value):
        raise RunFailedError("the dev score is NaN", code="tune.nan_score")
    return value


class TrialObserver:
    """Forwards the progress of a run, reports its dev scores to the trial, and ends the run if the pruner decides so.

    `prunes`: dev scores of this run can end it. With several seeds, whole runs are compared instead.
    """

    def __init__(self, trial: optuna.Trial, seed: int, inner: Observer, *, prunes: bool) -> None:
        self._trial = trial
        self._seed = seed
        self._inner = inner
        self._prunes = prunes
        self._total = 0

    def observe(self, event: Event) -> None:
        """Forward an event and report dev scores. End the run if the pruner decides so or embeddings collapse."""
        match event:
            case Started(run):
                self._remember(run)
            case Stopped():  # the search has its own command to resume
                return
            case Collapsed(text):  # collapsed embeddings do not recover
                raise RunFailedError(text.partition(";")[0], code="tune.collapsed")
        self._inner.observe(event)
        if isinstance(event, Evaluated) and self._prunes:
            self._report(event.step, next(iter(event.scores.values())))

    def _remember(self, run: RunInfo) -> None:
        """Store the ID of the run, so that it can be resumed."""
        self._total = run.steps
        self._trial.set_user_attr(RUNS, {**self._trial.user_attrs.get(RUNS, {}), str(self._seed): run.run_id})
        if self._prunes:
            self._trial.set_user_attr(RUN, run.run_id)

    def _report(self, step: int, value: float) -> None:
        """Report a score. That of the untrained state does not describe the trial."""
        if step == 0 or math.isnan(value):
            return
        self._trial.report(value, step)
        if step < self._total and self._trial.should_prune():
            raise Pruned(f"step {step}: dev score {value:.2f}")
