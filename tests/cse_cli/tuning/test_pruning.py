"""Pruners end the trials that fall behind, never the best."""

from __future__ import annotations

import pytest

from cse_cli.tuning import study as studies
from cse_cli.tuning.results import read_trials
from cse_cli.tuning.study import load_study, open_study
from tests.cse_cli.tuning.fake import config, counts, drive
from tests.support.chosen import these

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("slots", [1, 3])
def test_the_median_ends_a_trial_that_is_behind(slots, tmp_path):
    asked = config(tmp_path, trials=12, pruner="median")

    def score(job, tell):
        value = 10.0 if job.trial < 6 else 1.0
        for step in (0, 2, 4, 6, 8):
            tell("evaluated", {"step": step, "scores": {"dev.spearman": value + step}, "best": True})
        return value + 8

    drive(asked, score, slots=slots)
    assert counts() == {"complete": 6, "pruned": 6, "failed": 0}
    assert [t.score for t in read_trials(load_study("search")) if t.state == "pruned"] == [3.0] * 6


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", these(["median"], studies.PRUNERS))
@pytest.mark.parametrize("seeds", [(42,), (0, 1, 2, 3, 4)])
def test_every_pruner_keeps_the_best_trial(tmp_path, name, seeds):
    asked = config(tmp_path, trials=12, pruner=name, seeds=seeds)

    def score(job, tell):
        for step in (2, 4, 6, 8):
            tell("evaluated", {"step": step, "scores": {"dev.spearman": step / 100 - job.trial}, "best": True})
        return job.seed / 100 - job.trial

    drive(asked, score)
    assert load_study("search").best_trial.number == 0
    pruned = counts()["pruned"]
    assert pruned == 0 if name == "none" else pruned > 0


def test_wilcoxon_prunes_after_three_seeds(tmp_path):
    asked = config(tmp_path, trials=2, seeds=(0, 1, 2, 3, 4))
    assert asked.used_pruner == "wilcoxon"
    _, _, engine = drive(asked, lambda job, _: 80.0 + job.seed - 3 * job.trial)
    assert [job.seed for job in engine.jobs if job.trial == 1] == [0, 1, 2]
    assert [trial.state for trial in read_trials(open_study(asked))] == ["complete", "pruned"]
