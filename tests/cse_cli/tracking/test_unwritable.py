"""A state directory that cannot be written is read; one that other programs or files are in the way of says so."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import event

from cse_cli import tracking
from cse_cli.tracking import store as store_module
from cse_cli.tracking.reader import finished_results, list_runs
from cse_cli.tracking.store import Store, open_store
from cse_cli.tracking.unsent import sync
from registry.errors import TrackingError
from tests.chosen import these
from tests.cse_cli.jobs.running import cse
from tests.cse_cli.tracking.stores import fresh_store, points, result
from tests.cse_cli.tracking.test_moved import move, record
from tests.shrunken import Small, recipe


class NoLock:
    """A lock in a folder that cannot be written."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def acquire(self) -> None:
        raise OSError(errno.EROFS, "Read-only file system")


def cannot_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the file system refuse what the commands do first: root, as in a container, may write everywhere."""

    def refuse(**_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(store_module, "FileLock", NoLock)
    monkeypatch.setattr("cse_cli.core.paths.TemporaryFile", refuse)


def content(home: Path) -> dict[Path, tuple[int, bytes]]:
    files = [path for path in home.rglob("*") if path.is_file()]
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


@pytest.mark.parametrize("moved", these([True], [False, True]))
def test_what_cannot_be_written_can_be_read(
    moved: bool, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fresh_store(home)
    run_id = record(home)
    if moved:
        home = move(home, monkeypatch)
    before = content(home)
    cannot_write(monkeypatch)
    for command in (("runs", "ls"), ("runs", "show", run_id), ("leaderboard", "--format", "json"), ("list",)):
        code, out, err = cse(*command, capsys=capsys)
        assert (code, err) == (0, ""), (command, err)
        assert out
    assert [one.seed for one in finished_results()] == [1]
    assert content(home) == before


def test_a_run_where_nothing_can_be_written_is_one_message(
    home: Path, tmp_path: Path, parts: Small, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fresh_store(home)
    cannot_write(monkeypatch)
    code, out, err = cse("run", str(recipe(tmp_path, parts)), capsys=capsys)
    assert (code, out) == (4, "")
    assert " ".join(err.split()) == (
        f"error: the state directory {home} cannot be written: Read-only file system → set CSE_HOME to another folder"
    )


@pytest.mark.parametrize("name", ["runs", "cache", "artifacts"])
def test_a_file_in_place_of_a_folder_is_one_message(
    name: str, home: Path, tmp_path: Path, parts: Small, capsys: pytest.CaptureFixture[str]
) -> None:
    home.mkdir()
    (home / name).touch()
    code, out, err = cse("run", str(recipe(tmp_path, parts)), capsys=capsys)
    assert (code, out) == (4, "")
    assert " ".join(err.split()) == (
        f"error: {home / name} is a file, and should be a folder → move it away, and run this again"
    )
    assert [path.name for path in home.iterdir()] == [name]


@pytest.mark.parametrize("writer", [tracking.start, None])
def test_the_state_directory_is_its_owners_alone(writer: object, home: Path) -> None:
    from registry.paths import write_atomically

    if writer is None:
        write_atomically(home / "downloads" / "a", "a")
    else:
        tracking.start("run", {}, {})
    assert home.stat().st_mode & 0o777 == 0o700


def test_one_that_was_opened_to_others_stays_so(home: Path) -> None:
    home.mkdir()
    home.chmod(0o755)
    tracking.start("run", {}, {})
    assert home.stat().st_mode & 0o777 == 0o755


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait a moment for locked databases, and not for 20 seconds."""
    monkeypatch.setattr(store_module, "BUSY_SECONDS", 0.1)


def hurry(_1: object, _2: object, statement: str, parameters: object, *_: object) -> tuple[str, object]:
    """Have MLflow wait a moment too."""
    return statement.replace("busy_timeout = 20000", "busy_timeout = 10"), parameters


@pytest.fixture
def shell(store: Store, home: Path) -> Iterator[sqlite3.Connection]:
    """Yield another program's connection to the database."""
    with closing(sqlite3.connect(home / "mlflow.db", isolation_level=None)) as connection:
        yield connection


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("command", [("runs", "ls"), ("leaderboard",), ("doctor", "--repair")])
def test_a_locked_database_is_one_message(
    command: tuple[str, ...], shell: sqlite3.Connection, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shell.execute("BEGIN EXCLUSIVE")
    code, out, err = cse(*command, capsys=capsys)
    assert (code, out) == (4, "")
    said = " ".join(err.split())
    assert said.startswith(f"error: the tracking store sqlite:///{home}/mlflow.db has been locked by another program")
    assert said.endswith("→ end what has it open, as an SQLite shell or a copy in the making, and run this again")


@pytest.mark.usefixtures("impatient")
def test_a_run_whose_database_is_locked_meanwhile_loses_nothing(
    store: Store, shell: sqlite3.Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    event.listen(store.client._tracking_client.store.engine, "before_cursor_execute", hurry, retval=True)
    tracker = tracking.start("run", {}, {})
    tracker.metrics({"train/loss": 2.0}, 1)
    tracker.flush()
    shell.execute("BEGIN EXCLUSIVE")
    tracker.metrics({"train/loss": 1.0}, 2)
    tracker.text("result.json", result().model_dump_json())
    tracker.finish("FINISHED")
    assert capsys.readouterr().err.count("locked") == 1
    with pytest.raises(TrackingError, match="locked by another program"):
        open_store()
    shell.execute("ROLLBACK")
    assert [sent.refused for sent in sync()] == [None]
    assert points(store.client, tracker.run_id, "train/loss") == [(1, 2.0), (2, 1.0)]
    (run,) = list_runs()
    assert (run.status, run.result) == ("FINISHED", result())
