"""A search while it runs: the plan, then a line a trial; always on stderr."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from statistics import fmean

from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from cse_cli.core.console import Screen, Started
from cse_cli.core.devices import choose
from cse_cli.tuning.config import Ended, Opened, Outcome, Value
from cse_cli.tuning.options import Planned
from cse_cli.tuning.samplers import pruner_name
from cse_cli.tuning.space import Knob, points
from cse_cli.tuning.view import seeds, shown

PLAIN_EVERY = 60.0
"""Seconds between two lines about one trial where there is no terminal."""
NARROW = 100
"""Columns of a terminal below which a trial's line leaves out the metric's name."""


class TuneScreen(Screen):
    """Shows a search; of the runs it is made of, only a bar where there is a terminal."""

    def __init__(self) -> None:
        super().__init__()
        self._metric = ""
        self._trial = ""
        self._budget = 0
        self._finished = 0
        self._workers = 1
        self._took: list[float] = []

    def planned(self, planned: Planned) -> None:
        """Print what is to be searched, and why this recipe."""
        plan, recipe = planned.plan, planned.loaded.recipe
        self._metric = planned.metric
        why = f" ({escape(planned.why)})" if planned.why else ""
        self._line(f"tuning [bold]{escape(planned.loaded.name)}[/bold]{why}")
        length = plan.steps or recipe.train.steps
        each = f"{recipe.train.epochs} epochs" if length is None else f"{length:,} steps"
        self._line(f"  {escape(recipe.title)} · {each} a trial · {seeds(plan.seeds)}")
        for knob in plan.knobs:
            self._line(f"  {escape(described(knob))}")
        few = points(plan.knobs)
        of = f" over {few} points" if few is not None else ""
        self._line(
            f"  maximising {escape(planned.metric)}{of} · sampler {plan.sampler} · pruner {pruner_name(plan)}"
            + ("" if plan.timeout is None else f" · no trial begins after {plan.timeout:,.0f} s")
        )

    def opened(self, study: Opened) -> None:
        """Print where the study is kept, and how much of it is done."""
        self._budget, self._finished, self._workers = study.budget, study.done, max(1, len(study.devices))
        done = f", {study.done} done" if study.done else ", the first with the recipe's own values"
        self._line(f"  study [bold]{escape(study.name)}[/bold]: {study.budget} trials{done}")
        self._line(f"  on {escape(_places(study.devices))} · kept in {escape(study.storage)}")
        if study.done < study.budget:
            self._line(
                "[dim]  how long it takes is known after the first trial; stopped, the same command goes on[/dim]"
            )

    def trial_began(self, number: int, values: Mapping[str, Value], budget: int) -> None:
        """Remember which trial is at work."""
        self._budget = budget
        self._trial = f"trial {number}: {', '.join(_named(values)) or 'its own values'}"

    def trial_ended(self, trial: Ended) -> None:
        """Print what came of a trial, and how long the rest will take."""
        self._close()
        self._finished += 1
        self._took.append(trial.seconds)
        what = "the recipe's own" if trial.own else ", ".join(_named(trial.values))
        place = f"{self._finished}/{self._budget}"
        mark = "  [green]best so far[/green]" if trial.best and not trial.own else ""
        self._line(
            f"{place:>7}  trial {trial.number:<3} {escape(what)}  {self._came_to(trial)}  "
            f"{trial.seconds:,.0f} s{mark}{self._left_over()}"
        )

    def _came_to(self, trial: Ended) -> str:
        if trial.state == "failed":
            return f"[red]failed:[/red] {escape(trial.reason or '')}"
        score = "" if trial.score is None else f"{trial.score:.2f}"
        if trial.state == "pruned":
            return f"[dim]pruned at {score}[/dim]"
        metric = "" if self.live and self.console.width < NARROW else f"{escape(self._metric)} "  # the head has it
        return f"{metric}{score}"

    def _left_over(self) -> str:
        left = self._budget - self._finished
        return f"[dim]  about {_duration(left * fmean(self._took) / self._workers)} left[/dim]" if left > 0 else ""

    def repeats(self, number: int, lost: int) -> None:
        """Print which trial is done again."""
        self._line(f"[dim]trial {lost} was lost with its process; it is repeated as trial {number}[/dim]")

    def waits(self, count: int) -> None:
        """Print that only others are at work."""
        self._close()
        self._line(f"[dim]waiting for {count} trial{'' if count == 1 else 's'} of other processes …[/dim]")

    def left(self, name: str) -> None:
        """Print how to go on."""
        self._close()
        self._line(
            f"stopped; cse tune --join {escape(name)} goes on, and cse tune --best {escape(name)} shows the best"
        )

    def ended(self, outcome: Outcome) -> None:
        """Print why no further trial was begun, where it was not the budget."""
        done = sum(outcome.counts.values())
        again = f"cse tune --join {escape(outcome.name)}"
        if outcome.ending == "timeout":
            self._line(f"the time is over: {done} of {self._budget} trials are done; {again} goes on")
        elif outcome.ending == "exhausted":
            self._line(f"every point of the space has been tried: {done} trials")
        elif outcome.ran == 0:
            self._line(f"all {done} trials were done before; {again} --trials {2 * self._budget} goes on")

    def confirms(self, what: str, seed: int, number: int, total: int) -> None:
        """Print which run of a confirmation begins."""
        self._close()
        self._line(f"{f'{number}/{total}':>7}  {escape(what)}, seed {seed}")
        self._trial = what

    def left_confirming(self, name: str, seeds: int) -> None:
        """Print how to go on with a confirmation."""
        self._close()
        self._line(f"stopped; cse tune --best {escape(name)} --confirm {seeds} goes on")

    def preparing(self, what: str, done: int = 0, total: int = 0) -> None:
        """Say what is waited for before the first trial; later ones need the same."""
        if not self._took:
            super().preparing(what, done, total)

    def started(self, run: Started) -> None:
        """Open the bar; a trial's line says the rest."""
        self._dev, self._total = "", run.steps
        if self.live:
            columns = (TextColumn("         {task.description}"), MofNCompleteColumn(), BarColumn(bar_width=24))
            self._bar = Progress(*columns, TextColumn("{task.fields[dev]}"), console=self.console, transient=True)
            self._task = self._bar.add_task(self._trial, total=run.steps, completed=run.done, loss="", dev="", rate="")
            self._bar.start()
        self._spoke = time.monotonic()

    def stepped(self, step: int, loss: float, rate: float) -> None:
        """Move the bar; without a terminal, say now and then how far a long trial is."""
        if self._bar is not None:
            super().stepped(step, loss, rate)
        elif time.monotonic() - self._spoke >= PLAIN_EVERY:
            self._spoke = time.monotonic()
            self._line(f"         {escape(self._trial)}  step {step}/{self._total}  {self._dev}")

    def evaluated(self, step: int, scores: Mapping[str, float], best: bool) -> None:
        """Keep the score for the bar."""
        if best or step == 0:
            self._dev = f"dev {next(iter(scores.values())):.2f}"

    def stopped(self, run_id: str | None) -> None:
        """Say nothing: `left` says how the search goes on."""

    def _line(self, text: str) -> None:
        self.console.print(text, soft_wrap=not self.live)


def _places(devices: Sequence[str]) -> str:
    if len(devices) == 1:
        return choose(devices[0]).describe()
    same = len(set(devices)) == 1
    return f"{choose(devices[0]).device}, {len(devices)} workers" if same else ", ".join(devices)


def described(knob: Knob) -> str:
    """Return a parameter's range, where it came from, and where it stands now."""
    if knob.choices is not None:
        values = " | ".join(map(shown, knob.choices))
    else:
        how = " on a log scale" if knob.log else "" if knob.step is None else f" by {knob.step:.12g}"
        values = f"{knob.low:.6g} … {knob.high:.6g}{how}"
    now = "unset" if knob.default is None else shown(knob.default)
    beside = "" if knob.inside or knob.default is None else ", beside the range: the first trial has it all the same"
    where = "" if knob.paths == (knob.name,) else f" → {', '.join(knob.paths)}"
    return f"{knob.name}: {values}  ({knob.source}; now {now}{beside}){where}"


def _named(values: Mapping[str, Value]) -> list[str]:
    return [f"{name} {'unset' if value is None else shown(value)}" for name, value in values.items()]


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
