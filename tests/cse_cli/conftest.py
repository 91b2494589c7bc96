"""Where commands are tried."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    where = tmp_path / "work"
    where.mkdir()
    monkeypatch.chdir(where)
    return where


@pytest.fixture
def forked_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork the processes of runs from a server that has imported everything. Tests of their ends start real ones."""
    from tests.support.forked import ForkedWorker

    monkeypatch.setattr(ForkedWorker, "started", [])
    monkeypatch.setattr("cse_cli.jobs.child.subprocess", SimpleNamespace(**{**vars(subprocess), "Popen": ForkedWorker}))
