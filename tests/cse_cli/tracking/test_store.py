"""The store opens, or says within ten seconds why not."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock

from cse_cli import tracking
from cse_cli.tracking import location
from cse_cli.tracking import store as store_module
from cse_cli.tracking.store import Store, open_store, patience, within
from registry.errors import TrackingError
from tests.cse_cli.tracking.stores import fresh_store
from tests.databases import migrate


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Yield a port that takes connections and never says a word."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(16)
        yield listening.getsockname()[1]


def test_the_store_is_one_absolute_database_unless_the_environment_says_otherwise(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert location.uri() == f"sqlite:///{home}/mlflow.db"
    assert location.database(location.uri()) == home / "mlflow.db"
    assert not location.exists(location.uri())
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://tracking:5000")
    assert location.uri() == "http://tracking:5000"
    assert location.database(location.uri()) is None


def experiment_of(store: Store, run_id: str) -> str:
    return store.client.get_experiment(store.client.get_run(run_id).info.experiment_id).name


def test_the_environment_names_the_experiment(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    assert experiment_of(store, tracking.start("run", {}, {}).run_id) == "cse"
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "thesis")
    assert experiment_of(store, tracking.start("run", {}, {}).run_id) == "thesis"


def test_a_run_is_in_the_experiment_named_or_in_that_of_its_parent(store: Store) -> None:
    parent = tracking.start("search", {}, {}, experiment="tune/queue")
    assert experiment_of(store, parent.run_id) == "tune/queue"
    assert experiment_of(store, tracking.start("trial", {}, {}, parent=parent.run_id).run_id) == "tune/queue"


def test_our_experiments_are_known_again_and_others_are_not(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    client = store.client
    client.create_experiment("cse")  # as older versions made it, without our tag
    client.create_experiment("somebody else's")
    theirs = client.create_experiment("shared")
    for name in ("mini/ifcl_en", "shared", "mini/ifcl_en"):
        tracking.start("run", {}, {}, experiment=name)
    assert sorted(open_store().experiments().values()) == ["cse", "mini/ifcl_en", "shared"]
    assert open_store().experiments()[theirs] == "shared"
    columns = json.loads(client.get_experiment(theirs).tags["mlflow.sharedViewState.cse"])["selectedColumns"]
    assert "metrics.`eval/avg`" in columns
    client.create_experiment("thesis")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "thesis")
    assert "thesis" in open_store().experiments().values()


@pytest.mark.parametrize("name", ["ä ö", "a#b", "100%25", "what?"])
def test_any_folder_name_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("CSE_HOME", str(tmp_path / name))
    fresh_store(tmp_path / name)
    tracker = tracking.start("run", {}, {})
    tracker.text("a.txt", "text")
    folder = tmp_path / name / "artifacts" / tracker.run_id / "artifacts"
    assert (folder / "a.txt").read_text() == "text"
    assert (tmp_path / name / "mlflow.db").exists()


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("http://127.0.0.1:9", "does not answer: .*Connection refused"),
        ("http://no-such-host.invalid:5000", "does not answer"),
        ("postgresql+psycopg2://me:secret@127.0.0.1:9/db", r"postgresql\+psycopg2://me:\*\*\*@.* does not answer"),
        ("./mlruns", "is not a store that MLflow writes"),
        ("file:///tmp/mlruns", "is not a store that MLflow writes"),
        ("nonsense://x", "is not a store that MLflow writes"),
        ("sqlite:////proc/none/mlflow.db", "cannot be opened"),
    ],
)
def test_a_store_that_cannot_be_opened_is_refused_in_time(
    monkeypatch: pytest.MonkeyPatch, address: str, says: str
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    begin = time.monotonic()
    with pytest.raises(TrackingError, match=says) as caught:
        tracking.start("run", {}, {})
    assert time.monotonic() - begin < 10
    assert caught.value.exit_code == 4
    assert "unset MLFLOW_TRACKING_URI" in str(caught.value) or "CSE_HOME" in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.process
def test_a_server_that_never_answers_is_refused_in_time(silent_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "PREFLIGHT_SECONDS", 2.0)  # of 8 s the bound would be missed on a loaded machine
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{silent_port}")
    begin = time.monotonic()
    with pytest.raises(TrackingError, match="does not answer"):
        tracking.start("run", {}, {})
    assert time.monotonic() - begin < 10


def test_a_call_has_its_time_and_no_more() -> None:
    assert within(5, lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        within(5, lambda: 1 // 0)
    with pytest.raises(TimeoutError):
        within(0.05, lambda: time.sleep(1))


def test_patience_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "77")
    monkeypatch.delenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", raising=False)
    with pytest.raises(KeyError, match="none such"), patience(3):
        os.environ[os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"].replace("3", "none such")]
    assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "77"
    assert "MLFLOW_HTTP_REQUEST_MAX_RETRIES" not in os.environ


def test_a_file_that_is_no_database_is_named(home: Path) -> None:
    home.mkdir()
    (home / "mlflow.db").write_text("not a database, and longer than the hundred bytes of a header" * 3)
    with pytest.raises(TrackingError, match="file is not a database"):
        open_store()


def test_a_database_of_another_mlflow_is_refused(home: Path) -> None:
    import sqlite3
    from contextlib import closing

    fresh_store(home)
    copy = home / "newer" / "mlflow.db"
    copy.parent.mkdir()
    copy.write_bytes((home / "mlflow.db").read_bytes())
    with closing(sqlite3.connect(copy)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = 'ffffffffffff'")
        connection.commit()
    with pytest.raises(TrackingError, match="another version of MLflow"):
        open_store(f"sqlite:///{copy}")


def test_a_deleted_experiment_is_named(store: Store) -> None:
    store.client.delete_experiment(store.experiment("cse"))
    with pytest.raises(TrackingError, match=re.escape("'cse'") + ".*has been deleted"):
        tracking.start("run", {}, {})


def test_a_lock_that_is_never_given_up_is_named(store: Store, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "_LOCK_SECONDS", 0.1)
    with FileLock(home / "mlflow.db.lock"), pytest.raises(TrackingError, match="locked by another process"):
        open_store()


def test_a_store_whose_making_was_cut_off_is_made_anew(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut_off(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(store_module, "_migrate", migrate)
        patch.setattr("mlflow.store.db.utils._upgrade_db", cut_off)
        with pytest.raises(KeyboardInterrupt):
            open_store()
    assert not (home / "mlflow.db").exists()
    (left,) = home.glob("mlflow.db.new-*")
    Path(f"{left}-journal").write_bytes(b"of the one that was cut off")
    assert open_store().experiments() == {}
    assert {path.name for path in home.glob("*.db*")} == {"mlflow.db", "mlflow.db.lock"}


PROGRAM = """
from cse_cli import tracking
tracker = tracking.start("run", {"a": "1"}, {}, experiment="one for all")
for step in range(100):
    tracker.metrics({"loss": 1.0}, step)
tracker.finish("FINISHED")
"""


@pytest.mark.process
def test_four_processes_may_use_a_new_store_at_once(home: Path) -> None:
    command = [sys.executable, "-c", PROGRAM]
    started = [subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    for process in started:
        assert process.communicate(timeout=200) == ("", "")
        assert process.returncode == 0
    store = open_store()
    assert list(store.experiments().values()) == ["one for all"]
    runs = store.client.search_runs(list(store.experiments()))
    assert [run.info.status for run in runs] == ["FINISHED"] * 4
    assert all(len(store.client.get_metric_history(run.info.run_id, "loss")) == 100 for run in runs)


def test_the_reason_is_the_databases_and_not_advice_to_programmers() -> None:
    said = (
        "(raised as a result of Query-invoked autoflush; consider using a session.no_autoflush block if this flush is "
        "occurring prematurely)\n(sqlite3.OperationalError) database or disk is full\n[SQL: INSERT INTO metrics …]"
    )
    assert store_module.reason(OSError(said)) == "database or disk is full"
