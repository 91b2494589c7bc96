"""Tables → TOML text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tomlkit


def to_toml(tables: Mapping[str, Any]) -> str:
    """Return tables such as `Recipe.resolved()` as TOML that loads back to the same recipe."""
    return tomlkit.dumps(tables)
