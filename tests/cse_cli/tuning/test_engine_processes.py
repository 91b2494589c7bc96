"""Several workers on one machine, some of them killed: the journal loses nothing and does nothing twice."""

from __future__ import annotations

import pytest
from optuna.trial import TrialState

from cse_cli.tuning import study as studies
from cse_cli.tuning.study import open_study
from tests.cse_cli.tuning.fake import Workers, demand_exact, plan, share, trials


@pytest.mark.process
def test_four_workers_two_of_them_killed_do_exactly_the_budget(tmp_path):
    asked = plan(tmp_path, trials=40)
    open_study(asked)
    workers = Workers(asked, tmp_path, 4)
    workers.wait_for(6)
    workers.kill(2)
    assert workers.end() == [0, 0], workers.messages()
    demand_exact(trials(asked), budget=40, killed=2)


@pytest.mark.process
def test_a_search_whose_workers_were_all_killed_goes_on(tmp_path):
    asked = plan(tmp_path, trials=8)
    open_study(asked)
    workers = Workers(asked, tmp_path, 2, seconds=1.0)
    workers.wait_for(2)
    workers.kill(2)
    left = trials(asked)
    assert sum(trial.state == TrialState.RUNNING for trial in left) == 2
    done = len(studies.settled(left))
    ending, worker = share(asked)
    assert (ending, worker.ran) == ("budget", 8 - done)
    demand_exact(trials(asked), budget=8, killed=2)
