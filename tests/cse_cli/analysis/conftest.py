from __future__ import annotations

from pathlib import Path

import pytest

from cse_cli.tracking.store import Store
from tests.cse_cli.tracking.stores import fresh_store


@pytest.fixture
def store(home: Path) -> Store:
    """Return an empty store in the test's own state directory."""
    return fresh_store(home)
