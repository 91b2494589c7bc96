from __future__ import annotations

import pytest


@pytest.fixture
def nothing_here(monkeypatch, tmp_path):
    """A machine with neither models nor data of its own."""
    for name in ("CSE_DATA", "CSE_MODELS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
