"""MLflow's store opens, or an error gives the reason within seconds. A new database is filled from the records."""

from __future__ import annotations

import shutil
import socket
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from cse_cli.mirrors import mlflow
from cse_cli.mirrors.mirror import Follower, reason
from cse_cli.mirrors.mlflow import MlflowMirror
from cse_cli.mirrors.ui import sync
from tests.cse_cli.mirrors.test_mlflow import full
from tests.support import databases
from tests.support.errors import refuses
from tests.support.forked import Forked
from tests.support.programs import ended
from tests.support.records import recorded
from tests.support.trackers import all_there, client, points, there
from tests.support.versions import needs

pytestmark = pytest.mark.slow


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Yield a port that accepts connections and never answers."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(16)
        yield listening.getsockname()[1]


def test_the_store_is_the_own_database_or_the_configured_one(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (mlflow.uri(), mlflow.is_own()) == (f"sqlite:///{home}/mlflow.db", True)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://tracking:5000")
    assert (mlflow.uri(), mlflow.is_own()) == ("http://tracking:5000", False)


@pytest.mark.parametrize("name", ['ä a#b 100%25 "what"', "what?"])
def test_any_directory_name_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    if "?" in name:
        needs("a question mark in the path of a database")
    monkeypatch.setenv("CSE_HOME", str(tmp_path / name))
    record = recorded()
    sync()
    id_there = there(record.run_id).info.run_id
    assert (tmp_path / name / "artifacts" / id_there / "artifacts" / "run.toml").exists()
    assert (tmp_path / name / "mlflow.db").exists()


@pytest.mark.parametrize(
    ("address", "value"),
    [
        ("http://127.0.0.1:9", "Connection refused"),
        ("http://no-such-host.invalid:5000", "no-such-host"),
        ("postgresql+psycopg2://me:secret@127.0.0.1:9/db", "postgresql+psycopg2://me:***@"),
        ("./mlruns", "./mlruns"),
        ("nonsense://x", "nonsense://x"),
        ("sqlite:////proc/none/mlflow.db", "unable to open"),
    ],
)
def test_an_unusable_store_is_refused_in_time(monkeypatch: pytest.MonkeyPatch, address: str, value: str) -> None:
    if "mlruns" in address:
        needs("file stores that are refused")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    begin = time.monotonic()
    with refuses("mirrors.unusable_store", "correct MLFLOW_TRACKING_URI", value) as caught:
        MlflowMirror.connect()
    assert time.monotonic() - begin < 10
    assert caught.value.exit_code == 4
    assert "secret" not in str(caught.value)


@pytest.mark.process
def test_a_server_that_never_answers_is_refused_in_time(silent_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "2")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{silent_port}")
    begin = time.monotonic()
    with refuses("mirrors.unusable_store", "timed out"):
        MlflowMirror.connect()
    assert time.monotonic() - begin < 10


def test_a_password_is_kept_nowhere(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:hunter2@127.0.0.1:9")
    record = recorded(end=None)
    follower = Follower(record.run_id)
    record.end("finished")
    follower.close()
    assert not [file for file in home.rglob("*") if file.is_file() and b"hunter2" in file.read_bytes()]


def test_the_reason_is_the_first_exception() -> None:
    error = OSError("(raised as a result of Query-invoked autoflush; consider …)")
    error.__cause__ = sqlite3.OperationalError("database or disk is full")
    assert reason(error) == "database or disk is full"


# --- the database in the state directory ------------------------------------------------------------------------------


@pytest.mark.process
def test_a_deleted_database_is_filled_anew_by_mlflow_itself(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = full()
    recorded(end="failed")
    sync()
    before = all_there()
    monkeypatch.setattr(mlflow, "create_database", databases.create_database)  # instead of `quick_databases`
    mlflow.database().unlink()
    (home / "mlflow.db.new-1").write_bytes(b"of a process that was killed")
    sync()
    assert (all_there(), len(before)) == (before, 2)
    assert points(record.run_id, "train/loss") == [(1, 1.0), (2, 0.5), (3, 1 / 3)]
    assert {path.name for path in home.glob("*.db*")} == {"mlflow.db", "mlflow.db.lock"}


def test_a_damaged_database_is_one_error_and_loses_no_run(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mlflow.database().parent.mkdir(parents=True)
    mlflow.database().write_text("not a database, and longer than the hundred bytes of a header" * 3)
    record = recorded(end=None)
    follower = Follower(record.run_id)
    record.end("finished")
    follower.close()
    told = capsys.readouterr().err
    assert ("not a database" in told, told.count("To send the rest: cse runs sync")) == (True, 1)
    with refuses("mirrors.unusable_store", "not a database", "delete it: `cse runs sync`"):
        sync()
    mlflow.database().unlink()
    sync()
    assert there(record.run_id).info.status == "FINISHED"


def test_a_moved_state_directory_needs_a_new_database(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = full()
    sync()
    new = home.rename(home.parent / "else where")
    monkeypatch.setenv("CSE_HOME", str(new))
    with refuses("mirrors.unusable_store", "moved or copied", "delete it"):
        sync()
    assert not home.exists()
    mlflow.database().unlink()
    sync()
    run = there(record.run_id)
    assert run.info.artifact_uri.startswith((new / "artifacts").as_uri())
    assert Path(client().download_artifacts(run.info.run_id, "result.json")).exists()


def test_a_copy_never_writes_to_the_original(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full()
    sync()
    copy = Path(shutil.copytree(home, home.parent / "copy", symlinks=True))
    before = {file: file.stat().st_mtime_ns for file in home.rglob("*")}
    monkeypatch.setenv("CSE_HOME", str(copy))
    with refuses("mirrors.unusable_store", "moved or copied"):
        sync()
    assert {file: file.stat().st_mtime_ns for file in home.rglob("*")} == before


def test_a_link_to_the_state_directory_doubles_nothing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full()
    sync()
    before = all_there()
    (link := home.parent / "link").symlink_to(home)
    monkeypatch.setenv("CSE_HOME", str(link))
    sync()
    assert all_there() == before


def test_only_the_owner_can_read_a_new_state_directory(home: Path) -> None:
    databases.create_database(home / "new.db")
    assert home.stat().st_mode & 0o777 == 0o700


# --- other programs ---------------------------------------------------------------------------------------------------


def test_a_locked_database_gets_the_run_later(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mlflow, "_BUSY_SECONDS", 0.1)
    MlflowMirror.connect()
    with closing(sqlite3.connect(home / "mlflow.db", isolation_level=None)) as shell:
        shell.execute("BEGIN EXCLUSIVE")
        record = recorded(end=None)
        follower = Follower(record.run_id)
        record.end("finished")
        follower.close()
        assert "locked" in capsys.readouterr().err
        with refuses("mirrors.unusable_store", "locked"):
            sync()
        shell.execute("ROLLBACK")
    sync()
    assert there(record.run_id).info.status == "FINISHED"
    assert list(home.glob("mlflow.db.*-*")) == []


PROGRAM = """
from cse_cli.mirrors.mirror import Follower
from tests.support.records import recorded
record = recorded(end=None, group="one for all")
follower = Follower(record.run_id)
for step in range(100):
    record.metrics({"loss": 1.0}, step)
record.end("finished")
follower.close()
"""


@pytest.mark.process
def test_two_processes_may_use_a_new_store_at_once(tmp_path: Path) -> None:
    (tmp_path / "sent.py").write_text(PROGRAM)
    for process in [Forked(["sent"], tmp_path, PYTHONPATH=str(tmp_path)) for _ in range(2)]:
        assert ended(process) == (0, "", "")
    found = all_there()
    assert [run[2] for run in found] == ["FINISHED"] * 2
    assert all(len(points(run[0], "loss")) == 100 for run in found)
