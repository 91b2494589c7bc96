"""Display of a running search, on stderr: its settings, then one line per trial."""

from __future__ import annotations

import time
from collections.abc import Mapping
from statistics import fmean
from typing import Any, Literal

from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn

from cse_cli.core.console import CUT, WHOLE
from cse_cli.core.formatting import duration
from cse_cli.jobs.screen import RunScreen
from cse_cli.recipe.load import LoadedRecipe
from cse_cli.runs.events import Listener
from cse_cli.tuning.config import SearchConfig, dev_metric
from cse_cli.tuning.parameter import Parameter, Value, show_value
from cse_cli.tuning.results import Trial
from cse_cli.tuning.samplers import all_points, pruner_name
from cse_cli.tuning.study import journal

PLAIN_EVERY = 60.0
"""Seconds between two lines about one trial without a terminal."""
Ending = Literal["budget", "exhausted", "timeout"]
"""Why a search ends: all trials are done, every point of the space was tried, or the time is over."""


class TuneScreen(RunScreen):
    """Shows a search, and in a terminal a bar for the current run."""

    def __init__(self, *, quiet: bool = False) -> None:
        super().__init__(quiet=quiet)
        self._metric = ""
        self._trial = ""
        self._budget = 0
        self._at_once = 1
        self._took: list[float] = []

    def receiver(self, name: str, *, alone: bool) -> Listener:
        """Return the receiver of the events of a run. If others run in parallel, only its warnings are shown."""

        def warned(kind: str, data: Mapping[str, Any]) -> None:
            if kind == "warning":
                self.warned(f"{name}: {data['text']}")

        return self.show if alone else warned

    def chosen(self, recipe: str, reason: str) -> None:
        """Print the recipe, and the reason if the user did not name it."""
        why = f" ({escape(reason)})" if reason else ""
        self._line(f"tuning [bold]{escape(recipe)}[/bold]{why}")

    def unfinished(self, name: str, trials: str, command: str) -> None:
        """Print another search that was stopped, and how to continue it."""
        self._line(f"  stopped earlier: search [bold]{escape(name)}[/bold], {trials}")
        self._line(f"    to continue that one instead: {escape(command)}")

    def planned(self, config: SearchConfig, loaded: LoadedRecipe) -> None:
        """Print the settings of the search."""
        self._metric = dev_metric(loaded.recipe)
        length = config.steps or loaded.recipe.train.steps
        each = f"{loaded.recipe.train.epochs} epochs" if length is None else f"{length:,} steps"
        self._line(f"  {escape(loaded.recipe.title)} · {each} per trial · {config.scored_by}")
        for parameter in config.parameters:
            self._line(f"  {escape(describe(parameter))}")
        points = all_points(config.parameters)
        number = "" if points is None else f" over {len(points)} points"
        until = "" if config.timeout is None else f" · timeout {duration(config.timeout)}"
        names = f"sampler {config.sampler} · pruner {pruner_name(config)}"
        self._line(f"  maximizing {escape(self._metric)}{number} · {names}{until}")

    def opened(self, config: SearchConfig, done: int, budget: int, place: str, at_once: int) -> None:
        """Print the name, storage and budget of the search, of which `done` trials have ended."""
        self._budget, self._at_once = budget, at_once
        so_far = f", {done} done" if done else ", the first with the recipe's values"
        self._line(f"  search [bold]{escape(config.name)}[/bold]: {budget} trials{so_far}")
        self._line(f"  {escape(place)} · storage {escape(str(journal(config.name)))}")
        if done < budget:
            command = escape(f"cse tune --resume {config.name}")
            self._line(f"[dim]  to stop, press Ctrl-C. To continue: {command}[/dim]")

    def trial_began(self, number: int, values: Mapping[str, Value]) -> None:
        """Keep the description of the trial for its bar."""
        self._trial = f"trial {number}: {_named(values) or 'recipe values'}"

    def trial_ended(self, trial: Trial, best: bool, done: int) -> None:
        """Print the score of a trial, and the time left. `best`: it is better than all complete trials before it."""
        self._close()
        seconds = trial.seconds or 0.0
        self._took.append(seconds)
        what = "recipe values" if trial.own else _named(trial.values)
        mark = "  [green]best so far[/green]" if best and not trial.own else ""
        left = (self._budget - done) * fmean(self._took) / self._at_once
        about = f"[dim]  about {duration(left)} left[/dim]" if left > 0 else ""
        place, score = f"{done}/{self._budget}", self._score(trial)
        self._line(f"{place:>7}  trial {trial.number:<3} {escape(what)}  {score}  {seconds:,.0f} s{mark}{about}")

    def _score(self, trial: Trial) -> str:
        if trial.state == "failed":
            return f"[red]failed:[/red] {escape(trial.reason or '')}"
        score = "" if trial.score is None else f"{trial.score:.2f}"
        return f"[dim]pruned at {score}[/dim]" if trial.state == "pruned" else f"{escape(self._metric)} {score}"

    def trial_invalid(self, trial: Trial) -> None:
        """Print which parts are not compatible."""
        shown, reason = escape(_named(trial.values)), escape(trial.reason or "")
        self._line(f"         [dim]trial {trial.number:<3} {shown}  invalid:[/dim] {reason}")

    def resumed(self, number: int) -> None:
        """Print which trial is resumed."""
        self._line(f"[dim]resuming interrupted trial {number}[/dim]")

    def interrupted(self, command: str) -> None:
        """Print how to continue."""
        self._close()
        self._line(f"stopped. To continue: {escape(command)}")

    def ended(self, config: SearchConfig, done: int, ran: int, ending: Ending) -> None:
        """Print why the search ended, unless its budget is spent."""
        again = escape(f"cse tune --resume {config.name}")
        if ending == "timeout":
            self._line(f"timeout after {done} of {self._budget} trials. To continue: {again}")
        elif ending == "exhausted":
            self._line(f"all {done} points of the space have been tried")
        elif ran == 0:
            self._line(f"all {done} trials were already done. For more: {again} --trials {2 * self._budget}")

    def verifying(self, what: str, seed: int, number: int, total: int) -> None:
        """Print which run of a verification starts."""
        self._close()
        self._line(f"{f'{number}/{total}':>7}  {escape(what)}, seed {seed}")
        self._trial = what

    def progress(self, what: str, done: float, total: float | None) -> None:
        """Show the preparation of the first trial. Later trials share it."""
        if not self._took and total != 1:
            self.preparing(what, done, total)

    def started(self, data: Mapping[str, Any]) -> None:
        """Open the bar of a run."""
        self._dev, self._total = "", data["steps"]
        if self.live:
            name, dev = TextColumn("         {task.description}", table_column=CUT), TextColumn("{task.fields[dev]}")
            columns = (name, MofNCompleteColumn(table_column=WHOLE), BarColumn(bar_width=16), dev)
            self._open(columns, escape(self._trial), self._total, completed=data["step"], dev="")
        self._last_line = time.monotonic()

    def stepped(self, step: int, loss: float, rate: float) -> None:
        """Move the bar. Without a terminal, print the progress of a long trial once per minute."""
        if self._bar is not None:
            super().stepped(step, loss, rate)
        elif time.monotonic() - self._last_line >= PLAIN_EVERY:
            self._last_line = time.monotonic()
            self._line(f"         {escape(self._trial)}  step {step}/{self._total}  {self._dev}")

    def evaluated(self, step: int, scores: Mapping[str, float], best: bool) -> None:
        """Keep the score for the bar."""
        if best or step == 0:
            self._dev = f"dev {next(iter(scores.values())):.2f}"

    def _line(self, text: str) -> None:
        self.console.print(text, soft_wrap=not self.live)


def describe(parameter: Parameter) -> str:
    """Return a parameter's range, its origin, and the recipe's value."""
    now = "unset" if parameter.default is None else show_value(parameter.default)
    outside = "" if parameter.holds_default or parameter.default is None else ", outside the range: only in trial 0"
    where = "" if parameter.paths == (parameter.name,) else f" → {', '.join(parameter.paths)}"
    if parameter.when is not None:
        part, having = parameter.when
        where += f", if {part} is {' or '.join(map(show_value, having))}"
    return f"{parameter.name}: {parameter.shown}  ({parameter.source}; recipe: {now}{outside}){where}"


def _named(values: Mapping[str, Value | None]) -> str:
    shown = {name: "unset" if value is None else show_value(value) for name, value in values.items()}
    return ", ".join(f"{name} {value}" for name, value in shown.items())
