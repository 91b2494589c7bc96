"""The display of progress and messages on stderr, and consoles for stdout."""

from __future__ import annotations

import codecs
import io
import json
import math
import os
import re
import shutil
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from rich.console import Console as RichConsole
from rich.console import ConsoleOptions, RenderableType
from rich.filesize import decimal
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.segment import Segment
from rich.table import Column

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
"""Control characters except tab, line feed and carriage return."""


def printable(text: str) -> str:
    r"""Return a text with its control characters as escapes, such as "\x1b"."""
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


class PlainStream:
    """Text stream to a terminal that escapes control characters. Rich bypasses it to write its styles."""

    def __init__(self, stream: IO[str]) -> None:
        self.rich_proxied_file = stream
        """Stream that Rich writes to. Rich looks for this name."""

    def write(self, text: str) -> int:
        """Write a text with escaped control characters."""
        self.rich_proxied_file.write(printable(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


def unfiltered(stream: Any) -> IO[str]:
    """Return the stream that Rich writes to."""
    while (inner := getattr(stream, "rich_proxied_file", None)) is not None:
        stream = inner
    found: IO[str] = stream
    return found


def _escaped(error: UnicodeError) -> tuple[str, int]:
    r"""Return characters that an encoding lacks as JSON escapes, such as "\u2192", and their end."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4)), error.end


codecs.register_error("as_in_json", _escaped)


def make_usable() -> None:
    """Replace closed standard streams, and escape what their encoding lacks and control characters."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            nothing = Path(os.devnull).open("r" if name == "stdin" else "w", encoding="utf-8")  # noqa: SIM115
            setattr(sys, name, nothing)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if getattr(stream, "errors", None) in ("strict", "surrogateescape") and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="as_in_json")
        if stream.isatty():
            setattr(sys, name, PlainStream(stream))


class Console(RichConsole):
    """Rich console that escapes the control characters of texts."""

    def __init__(self, *, stderr: bool = False, file: IO[str] | None = None, **settings: Any) -> None:
        super().__init__(file=unfiltered(file or (sys.stderr if stderr else sys.stdout)), stderr=stderr, **settings)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Yield the segments of a renderable with escaped control characters."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


PLAIN_EVERY = 10.0
"""Seconds between progress lines if the output is not a terminal."""

CUT, WHOLE = Column(ratio=1, no_wrap=True, overflow="ellipsis"), Column(no_wrap=True)
"""Columns of a progress row: one that a narrow terminal cuts, and one that it does not."""
_COLORS = {"error": "red", "warning": "yellow"}


def message(kind: str, text: str, console: Console) -> str:
    """Return the markup of `error: …` or `warning: …`. On a terminal, lines wrap between words."""
    plain = f"{kind}: {text}"
    if console.is_terminal:
        plain = wrap_words(plain, console.width)
    return f"[{_COLORS[kind]}]{kind}:[/]{escape(plain.removeprefix(f'{kind}:'))}"


def print_error(error: object) -> None:
    """Print an error to stderr."""
    console = Console(stderr=True, highlight=False, emoji=False)
    console.print(message("error", str(error), console), soft_wrap=True)


def wrap_words(text: str, width: int) -> str:
    """Wrap a text at `width` columns. Longer words and `commands` stay whole."""
    lines = []
    for line in text.split("\n"):
        inner = line[: len(line) - len(line.lstrip())] + "    "
        joined = re.sub(r"`[^`]*`", lambda quoted: quoted[0].replace(" ", "\xa0"), line)
        wrapped = textwrap.wrap(
            joined, width, subsequent_indent=inner, break_long_words=False, break_on_hyphens=False,
            replace_whitespace=False,
        )  # fmt: skip
        lines += [part.replace("\xa0", " ") for part in wrapped] or [""]
    return "\n".join(lines)


class Screen:
    """Progress and messages on stderr: a bar on a terminal, otherwise lines. Use it as a context manager."""

    def __init__(self, console: Console | None = None, *, quiet: bool = False) -> None:
        self.console = console or Console(stderr=True, highlight=False, emoji=False, quiet=quiet)
        self.live = self.console.is_terminal and not quiet
        self._bar: Progress | None = None
        self._task = TaskID(0)
        self._preparing = ""
        self._last_line = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def preparing(self, what: str, done: float = 0, total: float | None = 0) -> None:
        """Show slow work as a bar if its size is known, otherwise as lines."""
        if self.live and total:
            self._show_bar(what, (MofNCompleteColumn(),), done, total)
        else:
            self._close()
            self._print_line(what, f" {done:,}/{total:,}" if total else "", done >= (total or 0))

    def downloading(self, what: str, done: int, total: int | None) -> None:
        """Show the received bytes as a bar on a terminal, otherwise as lines."""
        if self.live:
            self._show_bar(
                what, (DownloadColumn(table_column=WHOLE), TransferSpeedColumn(table_column=WHOLE)), done, total
            )
        else:
            size = f"/{decimal(total)}" if total else ""
            self._print_line(f"downloading {what}", f" {decimal(done)}{size}", done == total)

    def _show_bar(self, what: str, columns: Sequence[ProgressColumn], done: float, total: float | None) -> None:
        bar = self._bar
        if bar is None or what != self._preparing:
            self._preparing = what
            name = TextColumn("[dim]{task.description}[/dim]", table_column=CUT)
            time_left = TimeRemainingColumn(compact=True)
            bar = self._open((name, BarColumn(bar_width=12), *columns, time_left), escape(what), total)
        bar.update(self._task, completed=done, total=total)
        if done == total:
            self._close()

    def _open(self, columns: Sequence[ProgressColumn], what: str, total: float | None, **task: Any) -> Progress:
        """Replace the bar. There is never a second one, whose thread would write over later lines."""
        self._close()
        self._bar = Progress(*columns, console=self.console, transient=True, expand=True)
        self._task = self._bar.add_task(what, total=total, **task)
        self._bar.start()
        return self._bar

    def _print_line(self, what: str, count: str, last: bool) -> None:
        now = time.monotonic()
        if what == self._preparing and now - self._last_line < PLAIN_EVERY and not last:
            return
        self._preparing, self._last_line = what, now
        self.write(f"[dim]{escape(what)}{count} …[/dim]")

    def scoring(self, what: str, share: float) -> None:
        """Show the finished share of an evaluation in a bar, or in lines."""
        if self.live:
            self._show_bar(what, (TaskProgressColumn(),), share, 1.0)
        elif share and time.monotonic() - self._last_line >= PLAIN_EVERY:
            self._last_line = time.monotonic()
            self.write(f"[dim]{escape(what)} {share:.0%} …[/dim]")

    def warned(self, text: str) -> None:
        """Print a warning."""
        self.write(message("warning", text, self.console))

    def advise(self, lines: Sequence[str]) -> None:
        """Print next commands without wrapping, so that you can copy them."""
        self._close()
        for line in lines:
            self.write(escape(line))

    def failed(self, what: str, error: Exception) -> None:
        """Print the error of one of several runs, even if the screen is quiet."""
        self._close()
        if self.console.quiet:
            print_error(f"{what}: {error}")
        else:
            self.write(message("error", f"{what}: {error}", self.console))

    def write(self, text: str) -> None:
        """Print a line without wrapping."""
        self.console.print(text, soft_wrap=True)

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


UNBOUND = 10_000
"""Width if the output is not a terminal, so that lines do not wrap."""


@contextmanager
def stdout_console(piped_width: int = UNBOUND) -> Iterator[Console]:
    """Yield a console for stdout with the width of the terminal, or `piped_width` without a terminal.

    The text is written at the end of the block, without trailing spaces. After an error it is not written.
    """
    terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if terminal else piped_width
    text = io.StringIO()
    yield Console(file=text, force_terminal=terminal, width=width, highlight=False)
    unfiltered(sys.stdout).write("".join(f"{line.rstrip()}\n" for line in text.getvalue().split("\n")[:-1]))
    sys.stdout.flush()  # before later output to stderr


def write_json(document: Mapping[str, Any], schema_version: int = 1) -> None:
    """Write one JSON document to stdout."""
    sys.stdout.write(to_json(document, schema_version))


def to_json(document: Mapping[str, Any], schema_version: int = 1) -> str:
    """Return a document as JSON, with null for NaN and infinities."""
    plain = _finite({"schema_version": schema_version, **document})
    return json.dumps(plain, indent=1, ensure_ascii=False, allow_nan=False, default=str) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(inner) for key, inner in value.items()}
    return [_finite(inner) for inner in value] if isinstance(value, (list, tuple)) else value
