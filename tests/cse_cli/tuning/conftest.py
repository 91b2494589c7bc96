from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def wait_for_no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the journals of searches leave their lines to the system."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
