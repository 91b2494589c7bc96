"""Workers of many machines share a PostgreSQL: exact budget, nothing lost, nothing twice."""

from __future__ import annotations

import optuna
import pytest
from optuna.trial import TrialState
from sqlalchemy import create_engine, text

from cse_cli.tuning import storage
from cse_cli.tuning import study as studies
from cse_cli.tuning.observer import SearchObserver
from cse_cli.tuning.study import load_study, open_study, retry_stale_trials
from registry.errors import CseError, TrackingError
from tests.cse_cli.tuning import postgres
from tests.cse_cli.tuning.fake import Workers, demand_exact, good, plan, share, trials

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(postgres.unusable() is not None, reason=postgres.unusable() or ""),
]


@pytest.fixture(scope="module")
def address():
    with postgres.server() as started:
        yield started


def test_four_workers_two_of_them_killed_do_exactly_the_budget(address, tmp_path):
    """The four also make the tables at once: nobody has opened this database before."""
    asked = plan(tmp_path, name="four", trials=40, storage=address)
    workers = Workers(asked, tmp_path, 4)
    workers.wait_for(6)
    workers.kill(2)
    assert workers.end() == [0, 0], workers.messages()
    demand_exact(trials(asked), budget=40, killed=2)


def test_a_search_whose_workers_were_all_killed_goes_on(address, tmp_path):
    asked = plan(tmp_path, name="all", trials=8, storage=address)
    workers = Workers(asked, tmp_path, 2, seconds=1.0)
    workers.wait_for(2)
    workers.kill(2)
    done = len(studies.settled(trials(asked)))
    assert share(asked)[1].ran == 8 - done
    demand_exact(trials(asked), budget=8, killed=2)


def test_a_machine_that_falls_silent_loses_its_trial_to_another(address, tmp_path, monkeypatch):
    """Process ids say nothing of another machine: the heartbeat does."""
    asked = plan(tmp_path, name="silent", trials=3, storage=address)
    study = open_study(asked)
    trial = study.ask()
    studies.sign(trial)
    trial.set_user_attr("owner", ["elsewhere", 1, "0"])
    assert retry_stale_trials(study) == []
    with create_engine(asked.storage.replace("postgresql:", "postgresql+psycopg:")).begin() as connection:
        connection.execute(
            text("UPDATE trial_heartbeats SET heartbeat = heartbeat - interval '1 hour' WHERE trial_id = :id"),
            {"id": trial._trial_id},
        )
    share(asked)
    found = trials(asked)
    assert [t.state for t in found] == [TrialState.FAIL, *[TrialState.COMPLETE] * 3]
    assert found[1].user_attrs["retry_of"] == 0


def test_a_worker_taken_for_dead_does_not_count_its_trial_twice(address, tmp_path):
    asked = plan(tmp_path, name="late", trials=2, storage=address)
    heard = []

    def late(trial: optuna.Trial) -> float:
        if trial.number == 0:
            open_study(asked).tell(0, state=TrialState.FAIL)
        return good(trial)

    class Notes(SearchObserver):
        def warned(self, text):
            heard.append(text)

    share(asked, late, Notes())
    found = trials(asked)
    assert len(studies.settled(found)) == 2
    assert found[1].user_attrs["retry_of"] == 0
    assert heard == ["trial 0 was silent for so long that another worker repeats it"]


def test_joining_checks_the_question_and_the_name(address, tmp_path):
    open_study(plan(tmp_path, name="asked", storage=address))
    open_study(plan(tmp_path, name="asked", storage=address, join=True))
    with pytest.raises(CseError, match=r"'asked' asks another question.*\n.*steps: None → 3"):
        open_study(plan(tmp_path, name="asked", storage=address, join=True, steps=3))
    with pytest.raises(CseError, match=r"no study 'aked' in postgresql.*:\*\*\*@127.*Did you mean 'asked'"):
        open_study(plan(tmp_path, name="aked", storage=address, join=True))
    assert "asked" in storage.study_names(address)
    assert load_study(address, "asked").study_name == "asked"


def test_a_server_that_is_away_or_refuses_is_told_without_the_password(address, tmp_path):
    host, _, name = address.rpartition("/")
    for wrong in (
        address.replace(f"/{name}", "/nowhere"),
        address.replace("cse:", "cse:not"),
        host.rpartition(":")[0] + ":1/x",
    ):
        with pytest.raises(TrackingError, match=r"cannot be opened|does not answer") as told:
            open_study(plan(tmp_path, storage=wrong))
        assert "loopback" not in str(told.value)


def test_a_database_of_mlflow_is_left_alone(address, tmp_path):
    root = create_engine(address.replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT")
    with root.connect() as connection:
        connection.execute(text("CREATE DATABASE runs"))
    taken = address.replace("/postgres", "/runs")
    with create_engine(taken.replace("postgresql:", "postgresql+psycopg:")).begin() as connection:
        connection.execute(text("CREATE TABLE alembic_version (version_num varchar(32) PRIMARY KEY)"))
        connection.execute(text("INSERT INTO alembic_version VALUES ('b7c8d9e0f1a2')"))
        connection.execute(text("CREATE TABLE experiments (experiment_id int)"))
    with pytest.raises(TrackingError, match="database of its own"):
        open_study(plan(tmp_path, storage=taken))
