"""Progress of one or several runs on stderr, from their events."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from cse_cli.analysis.experiments import headlines
from cse_cli.core.console import CUT, PLAIN_EVERY, WHOLE, Console, Screen, wrap_words
from cse_cli.core.formatting import duration
from cse_cli.core.paths import home
from cse_cli.core.results import Result
from cse_cli.jobs.engine import is_started
from cse_cli.runs.events import Listener
from cse_cli.runs.record import read_about
from cse_cli.runs.signals import Terminated
from registry.errors import CseError


class RunScreen(Screen):
    """Shows the events of one run at a time."""

    def __init__(self, console: Console | None = None, *, quiet: bool = False) -> None:
        super().__init__(console, quiet=quiet)
        self._heading = self._begun_run = ""
        self._total = 0
        self._dev = ""
        self._first: tuple[int, float] | None = None
        """Step and time at the start of the estimate of the time left."""

    def listen(self, run_id: str, title: str) -> Listener:
        """Return the receiver of the events of a run, whose recipe has a title."""
        about, self._begun_run = read_about(run_id), run_id
        self._heading = f"[bold]{escape(about.recipe)}[/bold] · {escape(title)} · seed {about.seed}"
        self._place = f"run {run_id} · state in {escape(str(home()))}"
        return self.show

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Close the bar. After an interruption of a run, print how to resume it."""
        self._close()
        if isinstance(error, KeyboardInterrupt | Terminated) and self._begun_run:
            how = f". To resume: cse run --resume {self._begun_run[:8]}"
            self.write(f"stopped{how if is_started(self._begun_run) else ' before the first step'}")

    def show(self, kind: str, data: Mapping[str, Any]) -> None:
        """Show an event of the run."""
        match kind:
            case "progress":
                self.progress(data["what"], data["done"], data["total"])
            case "started":
                self.started(data)
            case "metrics" if "train/loss" in data["values"]:
                values = {key: float(value) for key, value in data["values"].items()}
                self.stepped(data["step"], values["train/loss"], values.get("speed/sentences_per_second", 0.0))
            case "evaluated":
                self.evaluated(data["step"], {k: float(v) for k, v in data["scores"].items()}, data["best"])
            case "warning":
                self.warned(data["text"])
            case "halted":
                self.write(f"  {escape(data['reason'])}")

    def progress(self, what: str, done: float, total: float | None) -> None:
        """Show slow work in a bar or in lines, and an evaluation during the training next to its bar."""
        if total != 1:
            self.preparing(what, done, total)
        elif self._bar is not None and not self._preparing:
            self._bar.update(self._task, left=f"scoring {done:.0%}")
        else:  # `done` is the share of an evaluation
            self.scoring(what, done)

    def started(self, data: Mapping[str, Any]) -> None:
        """Print the header of the run, then open the progress bar."""
        steps, done = data["steps"], data["step"]
        if not steps:
            return
        self.write(self._heading + (f", resuming after step {done}" if done else ""))
        self.write(
            f"  {steps:,} steps over {data['sentences']:,} sentences · {escape(data['device'])} · {data['precision']}\n"
            f"  {self._place}" + (f"\n  {data['hint']}" if data["hint"] else "")
        )
        self._dev, self._total, self._preparing = "", steps, ""
        if self.live:
            shown = "loss {task.fields[loss]}  {task.fields[dev]}{task.fields[rate]}  {task.fields[left]}"
            columns = (TextColumn("  step"), MofNCompleteColumn(), BarColumn(bar_width=None))
            fields: dict[str, Any] = {"loss": "–", "dev": "", "rate": "", "left": ""}
            self._open((*columns, TextColumn(shown, table_column=WHOLE)), "train", steps, completed=done, **fields)
        self._last_line = time.monotonic()
        self._first = None

    def stepped(self, step: int, loss: float, rate: float) -> None:
        """Update the bar, or print a line every `PLAIN_EVERY` seconds."""
        left = self._left(step)
        if self._bar is not None:
            fields = {"loss": f"{loss:.4f}", "dev": self._dev, "rate": f"{rate:,.0f} sent/s", "left": left}
            self._bar.update(self._task, completed=step, **fields)  # type: ignore[arg-type]
            return
        now = time.monotonic()
        if now - self._last_line >= PLAIN_EVERY:
            self._last_line = now
            self.write(
                f"  step {step}/{self._total}  loss {loss:.4f}  {self._dev}{rate:,.0f} sentences/s  {left}".rstrip()
            )

    def _left(self, step: int) -> str:
        """Return the estimated time of the steps after `step`, or an empty string at the first reported step.

        The rate is measured from that step on, because the first steps of a process take several times as long.
        """
        if self._first is None or step <= self._first[0]:
            self._first = step, time.monotonic()
            return ""
        done, since = self._first
        return f"{duration((time.monotonic() - since) / (step - done) * (self._total - step))} left"

    def evaluated(self, step: int, scores: Mapping[str, float], best: bool) -> None:
        """Print dev scores and mark the best so far."""
        shown = "  ".join(f"{escape(name)} {value:.2f}" for name, value in scores.items())
        self._dev = f"dev {next(iter(scores.values())):.2f}  "
        if self._bar is not None:
            self._bar.update(self._task, dev=self._dev, left=self._left(step) if step else "")
        label = "untrained" if step == 0 else f"step {step}"
        self.write(f"  {label:>12}  {shown}{'  [green]best[/green]' if best else ''}")


class RunsScreen(RunScreen):
    """Screen of the runs of a command, with a line for each start and end if there are several. A context manager.

    Args:
        several: Whether there are several runs.
        command: Returns the command that continues after an interruption.
        quiet: Whether only errors are printed.
    """

    def __init__(self, *, several: bool, command: Callable[[], str], quiet: bool = False) -> None:
        super().__init__(quiet=quiet)
        self._several = several
        self._command = command
        self._runs = self._begun = self._ended = 0
        self._since = time.monotonic()
        self._rows: Progress | None = None
        self._parallel: dict[str, RunLines] = {}

    def expect(self, runs: int) -> None:
        """Set the number of runs that this command executes."""
        self._runs, self._begun, self._ended = runs, 0, 0
        self._since = time.monotonic()

    def begin(self, label: str, run_id: str, title: str, *, alone: bool) -> Listener:
        """Print which run starts, and return the receiver of its events. `alone`: no other run is in parallel."""
        self._begun += 1
        self._begun_run = run_id
        if self._several:
            self.write(f"[bold]run {self._begun} of {self._runs}[/bold] · {escape(label)}")
        if alone:
            return self.listen(run_id, title)
        if self.live and self._rows is None:
            name = TextColumn("[dim]{task.description}[/dim]", table_column=CUT)
            shown = TextColumn("{task.fields[dev]}{task.fields[left]}", table_column=WHOLE)
            columns = (name, MofNCompleteColumn(table_column=WHOLE), BarColumn(bar_width=12), shown)
            self._rows = Progress(*columns, console=self.console, transient=True, expand=True)
            self._rows.start()
        self._parallel[label] = RunLines(label, self.console, self._rows)
        return self._parallel[label].show

    def wait_for(self, label: str, short: str, host: str) -> None:
        """Print which run of another process is awaited."""
        self.write(f"waiting for {escape(label)}: run {short} is {escape(host)}")

    def skip(self, label: str, result: Result) -> None:
        """Print which run is finished and is not repeated."""
        when = f"{result.finished.astimezone():%Y-%m-%d %H:%M}"
        self.write(f"finished: {escape(label)}, run {str(result.run_id)[:8]} of {when}. To repeat it: --again")

    def end(self, label: str, end: Result | CseError) -> None:
        """Print the result or error of one of several runs, and the estimated time of those that are left."""
        self._ended += 1
        self._parallel.pop(label, self)._close()
        if not self._several:
            return
        place = f"{self._ended} of {self._runs}"
        if isinstance(end, CseError):
            self.failed(f"run {place}: {label}", end)
            return
        left = (time.monotonic() - self._since) / self._ended * (self._runs - self._ended)
        line = end_line(f"finished {place} · {label}", end, left)
        self.write(escape(wrap_words(line, self.console.width) if self.live else line))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the bars. After an interruption, print how to continue."""
        if self._rows is not None:
            self._rows.stop()
        if not self._several:
            super().__exit__(kind, error, trace)
        elif isinstance(error, KeyboardInterrupt | Terminated):
            self._close()
            self.write(f"stopped. To run the rest: {escape(self._command())}")


class RunLines(RunScreen):
    """One of several parallel runs: lines that begin with its name, and on a terminal a row of `rows`."""

    def __init__(self, name: str, console: Console, rows: Progress | None) -> None:
        super().__init__(console)
        self.live = False
        self._rows = rows
        self._label = name
        self._name = f"[dim]{escape(f'[{name}]')}[/dim] "

    def preparing(self, what: str, done: float = 0, total: float | None = 0) -> None:
        """Print nothing."""

    def started(self, data: Mapping[str, Any]) -> None:
        """Print from which step the run is resumed, and add its row."""
        steps, done = data["steps"], data["step"]
        if done:
            self.write(f"resuming after step {done}")
        self._total, self._last_line, self._preparing = steps, time.monotonic(), ""
        if self._rows is not None and self._bar is None:
            self._bar = self._rows
            self._task = self._bar.add_task(escape(self._label), total=steps, completed=done, dev="", left="")

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.remove_task(self._task)
            self._bar = None

    def write(self, text: str) -> None:
        """Print lines with the name of the run."""
        for line in text.split("\n"):
            self.console.print(f"{self._name}{line.strip()}", soft_wrap=True)


def end_line(label: str, result: Result, seconds_left: float = 0.0) -> str:
    """Return the scores and duration of a run in one line, and the estimated time of the other runs unless it is 0."""
    scores = []
    for one in headlines(result):
        gain = "" if one.gain is None else f" (+{one.gain:.2f} over untrained)"
        gain = f" ({-one.gain:.2f} below untrained)" if one.gain is not None and one.gain < 0 else gain
        scores.append(f"{one.name} {one.score:.2f}{gain}")
    left = [f"about {duration(seconds_left)} left"] if seconds_left else []
    return " · ".join([label, *scores, duration(result.seconds), *left])
