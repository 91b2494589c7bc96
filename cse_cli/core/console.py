"""What a run reports while it works, how that is shown on stderr, and what every view prints on stdout with."""

from __future__ import annotations

import io
import json
import math
import re
import shutil
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Any, Protocol, Self, cast

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

from cse_cli.core.formatting import duration
from cse_cli.core.terminal import printable, unfiltered


class Console(RichConsole):
    """Rich's console, which sends no control character but its own.

    Args:
        stderr: Write to stderr, not to stdout.
        file: Write there instead.
        settings: Of Rich's console.
    """

    def __init__(self, *, stderr: bool = False, file: IO[str] | None = None, **settings: Any) -> None:
        super().__init__(file=unfiltered(file or (sys.stderr if stderr else sys.stdout)), stderr=stderr, **settings)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Yield what a renderable comes to, the control characters of its texts written out."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


@dataclass(frozen=True)
class RunInfo:
    """What is about to run, printed before the first step.

    Args:
        run_id: In the tracking store.
        steps: Of the whole training.
        done: Steps done before a resume.
        sentences: Rows of the training text.
    """

    recipe: str
    title: str
    seed: int
    device: str
    precision: str
    run_id: str
    home: str
    steps: int
    done: int
    sentences: int


class Pruned(Exception):  # noqa: N818 - an end on purpose, not an error
    """Raised by an observer to end its run: going on is not worth it. The run keeps its curve and has no result."""


class Observer(Protocol):
    """Receives the progress of a run; must not slow training down."""

    def preparing(self, what: str, done: int = 0, total: int = 0) -> None:
        """Something slow happens before the first step: loading, tokenising."""

    def downloading(self, what: str, done: int, total: int | None) -> None:
        """Bytes of a file arrive; `total` is None where the server does not say how many there are."""

    def started(self, run: RunInfo) -> None:
        """Training begins or goes on."""

    def stepped(self, step: int, loss: float, rate: float) -> None:
        """A step is done; `rate` in sentences a second."""

    def scoring(self, what: str, share: float) -> None:
        """So much of an evaluation is done, from 0 to 1."""

    def evaluated(self, step: int, scores: Mapping[str, float], best: bool) -> None:
        """Dev scores ("evaluator.metric" → value) of a step are known."""

    def collapsed(self, text: str) -> None:
        """All sentence vectors have become nearly equal; reported once."""

    def warned(self, text: str) -> None:
        """A warning for the person watching."""

    def stopped(self, run_id: str | None) -> None:
        """The run was interrupted; None: before its first step, so that there is nothing to resume."""


class SilentObserver:
    """An observer that shows nothing."""

    def preparing(self, what: str, done: int = 0, total: int = 0) -> None:
        """Show nothing."""

    def downloading(self, what: str, done: int, total: int | None) -> None:
        """Show nothing."""

    def started(self, run: RunInfo) -> None:
        """Show nothing."""

    def stepped(self, step: int, loss: float, rate: float) -> None:
        """Show nothing."""

    def scoring(self, what: str, share: float) -> None:
        """Show nothing."""

    def evaluated(self, step: int, scores: Mapping[str, float], best: bool) -> None:
        """Show nothing."""

    def collapsed(self, text: str) -> None:
        """Take it for a warning."""
        self.warned(text)

    def warned(self, text: str) -> None:
        """Show nothing."""

    def stopped(self, run_id: str | None) -> None:
        """Show nothing."""


PLAIN_EVERY = 10.0
"""Seconds between plain progress lines where there is no terminal."""


_COLOURS = {"error": "red", "warning": "yellow"}


def message(kind: str, text: str, console: Console) -> str:
    """Return markup of `error: …` or `warning: …`; in a terminal its lines end between words."""
    plain = f"{kind}: {text}"
    if console.is_terminal:
        plain = wrap_words(plain, console.width)
    return f"[{_COLOURS[kind]}]{kind}:[/]{escape(plain.removeprefix(f'{kind}:'))}"


def print_error(error: object) -> None:
    """Write an error on stderr, as every command tells it."""
    console = Console(stderr=True, highlight=False, emoji=False)
    console.print(message("error", str(error), console), soft_wrap=True)


def wrap_words(text: str, width: int) -> str:
    """Return text with lines of at most so many columns; a word or a `command` longer than that stays whole."""
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


class Screen(SilentObserver):
    """Shows runs on stderr: a live bar in a terminal, plain lines elsewhere. A context manager around the runs.

    Args:
        console: Instead of stderr.
        quiet: Show errors alone.
    """

    def __init__(self, console: Console | None = None, *, quiet: bool = False) -> None:
        self.console = console or Console(stderr=True, highlight=False, emoji=False, quiet=quiet)
        self.live = self.console.is_terminal and not quiet
        self._bar: Progress | None = None
        self._task = TaskID(0)
        self._total = 0
        self._preparing = ""
        self._last_line = 0.0
        self._dev = ""
        self._first = (0, 0.0)
        """Step and time from which the time left is estimated."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def preparing(self, what: str, done: int = 0, total: int = 0) -> None:
        """Show what is being waited for: a bar in a terminal where there are counts, else plain lines as they grow."""
        if self.live and total:
            self._show_bar(what, (MofNCompleteColumn(),), done, total)
        else:
            self._close()
            self._print_line(what, f" {done:,}/{total:,}" if total else "", done >= total)

    def downloading(self, what: str, done: int, total: int | None) -> None:
        """Show how many bytes have arrived: a bar in a terminal, else plain lines now and then."""
        if self.live:
            self._show_bar(
                what,
                (DownloadColumn(table_column=Column(no_wrap=True)), TransferSpeedColumn(Column(no_wrap=True))),
                done,
                total,
            )
        else:
            size = f"/{decimal(total)}" if total else ""
            self._print_line(f"downloading {what}", f" {decimal(done)}{size}", done == total)

    def _show_bar(self, what: str, columns: Sequence[ProgressColumn], done: float, total: float | None) -> None:
        if what != self._preparing or self._bar is None:
            self._close()
            self._preparing = what
            name = Column(ratio=1, no_wrap=True, overflow="ellipsis")
            self._bar = Progress(
                TextColumn("[dim]{task.description}[/dim]", table_column=name), BarColumn(bar_width=12), *columns,
                TimeRemainingColumn(compact=True), console=self.console, transient=True, expand=True,
            )  # fmt: skip
            self._task = self._bar.add_task(escape(what), total=total)
            self._bar.start()
        self._bar.update(self._task, completed=done, total=total)
        if done == total:
            self._close()

    def _print_line(self, what: str, count: str, last: bool) -> None:
        now = time.monotonic()
        if what == self._preparing and now - self._last_line < PLAIN_EVERY and not last:
            return
        self._preparing, self._last_line = what, now
        self.write(f"[dim]{escape(what)}{count} …[/dim]")

    def started(self, run: RunInfo) -> None:
        """Print what runs where, then open the progress bar."""
        again = f", going on after step {run.done}" if run.done else ""
        self.write(f"[bold]{escape(run.recipe)}[/bold] · {escape(run.title)} · seed {run.seed}{again}")
        self.write(
            f"  {run.steps:,} steps over {run.sentences:,} sentences · {escape(run.device)} · {run.precision}\n"
            f"  run {run.run_id} · state in {escape(run.home)}"
        )
        self._dev, self._total, self._preparing = "", run.steps, ""
        if self.live:
            shown = "loss {task.fields[loss]}  {task.fields[dev]}{task.fields[rate]}  {task.fields[left]}"
            self._bar = Progress(
                TextColumn("  step"), MofNCompleteColumn(), BarColumn(bar_width=None),
                TextColumn(shown, table_column=Column(no_wrap=True)), console=self.console, transient=True, expand=True,
            )  # fmt: skip
            fields: dict[str, Any] = {"loss": "–", "dev": "", "rate": "", "left": ""}
            self._task = self._bar.add_task("train", total=run.steps, completed=run.done, **fields)
            self._bar.start()
        self._last_line = time.monotonic()
        self._first = (run.done, self._last_line)

    def stepped(self, step: int, loss: float, rate: float) -> None:
        """Move the bar, or print a plain line now and then."""
        left = f"{duration(self.seconds_left(step))} left"
        if self._bar is not None:
            fields: dict[str, Any] = {
                "loss": f"{loss:.4f}",
                "dev": self._dev,
                "rate": f"{rate:,.0f} sent/s",
                "left": left,
            }
            self._bar.update(self._task, completed=step, **fields)
            return
        now = time.monotonic()
        if now - self._last_line >= PLAIN_EVERY:
            self._last_line = now
            self.write(f"  step {step}/{self._total}  loss {loss:.4f}  {self._dev}{rate:,.0f} sentences/s  {left}")

    def scoring(self, what: str, share: float) -> None:
        """Show a percentage: beside the bar of a training, by a bar of its own, or in plain lines now and then."""
        if self._bar is not None and not self._preparing:
            self._bar.update(self._task, left=f"scoring {share:.0%}")
        elif self.live:
            self._show_bar(what, (TaskProgressColumn(),), share, 1.0)
        elif time.monotonic() - self._last_line >= PLAIN_EVERY:
            self._last_line = time.monotonic()
            self.write(f"[dim]{escape(what)} {share:.0%} …[/dim]")

    def seconds_left(self, step: int) -> float:
        """Return how long the steps after `step` will take, by the time that those before it took."""
        done, since = self._first
        return (time.monotonic() - since) / max(1, step - done) * (self._total - step)

    def evaluated(self, step: int, scores: Mapping[str, float], best: bool) -> None:
        """Print dev scores; the best so far is marked."""
        if step == 0:  # scoring the untrained state is no training time: the estimate starts here
            self._first = (0, time.monotonic())
        shown = "  ".join(f"{escape(name)} {value:.2f}" for name, value in scores.items())
        self._dev = f"dev {next(iter(scores.values())):.2f}  "
        if self._bar is not None:
            left = f"{duration(self.seconds_left(step))} left" if step else ""
            self._bar.update(self._task, dev=self._dev, left=left)
        label = "untrained" if step == 0 else f"step {step}"
        self.write(f"  {label:>12}  {shown}{'  [green]best[/green]' if best else ''}")

    def warned(self, text: str) -> None:
        """Print a warning."""
        self.write(message("warning", text, self.console))

    def stopped(self, run_id: str | None) -> None:
        """Print how to go on with an interrupted run."""
        self._close()
        how = " before the first step" if run_id is None else f"; go on with: cse run --resume {run_id[:8]}"
        self.write(f"stopped{how}")

    def ran(self, text: str) -> None:
        """Print what came of one of several runs."""
        self._close()
        self.write(escape(wrap_words(text, self.console.width) if self.live else text))

    def advise(self, lines: Sequence[str]) -> None:
        """Print what to do next: lines to copy, so they are not broken."""
        self._close()
        for line in lines:
            self.write(escape(line))

    def failed(self, what: str, error: Exception) -> None:
        """Print why one of several runs stopped, also where all else is kept quiet."""
        self._close()
        if self.console.quiet:
            print_error(f"{what}: {error}")
        else:
            self.write(message("error", f"{what}: {error}", self.console))

    def write(self, text: str) -> None:
        """Print a line, whatever its length."""
        self.console.print(text, soft_wrap=True)

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


class RunLines(Screen):
    """Plain lines of one run among several at once, each with the run's name before it.

    Args:
        name: Of the run.
        console: Shared by all.
    """

    def __init__(self, name: str, console: Console) -> None:
        super().__init__(console)
        self.live = False
        self._name = f"[dim]{escape(f'[{name}]')}[/dim] "

    def preparing(self, what: str, done: int = 0, total: int = 0) -> None:
        """Print nothing."""

    def scoring(self, what: str, share: float) -> None:
        """Print nothing."""

    def write(self, text: str) -> None:
        """Print a line with the run's name before it."""
        for line in text.split("\n"):
            self.console.print(f"{self._name}{line.strip()}", soft_wrap=True)


UNBOUND = 10_000
"""Columns of what is no terminal: nothing is folded or cut there."""


def file_console(file: io.TextIOBase) -> Console:
    """Return a console that writes plain, unwrapped lines into a file, whatever the environment says of colours."""
    return Console(file=cast("IO[str]", file), force_terminal=False, no_color=True, width=UNBOUND, highlight=False)


@contextmanager
def stdout_console() -> Iterator[Console]:
    """Yield a console for stdout: as wide as the terminal, or plain and unwrapped where stdout is none.

    The text is written, without trailing blanks, when the block ends; an error inside it prints nothing.
    """
    terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if terminal else UNBOUND
    text = io.StringIO()
    yield Console(file=text, force_terminal=terminal, width=width, highlight=False)
    unfiltered(sys.stdout).write("".join(f"{line.rstrip()}\n" for line in text.getvalue().split("\n")[:-1]))
    sys.stdout.flush()  # before anything that follows on stderr


def write_json(document: Mapping[str, Any], schema_version: int = 1) -> None:
    """Write one JSON document on stdout."""
    sys.stdout.write(to_json(document, schema_version))


def to_json(document: Mapping[str, Any], schema_version: int = 1) -> str:
    """Return a document as JSON; NaN and infinities become null, which JSON has."""
    plain = _finite({"schema_version": schema_version, **document})
    return json.dumps(plain, indent=1, ensure_ascii=False, allow_nan=False, default=str) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(inner) for key, inner in value.items()}
    return [_finite(inner) for inner in value] if isinstance(value, (list, tuple)) else value
