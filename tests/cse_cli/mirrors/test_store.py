"""MLflow's store opens, or says why not within seconds; a database that cannot be used is replaced by a new one."""

from __future__ import annotations

import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from cse_cli.mirrors import location
from cse_cli.mirrors import store as store_module
from cse_cli.mirrors.command import sync
from cse_cli.mirrors.follower import follow
from cse_cli.mirrors.mirror import State
from cse_cli.mirrors.store import open_store, reason
from tests.cse_cli.mirrors.test_mlflow import full
from tests.support.chosen import these
from tests.support.databases import migrate
from tests.support.errors import refuses
from tests.support.records import recorded
from tests.support.trackers import all_there, client, points, there

pytestmark = pytest.mark.slow


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Yield a port that accepts connections and never answers."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(16)
        yield listening.getsockname()[1]


def test_the_store_is_the_own_database_or_the_configured_one(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert location.uri() == f"sqlite:///{home}/mlflow.db"
    assert location.database(location.uri()) == home / "mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://tracking:5000")
    assert location.uri() == "http://tracking:5000"
    assert location.database(location.uri()) is None


def test_any_directory_name_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "ä a#b 100%25 what?"
    monkeypatch.setenv("CSE_HOME", str(tmp_path / name))
    record = recorded()
    sync()
    id_there = there(record.run_id).info.run_id
    assert (tmp_path / name / "artifacts" / id_there / "artifacts" / "run.toml").exists()
    assert (tmp_path / name / "mlflow.db").exists()


@pytest.mark.parametrize(
    ("address", "values"),
    [
        ("http://127.0.0.1:9", ["http://127.0.0.1:9", "Connection refused"]),
        ("http://no-such-host.invalid:5000", ["no-such-host"]),
        ("postgresql+psycopg2://me:secret@127.0.0.1:9/db", ["postgresql+psycopg2://me:***@"]),
        ("./mlruns", ["./mlruns"]),
        ("file:///tmp/mlruns", ["file:///tmp/mlruns"]),
        ("nonsense://x", ["nonsense://x"]),
        ("sqlite:////proc/none/mlflow.db", ["unable to open"]),
    ],
)
def test_an_unusable_store_is_refused_in_time(monkeypatch: pytest.MonkeyPatch, address: str, values: list[str]) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    begin = time.monotonic()
    with refuses("mirrors.unusable_store", "unset MLFLOW_TRACKING_URI", *values) as caught:
        open_store()
    assert time.monotonic() - begin < 10
    assert caught.value.exit_code == 4
    assert "secret" not in str(caught.value)


@pytest.mark.process
def test_a_server_that_never_answers_is_refused_in_time(silent_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "2")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{silent_port}")
    begin = time.monotonic()
    with refuses("mirrors.unusable_store", "timed out"):
        open_store()
    assert time.monotonic() - begin < 10


def test_a_password_is_kept_nowhere(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:hunter2@127.0.0.1:9")
    record = recorded(end=None)
    follower = follow(record.about)
    record.end("finished")
    follower.close()
    assert not [file for file in home.rglob("*") if file.is_file() and b"hunter2" in file.read_bytes()]


def test_the_reason_is_the_first_exception() -> None:
    error = OSError("(raised as a result of Query-invoked autoflush; consider …)")
    error.__cause__ = sqlite3.OperationalError("database or disk is full")
    assert reason(error) == "database or disk is full"


# --- a database that cannot be used -----------------------------------------------------------------------------------


def overwrite(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[8192:200_000] = b"\xff" * (200_000 - 8192)
    file.write_bytes(content)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "gone": Path.unlink,
    "empty": lambda file: os.truncate(file, 0),
    "cut": lambda file: os.truncate(file, file.stat().st_size // 2),
    "overwritten": overwrite,
    "no database": lambda file: file.write_text("not a database, and longer than the hundred bytes of a header" * 3),
}


@pytest.mark.parametrize("how", these(["gone", "overwritten"], DAMAGE))
def test_a_database_that_cannot_be_used_is_filled_anew(
    how: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = full()
    for end in ("stopped", "failed"):
        recorded(end=end)
    sync()
    before, losses = all_there(), points(record.run_id, "train/loss")
    DAMAGE[how](home / "mlflow.db")
    sync()
    assert all_there() == before
    assert len(before) == 3
    assert points(record.run_id, "train/loss") == losses
    aside = [file.name for file in home.glob("mlflow.db.*-*") if "new" not in file.name]
    assert len(aside) == (how not in ("gone", "empty"))
    assert all(name.startswith("mlflow.db.old-") and name in capsys.readouterr().err for name in aside)


def test_a_database_of_another_mlflow_is_filled_anew(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = recorded()
    sync()
    with closing(sqlite3.connect(home / "mlflow.db")) as connection:
        connection.execute("UPDATE alembic_version SET version_num = 'ffffffffffff'")
        connection.commit()
    (link := home.parent / "link").symlink_to(home)
    monkeypatch.setenv("CSE_HOME", str(link))  # MLflow looks at a name once in a process
    sync()
    assert there(record.run_id).info.status == "FINISHED"
    assert len(list(home.glob("mlflow.db.old-*"))) == 1


@pytest.mark.parametrize("how", these(["cut"], ["gone", "empty", "cut", "no database"]))
def test_a_database_that_breaks_during_a_run_is_filled_anew(how: str, home: Path) -> None:
    earlier = full()
    record = recorded(end=None)
    follower = follow(record.about)
    end = time.monotonic() + 30
    while State.read(earlier.run_id, "mlflow") is None:
        assert time.monotonic() < end
        time.sleep(0.05)
    DAMAGE[how](home / "mlflow.db")
    record.metrics({"loss": 1.0}, 1)
    record.end("finished")
    follower.close()
    sync()
    assert points(record.run_id, "loss") == [(1, 1.0)]
    assert {run[1] for run in all_there().values()} == {"FINISHED"}
    assert len(all_there()) == 2


def test_rebuild_keeps_the_old_database(home: Path) -> None:
    record = full()
    sync()
    before, id_before = all_there(), there(record.run_id).info.run_id
    sync(rebuild=True)
    assert all_there() == before
    assert there(record.run_id).info.run_id != id_before
    assert len(list(home.glob("mlflow.db.old-*"))) == 1


def test_a_database_of_others_is_never_replaced(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/theirs.db")
    recorded()
    sync()
    (tmp_path / "theirs.db").write_text("not a database, and longer than the hundred bytes of a header" * 3)
    with refuses("mirrors.unusable_store", "not a database"):
        sync()
    assert [file.name for file in tmp_path.glob("theirs.db*")] == ["theirs.db"]


def test_rebuild_of_a_database_of_others_doubles_nothing(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/theirs.db")
    record = full()
    sync()
    before = all_there()
    sync(rebuild=True)
    assert all_there() == before
    assert len(client().search_runs([there(record.run_id).info.experiment_id])) == 1


def test_a_store_whose_making_was_cut_off_is_made_anew(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut_off(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(store_module, "migrate", migrate)
        patch.setattr("mlflow.store.db.utils._upgrade_db", cut_off)
        with pytest.raises(KeyboardInterrupt):
            open_store()
    assert not (home / "mlflow.db").exists()
    (left,) = home.glob("mlflow.db.new-*")
    Path(f"{left}-journal").write_bytes(b"of the one that was cut off")
    open_store()
    assert {path.name for path in home.glob("*.db*")} == {"mlflow.db", "mlflow.db.lock"}


# --- a state directory that is elsewhere ------------------------------------------------------------------------------


def test_a_moved_state_directory_gets_a_new_database(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = full()
    sync()
    new = home.rename(home.parent / "else where")
    monkeypatch.setenv("CSE_HOME", str(new))
    sync()
    run = there(record.run_id)
    assert run.info.artifact_uri.startswith((new / "artifacts").as_uri())
    assert Path(client().download_artifacts(run.info.run_id, "result.json")).exists()
    assert len(list(new.glob("mlflow.db.old-*"))) == 1
    assert not home.exists()
    sync()
    assert there(record.run_id).info.run_id == run.info.run_id


def test_a_copy_is_a_state_directory_of_its_own(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = full()
    sync()
    copy = Path(shutil.copytree(home, home.parent / "copy", symlinks=True))
    before = (home / "mlflow.db").read_bytes()
    monkeypatch.setenv("CSE_HOME", str(copy))
    sync()
    assert there(record.run_id).info.artifact_uri.startswith((copy / "artifacts").as_uri())
    assert (home / "mlflow.db").read_bytes() == before


def test_a_link_to_the_state_directory_is_no_other_place(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = full()
    sync()
    before = there(record.run_id).info.run_id
    (link := home.parent / "link").symlink_to(home)
    monkeypatch.setenv("CSE_HOME", str(link))
    sync()
    assert there(record.run_id).info.run_id == before


# --- other programs ---------------------------------------------------------------------------------------------------


def test_a_locked_database_gets_the_run_later(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(store_module, "BUSY_SECONDS", 0.1)
    open_store()
    with closing(sqlite3.connect(home / "mlflow.db", isolation_level=None)) as shell:
        shell.execute("BEGIN EXCLUSIVE")
        record = recorded(end=None)
        follower = follow(record.about)
        record.end("finished")
        follower.close()
        assert "locked" in capsys.readouterr().err
        with refuses("mirrors.unusable_store", "locked"):
            sync()
        shell.execute("ROLLBACK")
    sync()
    assert there(record.run_id).info.status == "FINISHED"
    assert list(home.glob("mlflow.db.*-*")) == []


def test_a_lock_that_is_never_released_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cse_cli.runs.lock import FileLock

    monkeypatch.setattr(store_module, "_LOCK_SECONDS", 0.1)
    with FileLock(home / "mlflow.db.lock"), refuses("mirrors.locked", str(home / "mlflow.db")):
        open_store()


PROGRAM = """
from cse_cli.mirrors import follow
from tests.support.errors import refuses
from tests.support.records import recorded
record = recorded(end=None, group="one for all")
follower = follow(record.about)
for step in range(100):
    record.metrics({"loss": 1.0}, step)
record.end("finished")
follower.close()
"""


@pytest.mark.process
def test_two_processes_may_use_a_new_store_at_once(home: Path) -> None:
    command = [sys.executable, "-c", PROGRAM]
    started = [subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for process in started:
        assert process.communicate(timeout=200) == ("", "")
        assert process.returncode == 0
    found = all_there()
    assert [run[1] for run in found.values()] == ["FINISHED"] * 2
    assert all(len(points(run_id, "loss")) == 100 for run_id in found)
