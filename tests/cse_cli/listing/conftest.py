"""Facts of recipes and components, computed once for all these tests."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def shared_catalog(home: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Share the cached facts between the state directories of the tests of a process."""
    shared = tmp_path_factory.getbasetemp() / "catalog"
    shared.mkdir(exist_ok=True)
    (home / "cache").mkdir(parents=True)
    (home / "cache" / "catalog").symlink_to(shared)
