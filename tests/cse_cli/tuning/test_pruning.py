"""Pruners: who is ended early, and that the best never is."""

from __future__ import annotations

import optuna
import pytest

from cse_cli.tuning import samplers
from cse_cli.tuning import study as studies
from cse_cli.tuning.observer import SearchObserver
from cse_cli.tuning.results import read_trials
from cse_cli.tuning.study import open_study
from cse_cli.tuning.workers import Worker
from tests.cse_cli.tuning.fake import plan, trials


def test_the_median_ends_a_trial_that_is_behind(tmp_path):
    asked = plan(tmp_path, trials=12, pruner="median")
    study = open_study(asked)
    study.pruner = samplers.make_pruner(asked, 8, 2)

    def objective(trial):
        value = 10.0 if trial.number < 6 else 1.0
        for step in (2, 4, 6, 8):
            trial.report(value + step, step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return value

    Worker(study, asked, objective, SearchObserver()).work()
    assert studies.counts(trials(asked)) == {"complete": 6, "pruned": 6, "failed": 0}
    assert [t.score for t in read_trials(study) if t.state == "pruned"] == [3.0] * 6


@pytest.mark.parametrize("name", samplers.PRUNERS)
@pytest.mark.parametrize("seeds", [(), (0, 1, 2, 3, 4)])
def test_every_pruner_keeps_the_best_trial(tmp_path, name, seeds):
    asked = plan(tmp_path, trials=12, pruner=name, seeds=seeds)
    study = open_study(asked)
    study.pruner = samplers.make_pruner(asked, 8, 2)

    def objective(trial):
        for step in range(5) if seeds else (2, 4, 6, 8):
            trial.report(-float(trial.number) + step / 100, step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return -float(trial.number)

    Worker(study, asked, objective, SearchObserver()).work()
    assert study.best_trial.number == 0
    pruned = studies.counts(trials(asked))["pruned"]
    assert pruned == 0 if name == "none" else pruned > 0


def test_wilcoxon_needs_three_seeds_to_give_a_trial_up(tmp_path):
    asked = plan(tmp_path, trials=2, seeds=(0, 1, 2, 3, 4))
    assert samplers.pruner_name(asked) == "wilcoxon"
    study = open_study(asked)
    study.pruner = samplers.make_pruner(asked, 8, 2)
    steps = []

    def objective(trial):
        for seed in range(5):
            trial.report(80.0 + seed - 3 * trial.number, seed)
            steps.append((trial.number, seed))
            if trial.should_prune():
                raise optuna.TrialPruned
        return 82.0

    Worker(study, asked, objective, SearchObserver()).work()
    assert [seed for number, seed in steps if number == 1] == [0, 1, 2]
