from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cse_cli.mirrors import mirror
from tests.support.trackers import Memory


@pytest.fixture(autouse=True)
def mlflow_is_on(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mirror to MLflow, which other tests switch off."""
    monkeypatch.setenv("CSE_MIRRORS", "mlflow")


@pytest.fixture
def memory(mlflow_is_on: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Memory]]:
    """Select a tracker in memory, and do not wait for it long."""
    Memory.reset()
    monkeypatch.setenv("CSE_MIRRORS", "memory")
    monkeypatch.setitem(mirror.MIRRORS, "memory", "tests.support.trackers:Memory")
    monkeypatch.setattr(mirror, "SEND_SECONDS", 0.02)
    monkeypatch.setattr(mirror, "RETRY_SECONDS", 0.02)
    monkeypatch.setattr(mirror, "LAST_SECONDS", 0.5)
    yield Memory
    if Memory.hangs is not None:
        Memory.hangs.set()
