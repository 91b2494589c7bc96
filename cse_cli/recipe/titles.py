"""What a recipe calls itself, read without validating it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any


def about(path: Path) -> dict[str, Any]:
    """Return the top-level table of a recipe file alone, nothing inherited; empty where it cannot be read."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError):
        return {}


def title(path: Path) -> str:
    """Return the title a recipe file gives, or an empty string."""
    found = about(path).get("title", "")
    return found if isinstance(found, str) else ""
