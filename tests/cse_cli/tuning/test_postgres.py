"""Studies in PostgreSQL, which several machines reach."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from optuna.trial import TrialState
from sqlalchemy import create_engine, text

from cse_cli.tuning import storage
from cse_cli.tuning.study import load_study, open_study
from registry.errors import CseError, TrackingError
from tests.cse_cli.tuning import postgres
from tests.cse_cli.tuning.fake import drive, good, number, plan, trials

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(postgres.unusable() is not None, reason=postgres.unusable() or ""),
]


@pytest.fixture(scope="module")
def address():
    with postgres.server() as started:
        yield started


def test_a_search_goes_on_where_its_driver_was_interrupted(address, tmp_path):
    asked = plan(tmp_path, name="four", trials=8, storage=address)

    def score(job, observer):
        if number(job) == 3 and job.resume is None:
            raise KeyboardInterrupt
        return good(job, observer)

    with pytest.raises(KeyboardInterrupt):
        drive(asked, score, slots=4)
    _, _, executor = drive(asked, slots=4)
    assert executor.jobs[0].resume is not None
    assert [trial.state for trial in trials(asked)] == [TrialState.COMPLETE] * 8


def test_drivers_that_make_the_tables_at_once_all_have_them(address, tmp_path):
    root = create_engine(address.replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT")
    with root.connect() as connection:
        connection.execute(text("CREATE DATABASE fresh"))
    fresh = address.replace("/postgres", "/fresh")
    plans = [plan(tmp_path, name=f"one{number}", storage=fresh) for number in range(4)]
    with ThreadPoolExecutor(4) as pool:
        opened = list(pool.map(open_study, plans))
    assert [study.study_name for study in opened] == [f"one{number}" for number in range(4)]
    assert storage.study_names(fresh) == [f"one{number}" for number in range(4)]


def test_four_at_once_do_each_trial_once(address, tmp_path):
    asked = plan(tmp_path, name="together", trials=12, storage=address, sampler="random")
    with ThreadPoolExecutor(4) as pool:
        drivers = list(pool.map(lambda _: drive(asked), range(4)))
    assert sorted(number(job) for _, _, executor in drivers for job in executor.jobs) == list(range(12))
    assert [trial.state for trial in trials(asked)] == [TrialState.COMPLETE] * 12
    alone = plan(tmp_path, name="together", trials=12, sampler="random")
    drive(alone)
    assert [trial.params for trial in trials(asked)] == [trial.params for trial in trials(alone)]


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
