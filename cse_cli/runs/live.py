"""`cse runs ls --watch`: progress of running runs, read from their events, logs and locks."""

from __future__ import annotations

import os
import select
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Group
from rich.live import Live
from rich.text import Text

from cse_cli.core.console import Console, write_json
from cse_cli.core.formatting import counted, duration
from cse_cli.core.tables import Cell, Row, Table, as_rich, as_tsv, plain_table
from cse_cli.runs.events import Event, History, read_events
from cse_cli.runs.index import RecordedRun, read_index
from cse_cli.runs.record import About, log_of

REFRESH_SECONDS = 1.0
SILENT_SECONDS = 300.0
"""Time without events after which a run is marked silent: it is being scored, or its machine is down."""
LIVE_SCHEMA = 2
"""Version of the JSON of `cse runs ls --watch`."""
_COLUMNS = ("run", "recipe", "seed", "place", "step", "dev", "left", "last line")
_END_KEYS = (b"q", b"Q", b"\x04")
_LOST_SECONDS = 24 * 3600.0
"""Time for which a lost run is shown after its last event."""
_RECENT_STEPS = 50
"""Number of recorded steps that the speed of a run is measured over."""
_TAIL_BYTES = 4096
_STAMP = len("2026-11-23 09:30:00  ")


@dataclass(frozen=True)
class LiveRun:
    """Progress of a run.

    Args:
        recipe: Name or path by which the recipe was requested.
        pid: ID of its first process.
        started: Seconds since 1970 of its last start.
        updated: Seconds since 1970 of its last event, except measurements of the machine.
        step: Last recorded step.
        metric: Name of the score `dev`, "evaluator.metric", or None before the first evaluation.
        dev: Score of the last evaluation.
        seconds_left: Estimated time for the remaining steps, or None.
        last_line: Last line of its log.
        lost: Whether its process was killed or its machine went down.
    """

    run_id: str
    recipe: str
    seed: int | None
    host: str
    pid: int
    device: str
    started: float
    updated: float
    step: int
    steps: int
    metric: str | None
    dev: float | None
    seconds_left: float | None
    last_line: str
    lost: bool

    @property
    def silent_seconds(self) -> float:
        """Time since the last event."""
        return time.time() - self.updated


class LiveRuns:
    """Follows all runs of the state directory. Each `read` parses only events that are new since the last one."""

    def __init__(self) -> None:
        self._followed: dict[str, _FollowedRun] = {}

    def read(self) -> list[LiveRun]:
        """Return the runs that are running or were lost in the last 24 hours, sorted by their last start."""
        found = []
        for run in read_index().runs:
            if run.end is None and run.state in ("RUNNING", "LOST"):
                followed = self._followed.setdefault(run.run_id, _FollowedRun(run.about))
                found.append(followed.read(run))
        recent = [run for run in found if not run.lost or run.silent_seconds <= _LOST_SECONDS]
        return sorted(recent, key=lambda run: (run.started, run.run_id), reverse=True)


class _FollowedRun:
    """Reads new events of one run."""

    def __init__(self, about: About) -> None:
        self._about = about
        self._history = History()
        self._offset = 0
        self._recent: deque[tuple[float, int]] = deque(maxlen=_RECENT_STEPS)
        self._updated = about.created.timestamp()
        self._step = 0

    def read(self, run: RecordedRun) -> LiveRun:
        """Read new events, and return the progress of the run."""
        self._advance()
        start = self._history.starts[-1] if self._history.starts else Event("started", self._updated, {})
        steps, evaluated = int(start.data.get("steps", 0)), self._history.evaluated
        scores = evaluated[max(evaluated)] if evaluated else {}
        metric, dev = next(iter(scores.items()), (None, None))
        return LiveRun(
            run_id=run.run_id,
            recipe=self._about.recipe or self._about.name,
            seed=self._about.seed,
            host=str(start.data.get("host", "")),
            pid=int(start.data.get("pid", 0)),
            device=str(start.data.get("device", "")),
            started=start.time,
            updated=self._updated,
            step=self._step,
            steps=steps,
            metric=metric,
            dev=dev,
            seconds_left=self._seconds_left(steps - self._step),
            last_line=last_line(log_of(run.run_id)),
            lost=run.state == "LOST",
        )

    def _advance(self) -> None:
        for event, offset in read_events(self._about.path, self._offset, without=("system",)):
            self._offset = offset
            self._history.add(event)
            self._updated = max(self._updated, event.time)
            self._step = int(event.data.get("step", self._step))  # decreases if the run is resumed
            if event.kind == "started":
                self._recent.clear()
            elif event.kind == "metrics" and "train/loss" in event.data["values"]:
                self._recent.append((event.time, self._step))

    def _seconds_left(self, steps: int) -> float | None:
        if len(self._recent) < 2:
            return None
        (first_time, first), (last_time, last) = self._recent[0], self._recent[-1]
        return (last_time - first_time) / max(1, last - first) * steps


def last_line(log: Path) -> str:
    """Return the last line of a run's log, without its time."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            last = file.read().decode(errors="replace").rstrip().rpartition("\n")[2]
    except OSError:
        return ""
    return last[_STAMP:].strip()


def print_live(runs: Sequence[LiveRun]) -> None:
    """Print one tab-separated line for each run."""
    rows = [[run.run_id, *_cells(run), run.last_line] for run in runs]
    sys.stdout.write(as_tsv(plain_table(_COLUMNS, [[" ".join(cell.split()) for cell in row] for row in rows])))


def write_live_json(runs: Sequence[LiveRun]) -> None:
    """Write the same as one JSON document."""
    write_json({"runs": [asdict(run) for run in runs]}, LIVE_SCHEMA)


def show_live(read: Callable[[], Sequence[LiveRun]]) -> None:
    """Show the runs from `read` on a separate screen until q or Ctrl-C."""
    console = Console(highlight=False)
    with suppress(KeyboardInterrupt), _keys() as key, Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(live_screen(read(), console.height), refresh=True)
            if key(REFRESH_SECONDS) in _END_KEYS:
                return


def live_screen(runs: Sequence[LiveRun], height: int) -> Group:
    """Return one screen of `height` lines: a table, and the last line of each run if they fit."""
    lost = sum(run.lost for run in runs)
    count = f"{counted(len(runs) - lost, 'run')} running{f', {lost} lost' if lost else ''}"
    head = Text.assemble((count, "bold"), (f" · {time.strftime('%H:%M:%S')} · q quits", "dim"))
    if not runs:
        return Group(head)
    rows = max(1, height - 4)  # without the title, the header, and a line for the rest
    shown = runs[:rows]
    rest = Text(f"and {len(runs) - rows} more" if len(runs) > rows else "", style="dim")
    lines = [Text(f"{run.run_id[:8]}  {run.last_line}", "dim", no_wrap=True, overflow="ellipsis") for run in shown]
    return Group(head, as_rich(_table(shown), gap=1), rest, *lines[: rows - len(shown)])


def _table(runs: Sequence[LiveRun]) -> Table:
    rows = [Row(run.run_id[:8], tuple(Cell(text, style=_style(text)) for text in _cells(run))) for run in runs]
    return Table("", _COLUMNS[1:-1], tuple(rows), label=_COLUMNS[0], align="lprprrr")


def _style(text: str) -> str:
    return "yellow" if text == "lost" or text.startswith("silent") else ""


def _cells(run: LiveRun) -> list[str]:
    dev = "" if run.dev is None else f"{run.dev:.2f}"
    place = f"{run.host.partition('.')[0]} {run.device.partition(' ')[0]}"
    seed = "" if run.seed is None else str(run.seed)
    return [run.recipe, seed, place, f"{run.step:,}/{run.steps:,}", dev, _left(run)]


def _left(run: LiveRun) -> str:
    if run.lost:
        return "lost"
    if run.silent_seconds > SILENT_SECONDS:
        return f"silent {duration(run.silent_seconds)}"
    return "" if run.seconds_left is None else duration(run.seconds_left)


@contextmanager
def _keys() -> Iterator[Callable[[float], bytes]]:
    """Yield a function that waits up to some seconds for a key, and returns it or an empty string."""
    if not sys.stdin.isatty():
        yield _wait
        return
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)

    def key(seconds: float) -> bytes:
        ready, _, _ = select.select([descriptor], [], [], seconds)
        return os.read(descriptor, 1) if ready else b""

    try:
        yield key
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _wait(seconds: float) -> bytes:
    time.sleep(seconds)
    return b""
