"""Runs that `cse runs ls` lists, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any, Literal, get_args

from cse_cli.core.formatting import parse_duration
from cse_cli.runs.index import STATES, RecordedRun, all_runs
from registry.errors import CseError, UnknownNameError, suggestion

Order = Literal["started", "avg", "gain", "dev", "seconds", "recipe", "name", "status"]
_HIGHEST_FIRST = ("started", "avg", "gain", "dev", "seconds")


@dataclass(frozen=True)
class RunQuery:
    """The options of `cse runs ls`.

    Args:
        recipe: Name of the recipe, or a pattern with `*`.
        status: One of `STATES`, in upper or lower case.
        tags: "key=value", or only a key. A run must have all of them.
        experiment: Group of the runs, a pattern with `*`, or the ID of an experiment.
        since: A date or a time, or how long ago: "2d", "3h".
        sort: Order of the runs. Numbers are sorted from high to low.
        limit: Maximum number of runs.
    """

    recipe: str | None = None
    status: str | None = None
    tags: Sequence[str] = ()
    experiment: str | None = None
    since: str | None = None
    sort: Order = "started"
    limit: int | None = None

    @property
    def is_open(self) -> bool:
        """Whether every run matches."""
        return not (self.recipe or self.status or self.tags or self.experiment or self.since)

    def runs(self) -> list[RecordedRun]:
        """Return the runs that match, in order."""
        matches = self._condition()
        return sorted(filter(matches, all_runs()), key=_key(self.sort))[: self.limit]

    def _condition(self) -> Callable[[RecordedRun], bool]:
        status = None if self.status is None else self.status.upper()
        if status is not None and status not in STATES:
            known = ", ".join(STATES).lower()
            raise UnknownNameError(
                f"--status: '{self.status}' is not a status.{suggestion(status, STATES)}",
                f"use {known}",
                code="runs.unknown_status",
            )
        since = None if self.since is None else parse_since(self.since)
        pairs = [tag.partition("=") for tag in self.tags]

        def matches(run: RecordedRun) -> bool:
            about = run.about
            return (
                (self.recipe is None or fnmatchcase(about.recipe, self.recipe))
                and (self.experiment is None or self.experiment == about.experiment or self._is_group(about.group))
                and (since is None or about.created >= since)
                and all(key in about.tags and (not equals or about.tags[key] == value) for key, equals, value in pairs)
                and (status is None or run.state == status)
            )

        return matches

    def _is_group(self, group: str) -> bool:
        return self.experiment is not None and fnmatchcase(group, self.experiment)


def check_order(name: str) -> Order:
    """Return the order that `--sort` names."""
    orders = get_args(Order)
    if name not in orders:
        raise UnknownNameError(
            f"--sort: '{name}' is not a column.{suggestion(name, orders)}",
            f"use {', '.join(orders)}",
            code="runs.unknown_order",
        )
    return name  # type: ignore[return-value]


def parse_since(text: str) -> datetime:
    """Return the time of "2026-11-21", "2026-11-21 14:00", or "2d" and "3h" (ago)."""
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        pass
    try:
        return datetime.now(UTC) - timedelta(seconds=parse_duration("--since", text))
    except (CseError, OverflowError):
        raise CseError(
            f"--since: '{text}' is not a date or duration", "use 2026-11-21, 3h or 2d", code="runs.invalid_time"
        ) from None


def _key(order: Order) -> Callable[[RecordedRun], Any]:
    """Return the sort key: high numbers or early letters first, then the newest. Runs without a value are last."""
    down = -1 if order in _HIGHEST_FIRST else 1

    def key(run: RecordedRun) -> Any:
        newest = -run.about.created.timestamp()
        value = _value(run, order)
        if value is None:
            return True, 0, newest
        return False, value if isinstance(value, str) else down * value, newest

    return key


def _value(run: RecordedRun, order: Order) -> str | float | None:
    match order:
        case "started":
            return run.about.created.timestamp()
        case "avg":
            return run.result.average() if run.result else None
        case "gain":
            return run.result.gain if run.result else None
        case "recipe":
            return run.about.recipe or run.name
        case "status":
            return run.state
        case _:
            value: str | float | None = getattr(run, order)
            return value
