"""`cse runs` in this process."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.command import cse

Runs = Callable[..., tuple[int, str, str]]


@pytest.fixture
def runs(capsys: pytest.CaptureFixture[str]) -> Runs:
    """Return `cse runs`: exit code, stdout and stderr."""
    return lambda *arguments: cse("runs", *arguments, capsys=capsys)
