"""Progress of `cse run` from the events of its runs, their results, and a preview of runs."""

from __future__ import annotations

import shlex
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from cse_cli.analysis.experiments import Experiment, by_seed
from cse_cli.analysis.reproduced import compare_with_reproductions
from cse_cli.analysis.table_view import text_table
from cse_cli.analysis.tables import seeds_table
from cse_cli.core.console import CUT, PLAIN_EVERY, WHOLE, Console, Screen, stdout_console, wrap_words
from cse_cli.core.formatting import counted, duration, grouped
from cse_cli.core.paths import home
from cse_cli.core.paths import runs as run_folders
from cse_cli.core.results import Result
from cse_cli.core.tables import as_rich, as_rich_parts, plain_table
from cse_cli.evaluation.evaluate import has_data
from cse_cli.evaluation.tasks import parse_tasks
from cse_cli.jobs.engine import is_started
from cse_cli.jobs.job import Job
from cse_cli.recipe.files import bare_name
from cse_cli.runs.events import ENDS, Listener
from cse_cli.runs.index import RecordedRun
from cse_cli.runs.scores import headlines
from cse_cli.runs.signals import Terminated
from cse_cli.training.build import Prepared
from registry.errors import CseError
from registry.tokens import Tokens


class RunScreen(Screen):
    """Shows the events of one run at a time, or on a terminal a row for each of several parallel runs."""

    def __init__(self, console: Console | None = None, *, quiet: bool = False) -> None:
        super().__init__(console, quiet=quiet)
        self._heading = self._begun_run = ""
        self._total = 0
        self._dev = ""
        self._first: tuple[int, float] | None = None
        """Step and time at the start of the estimate of the time left."""
        self._rows: Progress | None = None

    def begin(self, label: str, heading: str, run_id: str) -> Listener:  # noqa: ARG002 - only several runs have labels
        """Return the receiver of the events of a run that starts."""
        name, _, rest = heading.partition(" · ")
        self._begun_run, self._heading = run_id, f"[bold]{escape(name)}[/bold] · {escape(rest)}"
        self._place = f"run {run_id} · state in {escape(str(home()))}"
        return self.show

    def wait_for(self, label: str, run: RecordedRun) -> None:
        """Print which run of another process is awaited."""
        self.write(f"waiting for {escape(label)}: run {run.about.short} is {escape(run.host)}")

    def rows(self) -> Progress | None:
        """Return the rows of parallel runs, or None without a terminal."""
        if self.live and self._rows is None:
            name = TextColumn("[dim]{task.description}[/dim]", table_column=CUT)
            shown = TextColumn("{task.fields[dev]}{task.fields[left]}", table_column=WHOLE)
            columns = (name, MofNCompleteColumn(table_column=WHOLE), BarColumn(bar_width=12), shown)
            self._rows = Progress(*columns, console=self.console, transient=True, expand=True)
            self._rows.start()
        return self._rows

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Close the bar. After an interruption of a run, print how to resume it."""
        self._close()
        if self._rows is not None:
            self._rows.stop()
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
        if (now := time.monotonic()) - self._last_line >= PLAIN_EVERY:
            self._last_line, speed = now, f"{rate:,.0f} sentences/s"
            self.write(f"  step {step}/{self._total}  loss {loss:.4f}  {self._dev}{speed}  {left}".rstrip())

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
    """Screen of the runs of a command, with a line for each start and end if there are `several`. A context manager.

    `command` returns the command that continues after an interruption.
    """

    def __init__(self, *, several: bool, command: Callable[[], str], quiet: bool = False) -> None:
        super().__init__(quiet=quiet)
        self._several, self._command = several, command
        self._parallel: dict[str, RunLines] = {}
        self.expect(0)

    def expect(self, runs: int, *, alone: bool = True) -> None:
        """Set the number of runs that this command executes, and whether none are in parallel."""
        self._runs, self._alone, self._ended, self._since = runs, alone, 0, time.monotonic()
        self.begun: set[str] = set()

    def begin(self, label: str, heading: str, run_id: str) -> Listener:
        """Print which run starts, and return the receiver of its events."""
        self.begun.add(run_id)
        if self._several:
            self.write(f"[bold]run {len(self.begun)} of {self._runs}[/bold] · {escape(label)}")
        show = super().begin(label, heading, run_id)
        if self._alone:
            return show
        self._parallel[label] = RunLines(label, self.console, self.rows())
        return self._parallel[label].show

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

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Close the bars. After an interruption, print how to continue."""
        super().__exit__(kind, None if self._several else error, trace)
        if self._several and isinstance(error, KeyboardInterrupt | Terminated):
            self.write(f"stopped. To run the rest: {escape(self._command())}")


class RunLines(RunScreen):
    """One of several parallel runs: lines that begin with its name, and on a terminal a row of `rows`."""

    def __init__(self, name: str, console: Console, rows: Progress | None) -> None:
        super().__init__(console)
        self.live = False
        self._rows, self._label = rows, name

    def show(self, kind: str, data: Mapping[str, Any]) -> None:
        """Show an event of the run. Its end removes its row."""
        super().show(kind, data)
        if kind in ENDS:
            self._close()

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
            self.console.print(f"[dim]{escape(f'[{self._label}]')}[/dim] {line.strip()}", soft_wrap=True)


def end_line(label: str, result: Result, seconds_left: float = 0.0) -> str:
    """Return the scores and duration of a run in one line, and the estimated time of the other runs unless it is 0."""
    parts = [label]
    for one in headlines(result):
        gain = "" if one.gain is None else f" (+{one.gain:.2f} over untrained)"
        gain = f" ({-one.gain:.2f} below untrained)" if one.gain is not None and one.gain < 0 else gain
        parts.append(f"{one.name} {one.score:.2f}{gain}")
    parts += [duration(result.seconds), *([f"about {duration(seconds_left)} left"] if seconds_left else [])]
    return " · ".join(parts)


def print_results(results: Sequence[Result]) -> None:
    """Print the table of seeds of each experiment, with what is unusual about its runs, and their speed."""
    with stdout_console() as out:
        for runs in grouped(results, lambda result: result.experiment).values():
            table = seeds_table(Experiment(tuple(by_seed(runs).values()), names=(runs[0].recipe,)))
            out.print(Text.assemble((runs[0].recipe, "bold"), f" · {runs[0].title}"), soft_wrap=True)
            for part in as_rich_parts(text_table(table), out.width, gap=1):
                out.print(part)
            for run in runs:
                if run.early_stop is not None:
                    out.print(Text(f"seed {run.seed} {run.early_stop.text}"), soft_wrap=True)
            for seed, one in ((run.seed, one) for run in runs for one in headlines(run)):
                if one.gain is not None and one.gain < 0:
                    scores = f"{one.name} {one.score:.2f}, untrained {one.untrained:.2f}"
                    text = f"seed {seed} scores lower than its untrained encoder: {scores}"
                    out.print(Text(text, "yellow"), soft_wrap=True)
            for line in (*compare_with_reproductions(runs), *_speed_line(runs)):
                out.print(Text(line), soft_wrap=not out.is_terminal)
            out.print()


_WIDE = 60
"""Longest command with which the others are aligned."""


def _argument(result: Result) -> str:
    """Return the name of the recipe, or the path of its file if it has no bare name."""
    return result.recipe if not result.source or bare_name(Path(result.source)) else result.source


def next_steps(results: Sequence[Result], settings: Sequence[str] = ()) -> list[str]:
    """Return the path of the model with the best dev score, code that loads it, and the next commands.

    `settings` are options that changed the recipes, so that more seeds belong to the same experiment.
    """
    best = max(results, key=lambda result: result.curve.get(result.selected_step or 0, float("-inf")))
    run_id, folder = str(best.run_id), run_folders() / str(best.run_id) / "model"
    which = "" if len(results) == 1 else f" with the best dev score, {best.recipe} seed {best.seed}"
    python = (
        "from cse_cli import load_model",
        f'model = load_model("{run_id[:8]}")',
        'model.encode(["A man is singing.", "Someone sings."])',
    )
    lines = [f"model{which}: {folder}", *(f"  {line}" for line in python)] if folder.is_dir() else []
    recipes = list(dict.fromkeys(_argument(result) for result in results))
    commands: dict[str, str] = {}
    if folder.is_dir() and best.language == "en" and not has_data(parse_tasks("sts")):
        commands[f"cse evaluate {run_id[:8]} --tasks stsb_open"] = "score it on the test set of the package"
    elif folder.is_dir():
        commands[f"cse evaluate {run_id[:8]}"] = "score it on the papers' test sets"
    commands["cse leaderboard"] = "compare with published results"
    if len(recipes) > 1:
        commands[shlex.join(["cse", "compare", *recipes])] = "test the difference"
    elif len(results) == 1:
        commands[shlex.join(["cse", "run", *recipes, *settings, "--seeds", "3"])] = "add seeds"
    width = max((len(command) for command in commands if len(command) <= _WIDE), default=0)
    return [*lines, "next:", *(f"  {command:<{width}}  {why}" for command, why in commands.items())]


def full_runs(results: Sequence[Result]) -> list[str]:
    """Return the commands of the full runs after `--fast-dev-run`."""
    recipes = list(dict.fromkeys(_argument(result) for result in results))
    return [
        "every part works; these scores are not results",
        "next:",
        f"  {shlex.join(['cse', 'plan', *recipes])}  estimate time, disk and memory of the full run",
        f"  {shlex.join(['cse', 'run', *recipes])}   start it",
    ]


def _speed_line(runs: Sequence[Result]) -> list[str]:
    """Return the mean speed of a recipe's runs in one line, or an empty list without training."""
    trained = [(run, run.speed) for run in runs if run.speed is not None]
    if not trained:
        return []
    total = sum(sum(speed.seconds.values()) for _, speed in trained) or 1
    shares = {part: sum(speed.seconds.get(part, 0.0) for _, speed in trained) / total for part in trained[0][1].seconds}
    means = {
        "sentences/s": [run.sentences_per_second for run, _ in trained if run.sentences_per_second],
        "tokens/s": [speed.tokens_per_second for _, speed in trained if speed.tokens_per_second],
    }
    parts = [f"{statistics.mean(known):,.0f} {unit}" for unit, known in means.items() if known]
    parts += [f"{part} {share:.0%}" for part, share in shares.items() if share >= 0.005]
    parts.append(f"peak {max(speed.peak_memory for _, speed in trained) / 1e9:.1f} GB")
    return [f"speed: {', '.join(parts)}"]


def describe_run(job: Job, prepared: Prepared) -> dict[str, Any]:
    """Return the preview of a run, with its first batch."""
    recipe, specs = job.recipe, prepared.experiment.specs
    weights = list(prepared.experiment.method.parameters())
    views = {}
    for name, tokens in ({} if prepared.batches is None else prepared.batches.batch(0)).items():
        view, first = recipe.views[name], tokens.ids[0][tokens.mask[0] == 1].tolist()
        decode = getattr(specs[name].vocabulary, "decode", None)
        views[name] = {
            "encoder": view.encoder,
            "augment": [part.name for part in view.augment],
            **_size(tokens),
            "side": {column: _size(side) for column, side in tokens.side.items()},
            "first_row": first,
            "first_text": None if decode is None else decode(first),
        }
    return {
        "recipe": job.loaded.name,
        "title": recipe.title,
        "seed": job.seed,
        "device": prepared.compute.describe(),
        "precision": prepared.compute.precision,
        "weights": sum(p.numel() for p in weights),
        "trained": sum(p.numel() for p in weights if p.requires_grad),
        "steps": prepared.steps,
        "batch_size": recipe.train.batch_size,
        "sentences": prepared.sentences,
        "evaluators": list(recipe.evaluators),
        "views": views,
    }


def _size(tokens: Tokens) -> dict[str, Any]:
    return {"shape": list(tokens.ids.shape), "real_tokens": int(tokens.mask.sum())}


def print_previews(previews: Sequence[Mapping[str, Any]], place: str) -> None:
    """Print previews of all runs and their placement."""
    with stdout_console() as out:
        for preview in previews:
            steps = f"{preview['steps']:,} steps of {preview['batch_size']} sentences"
            rows = [
                ("device", f"{preview['device']}, {preview['precision']}"),
                ("weights", f"{preview['weights']:,}, {preview['trained']:,} trained"),
                ("training", f"{steps if preview['steps'] else 'no training'}, {preview['sentences']:,} in all"),
                ("evaluators", ", ".join(preview["evaluators"])),
            ]
            if preview["losses"]:
                losses = (f"loss {label} {loss:.4f}" for label, loss in preview["losses"].items())
                rows.append(("first step", ", ".join(losses)))
            for name, view in preview["views"].items():
                augment = ", ".join(view["augment"]) or "none"
                rows.append((f"view {name}", f"encoder {view['encoder']}, augment {augment}"))
                for column, size in {"ids": view, **view["side"]}.items():
                    rows.append((column, f"{tuple(size['shape'])}, {size['real_tokens']:,} real tokens"))
                rows += [("first row", " ".join(map(str, view["first_row"]))), ("", view["first_text"] or "")]
            heading = Text.assemble((preview["recipe"], "bold"), f" · {preview['title']} · seed {preview['seed']}")
            out.print(heading, soft_wrap=True)
            out.print(as_rich(plain_table(("part", "value"), rows)))
        if previews:
            out.print(Text(f"{counted(len(previews), 'run')}, {place}"), soft_wrap=True)
