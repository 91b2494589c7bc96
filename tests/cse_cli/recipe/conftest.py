"""Recipes that a test writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def write(folder: Path) -> Callable[[str, str], Path]:
    """Return a function that writes a text to a file in the working directory."""

    def written(name: str, text: str) -> Path:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return written
