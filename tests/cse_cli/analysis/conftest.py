from __future__ import annotations

from pathlib import Path

import pytest

from cse_cli.tracking.store import Store
from tests.cse_cli.tracking.stores import fresh_store


@pytest.fixture
def store(home: Path) -> Store:
    """Return an empty store in the test's own state directory."""
    return fresh_store(home)


@pytest.fixture
def nothing_here(monkeypatch, tmp_path):
    """A machine with neither models nor data of its own."""
    for name in ("CSE_DATA", "CSE_MODELS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
