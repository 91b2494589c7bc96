"""A state directory that cannot be written: its runs are read and shown, and what has to write says why."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from cse_cli.mirrors import command, store, ui
from tests.support.errors import refuses
from tests.support.records import recorded


class NoLock:
    """A lock in a directory that cannot be written: root, as in a container, can write everywhere."""

    def __init__(self, *_: object) -> None:
        pass

    def acquire(self, *_: object) -> bool:
        raise OSError(errno.EROFS, "Read-only file system")


def content(home: Path) -> dict[Path, tuple[int, bytes]]:
    files = [path for path in home.rglob("*") if path.is_file()]
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def test_the_pages_show_a_directory_that_cannot_be_written(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded()
    command.sync()
    before, served = content(home), []
    monkeypatch.setattr(store, "FileLock", NoLock)
    monkeypatch.setattr(ui, "serve", lambda page, *_: served.append(page))
    command.ui(None, True)
    assert served == ["experiments"]
    assert "Read-only file system" in capsys.readouterr().err
    after = {file: found for file, found in content(home).items() if "cache" not in file.parts}
    assert after == before


def test_sync_where_nothing_can_be_written_is_one_message(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "FileLock", NoLock)
    with refuses("mirrors.unusable_store", "Read-only file system") as caught:
        command.sync()
    assert caught.value.exit_code == 4
    assert "CSE_HOME" in str(caught.value)


def test_the_state_directory_is_its_owners_alone(home: Path) -> None:
    store.open_store()
    assert home.stat().st_mode & 0o777 == 0o700


def test_one_that_was_opened_to_others_stays_so(home: Path) -> None:
    home.mkdir(parents=True)
    home.chmod(0o755)
    store.open_store()
    assert home.stat().st_mode & 0o777 == 0o755
