from __future__ import annotations

import multiprocessing

import pytest

from tests.support import processes  # noqa: F401 - says what the server imports


@pytest.fixture
def forked_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork workers from a server that has imported everything. `test_command.py` spawns them, as `cse` does."""
    context = multiprocessing.get_context("forkserver")
    monkeypatch.setattr("cse_cli.data.columns.get_context", lambda _: context)
