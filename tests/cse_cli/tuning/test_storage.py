"""The database of a search in the state directory."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path
from threading import Timer

import pytest

from cse_cli.tuning import storage
from cse_cli.tuning.storage import Address, address


@pytest.fixture
def database(home: Path) -> Address:
    return address(None, "search")


def file_of(database: Address) -> Path:
    assert database.file is not None
    return database.file


def test_a_database_that_another_process_creates(database: Address, tmp_path: Path) -> None:
    database.open()
    made = shutil.copy(file_of(database), tmp_path / "made.db")
    file_of(database).write_bytes(b"")
    timer = Timer(0.3, lambda: file_of(database).write_bytes(Path(made).read_bytes()))
    timer.start()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        database.open()
    timer.join()


def test_an_emptied_database_is_a_warning(database: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    database.open()
    file_of(database).write_bytes(b"")
    monkeypatch.setattr(storage, "_MAKING_SECONDS", 0.0)
    with pytest.warns(UserWarning, match="is empty: its trials are lost, and the search restarts"):
        database.open()
