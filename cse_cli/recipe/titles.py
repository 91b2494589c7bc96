"""What a recipe calls itself, read without validating it."""

from __future__ import annotations

import tomllib
from pathlib import Path


def title(path: Path) -> str:
    """Return the title a recipe file gives, nothing inherited; empty where there is none to read."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8-sig")).get("title")
    except (OSError, ValueError, RecursionError):
        return ""
    return found if isinstance(found, str) else ""
