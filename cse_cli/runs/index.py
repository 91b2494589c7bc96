"""All recorded runs, read from their directories. Imports neither MLflow nor torch.

`cache/runs.json` keeps the facts of runs that have ended, by time and size of their files. You can delete it at any
time.
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
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from cse_cli._version import __version__
from cse_cli.core import paths
from cse_cli.core.paths import runs
from cse_cli.core.results import Result
from cse_cli.runs.events import FILE, read_history
from cse_cli.runs.plans import plan_of_run
from cse_cli.runs.record import ABOUT, RESULT, About, folder_of, is_busy, last_end, read_about
from registry.errors import CseError, UnknownNameError, suggestion
from registry.machinery.validation import describe
from registry.paths import write_atomically

State = Literal["RUNNING", "FINISHED", "FAILED", "STOPPED", "PRUNED", "LOST"]
"""LOST: the process of the run was killed or its machine went down. The run can be resumed from its last checkpoint."""
STATES: tuple[State, ...] = ("RUNNING", "FINISHED", "FAILED", "STOPPED", "PRUNED", "LOST")

SILENT_SECONDS = 1800.0
"""Without file locks, a run that has recorded nothing for this long counts as LOST."""

_FILES = (ABOUT, FILE, RESULT)
Key = tuple[tuple[int, int] | None, ...]
"""Time and size of each of `_FILES`."""

_UNSAVED = 0.05
"""Share of the runs that the cache file may lack, so that a new run does not always rewrite it."""
_unsaved: set[str] = set()


@dataclass(frozen=True)
class RecordedRun:
    """A run as its directory describes it.

    `end` is the kind of the event that ended it, or None while it runs or if its process was killed. `host` names
    machine and process that started it last. `damaged` is the number of lines of `events.jsonl` that cannot be read. A
    finished run has `result_text`, the content of `result.json`, or the reason why it is `unreadable`.
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
        held = is_busy(self.run_id)
        if held is None and not self.about.pulled:
            held = False
            with suppress(OSError):
                changed = max(entry.stat().st_mtime for entry in os.scandir(folder_of(self.run_id)))
                held = time.time() - changed < SILENT_SECONDS
        if held:
            return "RUNNING"
        return (last_end(self.run_id) or "lost").upper()  # type: ignore[return-value]  # it may have ended since

    @cached_property
    def result(self) -> Result | None:
        """Result of a finished run, or None if it does not exist or cannot be read."""
        return None if self.result_text is None else parse_result(self.about, self.result_text)

    @property
    def is_result(self) -> bool:
        """Whether the run counts as a result of its recipe: finished, readable, and neither a trial nor a summary."""
        return self.about.is_result and self.result_text is not None

    @property
    def dev(self) -> float | None:
        """Dev score of the selected state, or None."""
        result = self.result
        return None if result is None or result.selected_step is None else result.curve.get(result.selected_step)

    @cached_property
    def progress(self) -> tuple[int, int]:
        """Last recorded step of the run, and its number of steps."""
        history = read_history(self.about.path, without=("system",))
        return history.step, int(history.starts[-1].data.get("steps", 0)) if history.starts else 0

    @property
    def seconds(self) -> float | None:
        """Training time of a finished run, otherwise the time between its start and its end."""
        if self.result is not None:
            return self.result.seconds
        return (self.ended - self.started).total_seconds() if self.started and self.ended else None


def read_index() -> tuple[list[RecordedRun], dict[str, str]]:
    """Return all readable runs, newest first, and the ID of each run whose `run.toml` cannot be read → why."""
    file, run_ids = paths.cache() / "runs.json", recorded_ids()
    known = _known(file)
    found: list[RecordedRun] = []
    damaged: dict[str, str] = {}
    for run_id in run_ids:
        key = _key(run_id)
        if run_id in known and known[run_id][0] == key:
            found.append(known[run_id][1])
            continue
        try:
            run = read_run(run_id)
        except CseError as error:
            if key[0] is not None:
                damaged[run_id] = error.message
            continue
        found.append(run)
        if run.end is not None:
            known[run_id] = key, run
            _unsaved.add(run_id)
    if len(_unsaved) > len(run_ids) * _UNSAVED:
        _unsaved.clear()
        kept = {run_id: known[run_id] for run_id in run_ids if run_id in known}
        content = _entries().dump_json(kept, exclude_defaults=True)
        with suppress(OSError):  # `cse` also reads a read-only state directory and one on a full disk
            write_atomically(file, b"%s\n%s" % (__version__.encode(), content))
    return sorted(found, key=lambda run: (run.about.created, run.run_id), reverse=True), damaged


def all_runs() -> list[RecordedRun]:
    """Return all recorded runs, newest first. A run whose `run.toml` cannot be read is skipped with a warning."""
    found, damaged = read_index()
    for run_id, why in damaged.items():
        sys.stderr.write(f"warning: skipping run {run_id[:8]}: {why}\n")
    return found


def finished_runs() -> list[RecordedRun]:
    """Return all finished runs with comparable results, newest first, with a warning for each unreadable result."""
    known = [run for run in all_runs() if run.about.is_result and not run.about.limited]
    for run in known:
        why = run.unreadable
        if run.end is None and (run.about.path / RESULT).exists() and run.state == "LOST":
            why = f"{FILE} lacks its end → cse run --resume {run.about.short}"
        if why is not None:
            sys.stderr.write(f"warning: skipping run {run.about.short} ({run.name}): {why}\n")
    return [run for run in known if run.is_result]


def finished_results() -> list[Result]:
    """Return the results of `finished_runs`."""
    return [run.result for run in finished_runs() if run.result is not None]


def read_run(run_id: str) -> RecordedRun:
    """Return one run, by its whole ID."""
    about, history = read_about(run_id), read_history(folder_of(run_id), without=("metrics", "system"))
    end, last = history.end, history.starts[-1].data if history.starts else {}
    has_result = end is not None and end.kind == "finished" and not about.summary
    result_text, unreadable = _read_result(about) if has_result else (None, None)
    return RecordedRun(
        about=about,
        end=end.kind if end else None,
        reason=str(end.data.get("reason", "")) if end else "",
        host=f"process {last['pid']} on {last['host']}" if {"pid", "host"} <= last.keys() else "",
        started=datetime.fromtimestamp(history.starts[0].time, UTC) if history.starts else None,
        ended=datetime.fromtimestamp(end.time, UTC) if end else None,
        tags=history.tags,
        damaged=history.damaged,
        result_text=result_text,
        unreadable=unreadable,
    )


def asked(about: About) -> dict[str, Any]:
    """Return the fields of a run's result that `result.json` does not have: `ASKED`."""
    return {
        **{name: getattr(about, name) for name in ("recipe", "source", "identity", "seed", "test_selected", "commits")},
        "run_id": about.run_id,
        "started": about.created,
        "plan": plan_of_run(about),
        "paper": dict(zip(("key", "table", "row"), about.paper.split("/", 2), strict=True)) if about.paper else None,
    }


def parse_result(about: About, text: str) -> Result:
    """Return the result of a run from the text of its `result.json`.

    `ValueError`: it is damaged or from another version of cse.
    """
    return Result.model_validate({**asked(about), **json.loads(text)})


def _read_result(about: About) -> tuple[str | None, str | None]:
    try:
        text = (about.path / RESULT).read_text(encoding="utf-8")
        parse_result(about, text)
    except (OSError, UnicodeDecodeError) as error:
        return None, f"{RESULT} cannot be read: {error}"
    except (ValueError, TypeError) as error:
        why = describe(error) if isinstance(error, ValidationError) else str(error)
        return None, f"{RESULT} is damaged or from another version of cse: {why}"
    return text, None


def find_run(prefix_or_name: str, among: Iterable[RecordedRun] | None = None) -> RecordedRun:
    """Return the run with this ID prefix or name."""
    known = list(all_runs() if among is None else among)
    matching = [run for run in known if run.run_id.startswith(prefix_or_name.lower())]
    matching = matching or [run for run in known if run.name == prefix_or_name]
    if prefix_or_name and len(matching) == 1:
        return matching[0]
    if prefix_or_name and matching:
        listed = ", ".join(f"{run.about.short} ({run.name})" for run in matching[:5])
        message = f"'{prefix_or_name}' matches {len(matching)} runs: {listed}"
        raise UnknownNameError(message, "use more characters of the ID", code="runs.ambiguous_run")
    near = suggestion(prefix_or_name, [name for run in known for name in (run.name, run.about.short)])
    message = f"run '{prefix_or_name}' does not exist in {runs()}.{near}"
    raise UnknownNameError(message, "list all runs: cse runs ls", code="runs.unknown_run")


def recorded_ids() -> list[str]:
    """Return the names of all directories of runs, damaged ones included."""
    with suppress(OSError):
        return [entry.name for entry in os.scandir(runs()) if not entry.name.startswith(".") and entry.is_dir()]
    return []


def _key(run_id: str) -> Key:
    folder = folder_of(run_id)
    key: list[tuple[int, int] | None] = []
    for name in _FILES:
        try:
            found = os.stat(f"{folder}/{name}")  # noqa: PTH116 - pathlib would take half of the time of `read_index`
            key.append((found.st_mtime_ns, found.st_size))
        except OSError:
            key.append(None)
    return tuple(key)


@cache
def _entries() -> TypeAdapter[dict[str, tuple[Key, RecordedRun]]]:
    return TypeAdapter(dict[str, tuple[Key, RecordedRun]])


@cache
def _known(file: Path) -> dict[str, tuple[Key, RecordedRun]]:
    """Return the runs in the cache. It is empty if the file is missing, damaged or from another version."""
    with suppress(OSError, ValueError):
        version, _, content = file.read_bytes().partition(b"\n")
        if version == __version__.encode():
            return _entries().validate_json(content)
    return {}
