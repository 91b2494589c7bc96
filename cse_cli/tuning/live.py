"""A search while it runs, on stderr: its plan, then a line a trial."""

from __future__ import annotations

import time
from collections.abc import Mapping
from statistics import fmean

from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from cse_cli.core.console import RunInfo, Screen
from cse_cli.core.formatting import duration
from cse_cli.recipe.load import LoadedRecipe
from cse_cli.tuning.config import SearchConfig, dev_metric
from cse_cli.tuning.observer import Ending, SearchObserver
from cse_cli.tuning.parameter import Parameter
from cse_cli.tuning.ranges import Value
from cse_cli.tuning.results import Trial
from cse_cli.tuning.samplers import count_points, distributions, pruner_name
from cse_cli.tuning.storage import address
from cse_cli.tuning.view import scored_by, show_value

PLAIN_EVERY = 60.0
"""Seconds between two lines about one trial where there is no terminal."""
NARROW = 100
"""Columns of a terminal below which a trial's line leaves out the metric's name."""


class TuneScreen(Screen, SearchObserver):
    """Shows a search; of its runs, only a bar where there is a terminal."""

    def __init__(self, *, quiet: bool = False) -> None:
        super().__init__(quiet=quiet)
        self._metric = ""
        self._trial = ""
        self._budget = 0
        self._finished = 0
        self._at_once = 1
        self._took: list[float] = []

    def chosen(self, recipe: str, why: str) -> None:
        """Print which recipe is searched, and why where none was named."""
        self._line(f"tuning [bold]{escape(recipe)}[/bold]{f' ({escape(why)})' if why else ''}")

    def planned(self, config: SearchConfig, loaded: LoadedRecipe) -> None:
        """Print what is to be searched."""
        self._metric = dev_metric(loaded.recipe)
        length = config.steps or loaded.recipe.train.steps
        each = f"{loaded.recipe.train.epochs} epochs" if length is None else f"{length:,} steps"
        self._line(f"  {escape(loaded.recipe.title)} · {each} a trial · {scored_by(config.seeds)}")
        for parameter in config.parameters:
            self._line(f"  {escape(describe(parameter))}")
        always = all(parameter.when is None for parameter in config.parameters)
        points = count_points(distributions(config.parameters)) if always else None
        of = f" over {points} points" if points is not None else ""
        until = "" if config.timeout is None else f" · no trial begins after {config.timeout:,.0f} s"
        names = f"sampler {config.sampler} · pruner {pruner_name(config)}"
        self._line(f"  maximising {escape(self._metric)}{of} · {names}{until}")

    def opened(self, config: SearchConfig, done: int, budget: int, place: str, at_once: int) -> None:
        """Print where the study is kept, and how much of it is done."""
        self._budget, self._finished, self._at_once = budget, done, at_once
        so_far = f", {done} done" if done else ", the first with the recipe's own values"
        self._line(f"  study [bold]{escape(config.name)}[/bold]: {budget} trials{so_far}")
        kept = address(config.storage, config.name).shown
        self._line(f"  {escape(place)} · kept in {escape(kept)}")
        if done < budget:
            self._line("[dim]  the time left is known after the first trial; stopped, the same command goes on[/dim]")

    def trial_began(self, number: int, values: Mapping[str, Value]) -> None:
        """Remember which trial is running."""
        self._trial = f"trial {number}: {_named(values) or 'its own values'}"

    def trial_ended(self, trial: Trial, best: bool, done: int) -> None:
        """Print the score of a trial, and how long the rest will take this process."""
        self._close()
        self._finished = done
        seconds = trial.seconds or 0.0
        self._took.append(seconds)
        what = "the recipe's own" if trial.own else _named(trial.values)
        mark = "  [green]best so far[/green]" if best and not trial.own else ""
        left = (self._budget - self._finished) * fmean(self._took) / self._at_once
        about = f"[dim]  about {duration(left)} left[/dim]" if left > 0 else ""
        place = f"{self._finished}/{self._budget}"
        self._line(
            f"{place:>7}  trial {trial.number:<3} {escape(what)}  {self._came_to(trial)}  {seconds:,.0f} s{mark}{about}"
        )

    def trial_refused(self, trial: Trial) -> None:
        """Print which parts do not fit together, and why."""
        self._line(f"         [dim]trial {trial.number:<3} {escape(_named(trial.values))}  refused:[/dim] "
                   f"{escape(trial.reason or '')}")  # fmt: skip

    def _came_to(self, trial: Trial) -> str:
        if trial.state == "failed":
            return f"[red]failed:[/red] {escape(trial.reason or '')}"
        score = "" if trial.score is None else f"{trial.score:.2f}"
        if trial.state == "pruned":
            return f"[dim]pruned at {score}[/dim]"
        narrow = self.live and self.console.width < NARROW
        return score if narrow else f"{escape(self._metric)} {score}"

    def resumed(self, number: int) -> None:
        """Print which trial is resumed."""
        self._line(f"[dim]trial {number} was interrupted; it is resumed[/dim]")

    def interrupted(self, name: str) -> None:
        """Print how to go on."""
        self._close()
        study = escape(name)
        self._line(f"stopped; cse tune --join {study} goes on, and cse tune --best {study} shows the best")

    def ended(self, name: str, done: int, ran: int, ending: Ending) -> None:
        """Print why no further trial was begun, where it was not the budget.

        Args:
            name: Of the study.
            done: Its trials that count.
            ran: Of these, in this command.
            ending: Why no more.
        """
        again = f"cse tune --join {escape(name)}"
        if ending == "timeout":
            self._line(f"the time is over: {done} of {self._budget} trials are done; {again} goes on")
        elif ending == "exhausted":
            self._line(f"every point of the space has been tried: {done} trials")
        elif ran == 0:
            self._line(f"all {done} trials were done before; {again} --trials {2 * self._budget} goes on")

    def confirming(self, what: str, seed: int, number: int, total: int) -> None:
        """Print which run of a confirmation begins."""
        self._close()
        self._line(f"{f'{number}/{total}':>7}  {escape(what)}, seed {seed}")
        self._trial = what

    def confirmation_interrupted(self, name: str, seeds: int) -> None:
        """Print how to go on with a confirmation."""
        self._close()
        self._line(f"stopped; cse tune --best {escape(name)} --confirm {seeds} goes on")

    def preparing(self, what: str, done: int = 0, total: int = 0) -> None:
        """Print what is waited for before the first trial; later ones need the same."""
        if not self._took:
            super().preparing(what, done, total)

    def started(self, run: RunInfo) -> None:
        """Open the bar; a trial's line says the rest."""
        self._dev, self._total = "", run.steps
        if self.live:
            columns = (TextColumn("         {task.description}"), MofNCompleteColumn(), BarColumn(bar_width=24))
            self._bar = Progress(*columns, TextColumn("{task.fields[dev]}"), console=self.console, transient=True)
            self._task = self._bar.add_task(self._trial, total=run.steps, completed=run.done, loss="", dev="", rate="")
            self._bar.start()
        self._last_line = time.monotonic()

    def stepped(self, step: int, loss: float, rate: float) -> None:
        """Move the bar; without a terminal, print now and then how far a long trial is."""
        if self._bar is not None:
            super().stepped(step, loss, rate)
        elif time.monotonic() - self._last_line >= PLAIN_EVERY:
            self._last_line = time.monotonic()
            self._line(f"         {escape(self._trial)}  step {step}/{self._total}  {self._dev}")

    def scoring(self, what: str, share: float) -> None:
        """Print nothing: a trial is short."""

    def evaluated(self, step: int, scores: Mapping[str, float], best: bool) -> None:
        """Keep the score for the bar."""
        if best or step == 0:
            self._dev = f"dev {next(iter(scores.values())):.2f}"

    def stopped(self, run_id: str | None) -> None:
        """Print nothing: `interrupted` says how the search goes on."""

    def _line(self, text: str) -> None:
        self.console.print(text, soft_wrap=not self.live)


def describe(parameter: Parameter) -> str:
    """Return a parameter's range, where it came from, and the recipe's own value."""
    if parameter.choices is not None:
        values = " | ".join(map(show_value, parameter.choices))
    else:
        by = "" if parameter.step is None else f" by {parameter.step:.12g}"
        values = f"{parameter.low:.6g} … {parameter.high:.6g}{' on a log scale' if parameter.log else by}"
    now = "unset" if parameter.default is None else show_value(parameter.default)
    outside = "" if parameter.holds_default or parameter.default is None else ", outside: the first trial has it anyway"
    where = "" if parameter.paths == (parameter.name,) else f" → {', '.join(parameter.paths)}"
    if parameter.when is not None:
        part, having = parameter.when
        where += f", where {part} is {' or '.join(map(show_value, having))}"
    return f"{parameter.name}: {values}  ({parameter.source}; now {now}{outside}){where}"


def _named(values: Mapping[str, Value | None]) -> str:
    return ", ".join(f"{name} {'unset' if value is None else show_value(value)}" for name, value in values.items())
