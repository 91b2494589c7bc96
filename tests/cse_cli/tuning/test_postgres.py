"""Searches in PostgreSQL."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from optuna.trial import TrialState
from sqlalchemy import create_engine, text

from cse_cli.tuning import storage
from cse_cli.tuning.study import load_study, open_study
from tests.cse_cli.tuning import postgres
from tests.cse_cli.tuning.fake import config, drive, number, raising, trials
from tests.support.errors import refuses

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(postgres.unusable() is not None, reason=postgres.unusable() or ""),
]


@pytest.fixture(scope="module")
def address():
    with postgres.server() as started:
        yield started


def test_an_interrupted_search_is_resumed(address, tmp_path):
    asked = config(tmp_path, name="four", trials=8, storage=address)
    with pytest.raises(KeyboardInterrupt):
        drive(asked, raising(KeyboardInterrupt(), 3), slots=4)
    _, _, executor = drive(asked, slots=4)
    assert executor.jobs[0].resume is not None
    assert [trial.state for trial in trials(asked)] == [TrialState.COMPLETE] * 8


def test_four_processes_create_the_tables_in_parallel(address, tmp_path):
    root = create_engine(address.replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT")
    with root.connect() as connection:
        connection.execute(text("CREATE DATABASE fresh"))
    fresh = address.replace("/postgres", "/fresh")
    configs = [config(tmp_path, name=f"one{number}", storage=fresh) for number in range(4)]
    with ThreadPoolExecutor(4) as pool:
        opened = list(pool.map(open_study, configs))
    assert [study.study_name for study in opened] == [f"one{number}" for number in range(4)]
    assert storage.search_names(fresh) == [f"one{number}" for number in range(4)]


def test_four_processes_run_each_trial_once(address, tmp_path):
    asked = config(tmp_path, name="together", trials=12, storage=address, sampler="random")
    with ThreadPoolExecutor(4) as pool:
        drivers = list(pool.map(lambda _: drive(asked), range(4)))
    assert sorted(number(job) for _, _, executor in drivers for job in executor.jobs) == list(range(12))
    assert [trial.state for trial in trials(asked)] == [TrialState.COMPLETE] * 12
    alone = config(tmp_path, name="together", trials=12, sampler="random")
    drive(alone)
    assert [trial.params for trial in trials(asked)] == [trial.params for trial in trials(alone)]


def test_resuming_checks_settings_and_name(address, tmp_path):
    open_study(config(tmp_path, name="asked", storage=address))
    open_study(config(tmp_path, name="asked", storage=address, resume=True))
    with refuses("tune.different_settings", "'asked'", "steps: None → 3"):
        open_study(config(tmp_path, name="asked", storage=address, resume=True, steps=3))
    with refuses("tune.unknown_search", "'aked'", ":***@127", "Did you mean 'asked'"):
        open_study(config(tmp_path, name="aked", storage=address, resume=True))
    assert "asked" in storage.search_names(address)
    assert load_study(address, "asked").study_name == "asked"


def test_an_unreachable_server_is_shown_without_password(address, tmp_path):
    host, _, name = address.rpartition("/")
    for wrong in (
        address.replace(f"/{name}", "/nowhere"),
        address.replace("cse:", "cse:not"),
        host.rpartition(":")[0] + ":1/x",
    ):
        with refuses("tune.storage_not_opened") as error:
            open_study(config(tmp_path, storage=wrong))
        assert "loopback" not in str(error.value)


def test_a_database_of_mlflow_is_refused(address, tmp_path):
    root = create_engine(address.replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT")
    with root.connect() as connection:
        connection.execute(text("CREATE DATABASE runs"))
    taken = address.replace("/postgres", "/runs")
    with create_engine(taken.replace("postgresql:", "postgresql+psycopg:")).begin() as connection:
        connection.execute(text("CREATE TABLE alembic_version (version_num varchar(32) PRIMARY KEY)"))
        connection.execute(text("INSERT INTO alembic_version VALUES ('b7c8d9e0f1a2')"))
        connection.execute(text("CREATE TABLE experiments (experiment_id int)"))
    with refuses("tune.foreign_database"):
        open_study(config(tmp_path, storage=taken))
