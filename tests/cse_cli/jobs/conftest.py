"""A tiny recipe in a directory of its own, and `cse run` in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.command import cse
from tests.support.shrunken import Small, recipe

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def file(folder: Path, parts: Small) -> str:
    """Return the name of a tiny recipe in the current directory."""
    return recipe(folder, parts).name


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Return `cse run` on the CPU: exit code, stdout and stderr."""
    return lambda *arguments: cse("run", *map(str, arguments), "--device", "cpu", capsys=capsys)
