"""Paths of values in nested tables, as tuples and as dotted TOML keys."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from typing import Any

Keys = tuple[str | int, ...]
"""Path of a value in nested tables: keys, and positions in arrays."""

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_PLAIN = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")


def dotted(keys: Keys) -> str:
    """Return a path as `--set` reads it. Keys with other characters than letters, digits, "_" and "-" are quoted."""
    return ".".join([str(key) if _BARE.fullmatch(str(key)) else json.dumps(key) for key in keys])


def parse_dotted(text: str) -> tuple[str, ...] | None:
    """Return the parts of a dotted TOML key, or None if the text is not one."""
    if _PLAIN.fullmatch(text):
        return tuple(text.split("."))
    try:
        table: Any = tomllib.loads(f"{text} = 0")
    except (ValueError, RecursionError):
        return None
    keys: list[str] = []
    while isinstance(table, dict) and len(table) == 1:
        key, table = next(iter(table.items()))
        keys.append(key)
    return tuple(keys) if table == 0 else None


def inline(value: Any) -> str:
    """Return a value as TOML on one line, as `--set` reads it."""
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{dotted((key,))} = {inline(inner)}' for key, inner in value.items())} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(inline, value))}]"
    return json.dumps(value, ensure_ascii=False)


_SAME = str.maketrans(".-", "__")
"""Makes dots, underscores and hyphens the same."""


def is_ending(name: str, path: str) -> bool:
    """Return whether a name is a dotted path or the end of one, such as "temperature" or "info_nce.temperature"."""
    keys = path.split(".")
    endings = (".".join(keys[start:]) for start in range(len(keys)))
    return any(name.translate(_SAME) == ending.translate(_SAME) for ending in endings)


def is_list_of_parts(place: str) -> bool:
    """Return whether a place takes several components."""
    return place.startswith("views.")
