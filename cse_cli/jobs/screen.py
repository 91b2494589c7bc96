"""Progress of one or several runs on stderr."""

from __future__ import annotations

from time import monotonic

from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from cse_cli.analysis.headlines import headlines
from cse_cli.core.console import CUT, WHOLE, Console, Screen
from cse_cli.core.events import Observer, RunInfo
from cse_cli.core.formatting import duration
from cse_cli.core.results import Result
from cse_cli.runs.index import RecordedRun
from cse_cli.runs.signals import Terminated
from registry.errors import CseError


class RunsScreen(Screen):
    """Screen of the runs of a command, with a line for each start and end if there are several. A context manager.

    Args:
        several: Whether there are several runs.
        command: Command that continues after an interruption.
        quiet: Whether only errors are printed.
    """

    def __init__(self, *, several: bool, command: str, quiet: bool = False) -> None:
        super().__init__(quiet=quiet)
        self._several = several
        self._command = command
        self._left_run = ""
        self._runs = self._begun = self._ended = 0
        self._since = monotonic()
        self._rows: Progress | None = None
        self._parallel: dict[str, RunLines] = {}

    def expect(self, runs: int) -> None:
        """Set the number of runs that this command executes."""
        self._runs, self._begun, self._ended = runs, 0, 0
        self._since = monotonic()

    def begin(self, label: str, *, alone: bool) -> Observer:
        """Print which run starts and return its observer. `alone` is whether no other run is in parallel."""
        self._begun += 1
        if self._several:
            self.write(f"[bold]run {self._begun} of {self._runs}[/bold] · {escape(label)}")
        if alone:
            return self
        if self.live and self._rows is None:
            name = TextColumn("[dim]{task.description}[/dim]", table_column=CUT)
            shown = TextColumn("{task.fields[dev]}{task.fields[left]}", table_column=WHOLE)
            columns = (name, MofNCompleteColumn(table_column=WHOLE), BarColumn(bar_width=12), shown)
            self._rows = Progress(*columns, console=self.console, transient=True, expand=True)
            self._rows.start()
        self._parallel[label] = RunLines(label, self.console, self._rows)
        return self._parallel[label]

    def wait_for(self, label: str, run: RecordedRun) -> None:
        """Print which run of another process is awaited."""
        self.write(f"waiting for {escape(label)}: run {run.about.short} is {escape(run.host)}")

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
        left = (monotonic() - self._since) / self._ended * (self._runs - self._ended)
        self.ran(end_line(f"finished {place} · {label}", end, left))

    def stopped(self, run_id: str | None) -> None:
        """Print how to resume the command."""
        if not self._several:
            super().stopped(run_id)
        elif run_id is not None:
            self._left_run = f" in run {run_id[:8]}"

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._close()
        if self._rows is not None:
            self._rows.stop()
        if self._several and isinstance(error, KeyboardInterrupt | Terminated):
            self.write(f"stopped{self._left_run}. To run the rest: {escape(self._command)}")


class RunLines(Screen):
    """One of several parallel runs: lines that begin with its name, and on a terminal a row of `rows`."""

    def __init__(self, name: str, console: Console, rows: Progress | None) -> None:
        super().__init__(console)
        self.live = False
        self._rows = rows
        self._label = name
        self._name = f"[dim]{escape(f'[{name}]')}[/dim] "

    def preparing(self, what: str, done: int = 0, total: int = 0) -> None:
        """Print nothing."""

    def started(self, run: RunInfo) -> None:
        """Print from which step the run is resumed, and add its row."""
        if run.done:
            self.write(f"resuming after step {run.done}")
        self._total, self._last_line = run.steps, monotonic()
        if self._rows is not None:
            self._bar = self._rows
            self._task = self._bar.add_task(escape(self._label), total=run.steps, completed=run.done, dev="", left="")

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
    scores = [f"{one.name} {one.score:.2f}{_describe_gain(one.gain)}" for one in headlines(result)]
    left = [f"about {duration(seconds_left)} left"] if seconds_left else []
    return " · ".join([label, *scores, duration(result.seconds), *left])


def _describe_gain(gain: float | None) -> str:
    if gain is None:
        return ""
    return f" ({abs(gain):.2f} below untrained)" if gain < 0 else f" (+{gain:.2f} over untrained)"
