from __future__ import annotations

import pytest


@pytest.fixture
def nothing_here(monkeypatch, tmp_path):
    """A machine with neither models nor data of its own."""
    for name in ("CSE_DATA", "CSE_MODELS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))


@pytest.fixture
def one_is_stale(monkeypatch):
    """Runs whose settings begin with "a" are those of their recipe's file. All others are stale."""
    status = "cse_cli.analysis.experiments.recipe_status"
    monkeypatch.setattr(status, lambda run, _: "current" if run.recipe_hash[0] == "a" else "changed")
