"""Display of a search: its progress on stderr, its tables and its JSON on stdout."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, get_args

from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.text import Text

from cse_cli.core.console import CUT, WHOLE, Console, stdout_console, write_json
from cse_cli.core.formatting import duration, interval, mean_text, p_value, signed
from cse_cli.core.tables import Cell, Row, Table, as_rich_parts, as_tsv, plain_table
from cse_cli.jobs.job import Job
from cse_cli.jobs.screen import RunLines, RunScreen
from cse_cli.recipe.load import LoadedRecipe
from cse_cli.runs.events import Listener
from cse_cli.tuning.parameters import Value, show_value
from cse_cli.tuning.results import Search, Trial, Verification
from cse_cli.tuning.study import SearchConfig, State, dev_metric, journal, points

PLAIN_EVERY = 60.0
"""Seconds between two lines about one trial without a terminal."""
Ending = Literal["budget", "exhausted", "timeout"]
"""Why a search ends: all trials are done, every point of the space was tried, or the time is over."""
ROWS = 10
"""Maximum number of trials in the table."""
_SHOWN_REASONS = 3
_HEADINGS = ("search", "recipe", "trials", "best", "gain", "parameters", "updated")


class TrialLines(RunLines):
    """One of several parallel runs of a search: warnings, and on a terminal a row."""

    def evaluated(self, step: int, scores: Mapping[str, float], best: bool) -> None:
        """Show the dev score in the row."""
        if self._bar is not None and (best or step == 0):
            self._bar.update(self._task, dev=f"dev {next(iter(scores.values())):.2f}  ", left=self._left(step))


class TuneScreen(RunScreen):
    """Shows a search, and in a terminal a bar for each current run."""

    def __init__(self, *, quiet: bool = False) -> None:
        super().__init__(quiet=quiet)
        self._metric = self._trial = ""
        self._begun: dict[str, str] = {}
        """Trial → its description."""
        self._budget, self._at_once = 0, 1
        self._took: list[float] = []

    def receiver(self, name: str, *, alone: bool) -> Listener:
        """Return the receiver of the events of a run. If others run in parallel, it has its own row."""
        return self.show if alone else TrialLines(self._begun.get(name, name), self.console, self.rows()).show

    def chosen(self, recipe: str, reason: str) -> None:
        """Print the recipe, and the reason if the user did not name it."""
        why = f" ({escape(reason)})" if reason else ""
        self.write(f"tuning [bold]{escape(recipe)}[/bold]{why}")

    def planned(self, config: SearchConfig, loaded: LoadedRecipe) -> None:
        """Print the settings of the search."""
        self._metric = dev_metric(loaded.recipe)
        length = config.steps or loaded.recipe.train.steps
        each = f"{loaded.recipe.train.epochs} epochs" if length is None else f"{length:,} steps"
        self.write(f"  {escape(loaded.recipe.title)} · {each} per trial · {config.scored_by}")
        for one in config.parameters:
            now = "unset" if one.default is None else show_value(one.default)
            outside = "" if one.holds_default or one.default is None else ", outside the range: only in trial 0"
            where = "" if one.paths == (one.name,) else f" → {', '.join(one.paths)}"
            if one.when is not None:
                where += f", if {one.when[0]} is {' or '.join(map(show_value, one.when[1]))}"
            self.write(escape(f"  {one.name}: {one.shown}  ({one.source}; recipe: {now}{outside}){where}"))
        every = points(config.parameters)
        number = "" if every is None else f" over {len(every)} points"
        until = "" if config.timeout is None else f" · timeout {duration(config.timeout)}"
        names = f"sampler {config.sampler} · pruner {config.used_pruner}"
        self.write(f"  maximizing {escape(self._metric)}{number} · {names}{until}")

    def opened(self, config: SearchConfig, done: int, budget: int, place: str, at_once: int) -> None:
        """Print the name, storage and budget of the search, of which `done` trials have ended."""
        self._budget, self._at_once = budget, at_once
        so_far = f", {done} done" if done else ", the first with the recipe's values"
        self.write(f"  search [bold]{escape(config.name)}[/bold]: {budget} trials{so_far}")
        self.write(f"  {escape(place)} · storage {escape(str(journal(config.name)))}")
        if done < budget:
            command = escape(f"cse tune --resume {config.name}")
            self.write(f"[dim]  to stop, press Ctrl-C. To continue: {command}[/dim]")

    def trial_began(self, number: int, values: Mapping[str, Value]) -> None:
        """Keep the description of the trial for its bar."""
        self._trial = self._begun[f"trial {number}"] = f"trial {number}: {_named(values) or 'recipe values'}"

    def trial_ended(self, trial: Trial, best: bool, done: int) -> None:
        """Print the score of a trial, and the time left. `best`: it is better than all complete trials before it."""
        self._close()
        seconds = trial.seconds or 0.0
        self._took.append(seconds)
        what = "recipe values" if trial.own else _named(trial.values)
        mark = "  [green]best[/green]" if best and not trial.own else ""
        left = (self._budget - done) * fmean(self._took) / self._at_once
        about = f"[dim]  {duration(left)} left[/dim]" if left > 0 else ""
        number = "" if trial.score is None else f"{trial.score:.2f}"
        score = f"[dim]pruned at {number}[/dim]" if trial.state == "pruned" else f"{escape(self._metric)} {number}"
        if trial.state == "failed":
            score = f"[red]failed:[/red] {escape(trial.reason or '')}"
        place = f"{done}/{self._budget}"
        self.write(f"{place:>7}  trial {trial.number:<3} {escape(what)}  {score}  {seconds:,.0f} s{mark}{about}")

    def trial_invalid(self, trial: Trial) -> None:
        """Print which parts are not compatible."""
        shown, reason = escape(_named(trial.values)), escape(trial.reason or "")
        self.write(f"         [dim]trial {trial.number:<3} {shown}  invalid:[/dim] {reason}")

    def ended(self, config: SearchConfig, done: int, ran: int, ending: Ending) -> None:
        """Print why the search ended, unless its budget is spent."""
        again = escape(f"cse tune --resume {config.name}")
        if ending == "timeout":
            self.write(f"timeout after {done} of {self._budget} trials. To continue: {again}")
        elif ending == "exhausted":
            self.write(f"all {done} points of the space have been tried")
        elif ran == 0:
            self.write(f"all {done} trials were already done. For more: {again} --trials {2 * self._budget}")

    def verify(self, jobs: Sequence[Job], *, alone: bool) -> None:
        """Set the runs of a verification, and whether none are in parallel."""
        self._verified, self._alone = {job.label: job for job in jobs}, alone

    def begin(self, label: str, heading: str, run_id: str) -> Listener:  # noqa: ARG002 - as of other screens
        """Print which run of a verification starts, and return the receiver of its events."""
        self._close()
        job = self._verified[label]
        self._trial = f"{job.run_name.partition(',')[0]} values"
        place = f"{list(self._verified).index(label) + 1}/{len(self._verified)}"
        self.write(f"{place:>7}  {escape(self._trial)}, seed {job.seed}")
        return self.receiver(job.name, alone=self._alone)

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
            self.write(f"         {escape(self._trial)}  step {step}/{self._total}  {self._dev}")

    def evaluated(self, step: int, scores: Mapping[str, float], best: bool) -> None:
        """Keep the score for the bar."""
        if best or step == 0:
            self._dev = f"dev {next(iter(scores.values())):.2f}"

    def write(self, text: str) -> None:
        """Print a line."""
        self.console.print(text, soft_wrap=not self.live)


def _named(values: Mapping[str, Value | None]) -> str:
    shown = {name: "unset" if value is None else show_value(value) for name, value in values.items()}
    return ", ".join(f"{name} {value}" for name, value in shown.items())


# Results.


def print_search(search: Search, figures: Path | None = None, saved: Path | None = None) -> None:
    """Print the best trials, the findings and the next commands."""
    config, best = search.config, search.best
    counts = ", ".join(f"{search.count(state)} {state}" for state in get_args(State) if search.count(state))
    steps = "" if config.steps is None else f", {config.steps} steps"
    scored = f"{search.metric}, {config.scored_by}{steps}"
    about = f" · {config.recipe} · {scored} · {len(search.trials)} trials: {counts}\n"
    with stdout_console() as out:
        out.print(Text.assemble((search.name, "bold"), about))
        if search.complete:
            _print_table(out, trial_table(search))
        for line in _findings(search):
            out.print(Text(line))
        if figures is not None:
            out.print(Text(f"figures: {figures}"), soft_wrap=True)
        if search.best_verification is not None:
            _print_table(out, verification_table(search.best_verification))
        if best is None or best.own:
            return
        command, unverified = f"cse tune --best {search.name}", search.best_verification is None
        lines = ["", *([f"verify the gain:    {command} --verify-seeds 5"] if unverified else [])]
        save = f"save the best:      {command} --save-best FILE.toml"
        for line in (*lines, save if saved is None else f"run the best:       cse run {saved}"):
            out.print(Text(line), soft_wrap=True)


def _findings(search: Search) -> Iterator[str]:
    best = search.best
    if best is not None and not best.own:
        gain = "" if search.gain is None else f" ({signed(search.gain)} compared with the recipe's values)"
        yield f"best: {_pairs(best.values)}{gain}"
    if search.importance:
        shares = ", ".join(f"{name} {share:.2f}" for name, share in search.importance.items())
        yield f"importance: {shares} (share of the score's variance over {len(search.complete)} trials)"
    for state in ("failed", "invalid"):
        reasons = defaultdict[str, list[str]](list)
        for trial in search.trials:
            if trial.state == state:
                reasons[trial.reason or "unknown reason"].append(str(trial.number))
        for reason, numbers in list(reasons.items())[:_SHOWN_REASONS]:
            noun = "trial" if len(numbers) == 1 else "trials"
            yield f"{state}: {noun} {', '.join(numbers)}: {reason}"
    if best is not None:
        yield search.verdict


def print_verification(search: Search, found: Verification) -> None:
    """Print the scores of both sides with every metric, and the verdict."""
    with stdout_console() as out:
        out.print(Text.assemble((search.name, "bold"), f" · recipe's values compared with {_pairs(found.values)}\n"))
        _print_table(out, verification_table(found))
        out.print(Text(found.sentence))


def print_searches(searches: Sequence[Search]) -> None:
    """Print one line per search: a table in a terminal, tab-separated values in a pipe."""
    lines, terminal = [], sys.stdout.isatty()
    for search in searches:
        done = len(search.trials) - search.count("running") - search.count("interrupted")
        names = ", ".join(parameter.name for parameter in search.config.parameters)
        score = "" if search.best is None else f"{search.best.score:.2f}"
        gain = "" if search.gain is None else signed(search.gain)
        updated = (search.updated or "")[5:16].replace("T", " ") if terminal else search.updated or ""
        trials = f"{done}/{search.config.trials}"
        lines.append([search.name, search.config.recipe, trials, score, gain, names, updated])
    table = plain_table(_HEADINGS, lines, align="plrrrpl")
    if not terminal:
        sys.stdout.write(as_tsv(table))
        return
    with stdout_console() as out:
        for part in as_rich_parts(table, out.width):
            out.print(part)


def write_search(search: Search) -> None:
    """Write a search as one JSON document, with its best trial and verdict at the top level."""
    known = search.verification
    answers: dict[str, Any] = {
        "best": None if search.best is None else search.best.model_dump(mode="json"),
        "verdict": search.verdict,
        "confirmed": None if known is None else known.confirmed,
    }
    write_json({**search.model_dump(mode="json"), **answers})


def trial_table(search: Search) -> Table:
    """Return the best trials, and the recipe's values if they are not among them."""
    shown, own = search.complete[:ROWS], search.own
    if own is not None and own not in shown:
        shown.append(own)
    parameters = search.config.parameters
    headings = (search.metric, *shortest_names(parameter.name for parameter in parameters), "seconds", "")
    rows = []
    for trial in shown:
        values: dict[str, Value | None] = dict(trial.values)
        if trial.own:
            values = {parameter.name: parameter.default for parameter in parameters} | values
        texts = [show_value(values.get(parameter.name)) for parameter in parameters]
        seconds = "" if trial.seconds is None else f"{trial.seconds:.0f}"
        cells = map(Cell, (f"{trial.score:.2f}", *texts, seconds, "own" if trial.own else ""))
        rows.append(Row(str(trial.number), tuple(cells), emphasis="best" if trial == search.best else ""))
    return Table("", headings, tuple(rows), label="trial", align="r" * len(headings) + "l")


def _pairs(values: Mapping[str, Value | None]) -> str:
    return ", ".join(f"{name} = {show_value(value)}" for name, value in values.items())


def shortest_names(names: Iterable[str]) -> list[str]:
    """Return the shortest unique ending of each dotted name."""
    whole = [name.split(".") for name in names]
    found = []
    for keys in whole:
        length = 1
        while length < len(keys) and sum(other[-length:] == keys[-length:] for other in whole) > 1:
            length += 1
        found.append(".".join(keys[-length:]))
    return found


def verification_table(found: Verification) -> Table:
    """Return the scores of both sides with every metric."""
    rows = []
    for name, over in found.paired.items():
        limits = interval(over.low, over.high) if over.low is not None else ""
        p = over.p_adjusted
        sides = [mean_text(over.first), mean_text(over.second)]
        texts = [*sides, signed(over.difference), limits, "" if p is None else p_value(p)]
        rows.append(Row(name, tuple(map(Cell, texts)), emphasis="main" if name == found.main else ""))
    return Table("", ("own", "found", "gain", "interval", "p"), tuple(rows))


def _print_table(out: Console, table: Table) -> None:
    for part in as_rich_parts(table, out.width, ruled=True):
        out.print(part)
