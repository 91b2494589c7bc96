"""Numbers, lists and settings as strings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from statistics import fmean, stdev
from typing import Any, TypeVar

import tomlkit

from registry.errors import CseError

UNSET = "—"
_UNITS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}


def counted(number: int, what: str) -> str:
    """Return "1 run", "3 runs"."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def seed_list(seeds: Sequence[int]) -> str:
    """Return "seed 3", "seeds 0–4" for a range, or a list."""
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    consecutive = len(seeds) > 2 and list(seeds) == list(range(seeds[0], seeds[-1] + 1))
    return f"seeds {seeds[0]}–{seeds[-1]}" if consecutive else f"seeds {', '.join(map(str, seeds))}"


def signed(value: float | None) -> str:
    """Return a difference with its sign, or a dash for None."""
    return UNSET if value is None else f"{value:+.2f}".replace("-", "−")


def mean_text(values: Sequence[float]) -> str:
    """Return the mean, with the standard deviation of several values that are not all equal."""
    if not values:
        return ""
    return f"{fmean(values):.2f} ± {stdev(values):.2f}" if len(set(values)) > 1 else f"{values[0]:.2f}"


def interval(low: float | None, high: float | None) -> str:
    """Return both ends of an interval of differences."""
    return UNSET if low is None or high is None else f"{signed(low)} … {signed(high)}"


def p_value(p: float | None) -> str:
    """Return a p-value."""
    return UNSET if p is None else "<0.001" if p < 0.001 else f"{p:.3f}"


def distinct(values: Iterable[object]) -> str:
    """Return the distinct values that are not empty, separated by commas."""
    return ", ".join(dict.fromkeys(str(value) for value in values if value not in (None, "")))


def duration(seconds: float) -> str:
    """Return a time in seconds, minutes, hours or days."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 345_600 else f"{seconds / 86_400:,.0f} days"


def parse_duration(option: str, text: str) -> float:
    """Return the seconds of a duration such as "90", "30m", "1.5h" or "2d"."""
    match = re.fullmatch(r"(\d+\.?\d*)\s*(s|m|min|h|d|)", text.strip())
    if match is None or float(match[1]) == 0:
        raise CseError(
            f"{option}: '{text}' is not a duration", "use seconds, 30m, 2h or 1d", code="core.not_a_duration"
        )
    return float(match[1]) * _UNITS[match[2]]


def date_and_time(moment: datetime) -> str:
    """Return a date and time as a string."""
    return f"{moment:%Y-%m-%d %H:%M %Z}".strip()


def to_toml(tables: Mapping[str, Any]) -> str:
    """Return tables such as `Recipe.resolved()` as TOML. It loads as the same recipe."""
    return tomlkit.dumps(tables)


def differences(before: Mapping[str, Any], after: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield "dotted.key: old → new" for every leaf that differs."""
    for key in dict.fromkeys([*before, *after]):
        old, new = before.get(key), after.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from differences(old, new, f"{prefix}{key}.")
        elif old != new:
            yield f"{prefix}{key}: {old!r} → {new!r}"


Item = TypeVar("Item")


Key = TypeVar("Key")


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Return key → its items, in the order of the items."""
    found: dict[Key, list[Item]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found
