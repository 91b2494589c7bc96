"""Where commands are tried."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    where = tmp_path / "work"
    where.mkdir()
    monkeypatch.chdir(where)
    return where
