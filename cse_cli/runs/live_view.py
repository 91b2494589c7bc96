"""Views of running runs: a screen, tab-separated lines and JSON."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict

from rich.console import Group
from rich.live import Live
from rich.text import Text

from cse_cli.core.console import Console, write_json
from cse_cli.core.formatting import counted, duration
from cse_cli.core.tables import Cell, Row, Table, as_rich, as_tsv, plain_table
from cse_cli.runs.live import SILENT_SECONDS, LiveRun

REFRESH_SECONDS = 1.0
LIVE_SCHEMA = 2
"""Version of the JSON of `cse runs ls --watch`."""

_COLUMNS = ("run", "recipe", "seed", "place", "step", "dev", "left", "last line")
_END_KEYS = (b"q", b"Q", b"\x04")

Read = Callable[[], Sequence[LiveRun]]


def print_live(runs: Sequence[LiveRun]) -> None:
    """Print one tab-separated line for each run."""
    rows = [[run.run_id, *_cells(run), run.last_line] for run in runs]
    sys.stdout.write(as_tsv(plain_table(_COLUMNS, [[" ".join(cell.split()) for cell in row] for row in rows])))


def write_live_json(runs: Sequence[LiveRun]) -> None:
    """Write the same as one JSON document."""
    write_json({"runs": [asdict(run) for run in runs]}, LIVE_SCHEMA)


def show_live(read: Read) -> None:
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
