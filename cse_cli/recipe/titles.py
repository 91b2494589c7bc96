"""What a recipe or study calls itself, read without validating it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any


def title(path: Path) -> str:
    """Return the title a recipe file gives, nothing inherited; empty where there is none to read."""
    return _title(_read(path))


def study_title(path: Path) -> str:
    """Return the title a study's file gives, nothing inherited; empty where there is none to read."""
    return _title(_read(path).get("study"))


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError):
        return {}


def _title(table: Any) -> str:
    found = table.get("title") if isinstance(table, dict) else None
    return found if isinstance(found, str) else ""
