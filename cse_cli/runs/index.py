"""All recorded runs, read from their directories. Imports neither MLflow nor torch.

A file keeps what was read of each run, by the time and size of the run's files. You can delete it at any time.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, cached_property
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from cse_cli.core import paths
from cse_cli.core.formatting import counted
from cse_cli.core.paths import runs
from cse_cli.core.results import Result
from cse_cli.runs.cache import Cache, Entry, Key
from cse_cli.runs.events import FILE, read_history
from cse_cli.runs.lock import is_held
from cse_cli.runs.record import ABOUT, RESULT, About, folder_of, last_end, lock_of, read_about
from registry.errors import CseError, UnknownNameError, suggestion
from registry.validation import describe

State = Literal["RUNNING", "FINISHED", "FAILED", "STOPPED", "PRUNED", "LOST"]
"""LOST: the process of the run was killed or its machine went down. The run can be resumed from its last checkpoint."""
STATES: tuple[State, ...] = ("RUNNING", "FINISHED", "FAILED", "STOPPED", "PRUNED", "LOST")

SILENT_SECONDS = 1800.0
"""Without file locks, a run that has recorded nothing for this long counts as LOST."""

EARLIER = "run.json"
"""File of runs that an unreleased earlier version recorded."""

_FILES = (ABOUT, FILE, RESULT)


@dataclass(frozen=True)
class RecordedRun:
    """A run as its directory describes it.

    Args:
        about: What the run is.
        end: Kind of the event that ended it, or None while it runs or if its process was killed.
        reason: Why it ended, one line.
        host: Machine and process that started it last.
        started: Time of its first start.
        ended: Time of its end, or None.
        tags: Tags set during the run.
        damaged: Number of lines of `events.jsonl` that cannot be read.
        result_text: Contents of `result.json`, already checked, or None.
        unreadable: Why the result cannot be read, or None.
    """

    about: About
    end: str | None = None
    reason: str = ""
    host: str = ""
    started: datetime | None = None
    ended: datetime | None = None
    tags: dict[str, str] = field(default_factory=dict, repr=False)
    damaged: int = 0
    result_text: str | None = field(default=None, repr=False)
    unreadable: str | None = None

    @property
    def run_id(self) -> str:
        """ID of the run."""
        return self.about.run_id

    @property
    def name(self) -> str:
        """Display name of the run."""
        return self.about.name

    @cached_property
    def state(self) -> State:
        """State of the run."""
        if self.end is not None:
            return self.end.upper()  # type: ignore[return-value]
        held = is_held(lock_of(self.run_id))
        if held is None and not self.about.pulled:
            held = time.time() - _last_change(self.run_id) < SILENT_SECONDS
        if held:
            return "RUNNING"
        end = last_end(self.run_id)  # it may have ended after it was read
        return end.upper() if end is not None else "LOST"  # type: ignore[return-value]

    @cached_property
    def result(self) -> Result | None:
        """Result of a finished run."""
        return None if self.result_text is None else Result.model_validate_json(self.result_text)

    @property
    def is_result(self) -> bool:
        """Whether the run counts as a result of its recipe: finished, readable, and neither a trial nor a summary."""
        return self.about.is_result and self.end == "finished" and self.result_text is not None


@dataclass(frozen=True)
class Index:
    """Everything in the directory of the runs.

    Args:
        runs: All runs that can be read, newest first.
        damaged: ID of each run whose `run.toml` cannot be read → why.
    """

    runs: list[RecordedRun]
    damaged: dict[str, str]


def read_index() -> Index:
    """Return all recorded runs."""
    known, run_ids, folder = _cache(paths.cache() / "runs.jsonl"), _run_ids(), str(runs())
    found: list[RecordedRun] = []
    damaged: dict[str, str] = {}
    for run_id in run_ids:
        key = _key(f"{folder}/{run_id}")
        try:
            if (entry := known.get(run_id, key)) is None:
                known.add(entry := _read(run_id, key))
            found.append(_built(entry))
        except CseError as error:
            if key[0] is not None:
                damaged[run_id] = error.message
    known.save(run_ids)
    return Index(sorted(found, key=lambda run: (run.about.created, run.run_id), reverse=True), damaged)


def earlier_runs() -> str:
    """Return a message about runs that an unreleased earlier version recorded; empty if there are none."""
    number = len([*runs().glob(f"*/{EARLIER}")])
    return f"{counted(number, 'run')} of an unreleased earlier version of cse cannot be read" if number else ""


def all_runs() -> list[RecordedRun]:
    """Return all recorded runs, newest first. A run whose `run.toml` cannot be read is left out with a warning."""
    index = read_index()
    for run_id, why in index.damaged.items():
        sys.stderr.write(f"warning: run {run_id[:8]} is left out: {why}\n")
    return index.runs


def finished_runs() -> list[RecordedRun]:
    """Return all finished runs that count as results, newest first, with a warning for each unreadable result."""
    known = [run for run in all_runs() if run.about.is_result]
    for run in known:
        if why := _left_out(run):
            sys.stderr.write(f"warning: run {run.about.short} ({run.name}) is left out: {why}\n")
    return [run for run in known if run.is_result]


def _left_out(run: RecordedRun) -> str | None:
    """Return why a run that has scores is not a result, or None."""
    if run.end == "finished":
        return run.unreadable
    if run.end is None and (folder_of(run.run_id) / RESULT).exists() and run.state == "LOST":
        return f"{FILE} lacks its end. To add it: cse run --resume {run.about.short}"
    return None


def finished_results() -> list[Result]:
    """Return the results of `finished_runs`."""
    return [run.result for run in finished_runs() if run.result is not None]


def read_run(run_id: str) -> RecordedRun:
    """Return one run, by its whole ID.

    Raises:
        CseError: If its `run.toml` cannot be read.
    """
    return _built(_read(run_id, _key(str(folder_of(run_id)))))


def result_of(run_id: str) -> Result | None:
    """Return the result of a finished run, or None if it has none."""
    return read_run(run_id).result


def find_run(prefix_or_name: str, among: Iterable[RecordedRun] | None = None) -> RecordedRun:
    """Return the run with this ID prefix or name.

    Raises:
        UnknownNameError: If no run or several runs match.
    """
    known = list(all_runs() if among is None else among)
    matching = [run for run in known if run.run_id.startswith(prefix_or_name.lower())]
    matching = matching or [run for run in known if run.name == prefix_or_name]
    if prefix_or_name and len(matching) == 1:
        return matching[0]
    if prefix_or_name and matching:
        listed = ", ".join(f"{run.about.short} ({run.name})" for run in matching[:5])
        raise UnknownNameError(
            f"'{prefix_or_name}' matches {len(matching)} runs: {listed}", "give more characters of the ID"
        )
    near = suggestion(prefix_or_name, [*(run.name for run in known), *(run.about.short for run in known)])
    raise UnknownNameError(f"no run '{prefix_or_name}' in {runs()}.{near}", "`cse runs ls` lists all runs")


def _last_change(run_id: str) -> float:
    with suppress(OSError):
        return max(entry.stat().st_mtime for entry in os.scandir(folder_of(run_id)))
    return 0.0


def _run_ids() -> list[str]:
    with suppress(OSError):
        return [entry.name for entry in os.scandir(runs()) if not entry.name.startswith(".") and entry.is_dir()]
    return []


def _key(folder: str) -> Key:
    """Return time and size of the files that `_read` reads."""
    return [_stat(f"{folder}/{name}") for name in _FILES]


def _stat(file: str) -> list[int] | None:
    try:
        found = os.stat(file)  # noqa: PTH116 - pathlib would take half of the time of `read_index`
    except OSError:
        return None
    return [found.st_mtime_ns, found.st_size]


def _read(run_id: str, key: Key) -> Entry:
    """Return what the files of a run say.

    Raises:
        CseError: If `run.toml` cannot be read.
    """
    about, history = read_about(run_id), read_history(folder_of(run_id), without=("metrics", "system"))
    end, last = history.end, history.starts[-1].data if history.starts else {}
    has_result = end is not None and end.kind == "finished" and not about.summary
    result, unreadable = _read_result(run_id) if has_result else ("", None)
    facts = {
        "about": about.model_dump(mode="json", exclude_defaults=True),
        "end": end.kind if end else None,
        "reason": str(end.data.get("reason", "")) if end else "",
        "host": f"process {last['pid']} on {last['host']}" if {"pid", "host"} <= last.keys() else "",
        "started": history.starts[0].time if history.starts else None,
        "ended": end.time if end else None,
        "tags": history.tags,
        "damaged": history.damaged,
        "unreadable": unreadable,
    }
    return Entry(run_id, key, facts, result.encode())


def _read_result(run_id: str) -> tuple[str, str | None]:
    """Return the contents of `result.json`, or why it cannot be read."""
    try:
        text = (folder_of(run_id) / RESULT).read_text(encoding="utf-8")
        return json.dumps(Result.model_validate_json(text).model_dump(mode="json")), None  # NaN stays NaN
    except ValidationError as error:
        return "", f"{RESULT} is damaged or from another version of cse: {describe(error)}"
    except (OSError, ValueError) as error:
        return "", f"{RESULT} cannot be read: {error}"


def _built(entry: Entry) -> RecordedRun:
    facts = entry.facts
    times = {name: _time(facts[name]) for name in ("started", "ended")}
    about = About.model_validate(facts["about"])
    return RecordedRun(**{**facts, **times, "about": about, "result_text": entry.result.decode() or None})


def _time(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


@cache
def _cache(file: Path) -> Cache:
    return Cache(file)
