"""A search on the screen: what is planned, how it goes, what it found.

The tables of a search, each in the widest of its forms that the terminal has room for.
"""

from __future__ import annotations

import io
import json
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Literal

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from cse_cli.tuning.results import Confirmation, Search, State, Trial, Value, told, verdict

_SHOWN_REASONS = 3
_WIDE = 120
_IN_THE_NAME = ("recipe", "parameters")
"""Columns that a narrow terminal leaves out: the name that a study gets says both."""
_HEADINGS = ("study", "recipe", "trials", "best", "gain", "parameters", "updated")


def print_search(search: Search, figures: Path | None = None, saved: Path | None = None) -> None:
    """Print the best trials, what mattered, and what to do next, on stdout.

    Args:
        search: What was found.
        figures: Folder of its figures.
        saved: The recipe that was written.
    """
    console, text = _console()
    console.print(f"[bold]{escape(search.study)}[/bold] · {escape(_about(search))}\n")
    if search.complete:
        console.print(trials(search, console.width))
    for line in _findings(search):
        console.print(escape(line))
    if figures is not None:
        console.print(escape(f"figures: {figures}"), soft_wrap=True)
    if search.confirmation is not None and search.best is not None and search.confirmation.values == search.best.values:
        console.print(confirmed(search.confirmation, console.width))
    _next(console, search, saved)
    _write(text)


def print_confirmation(search: Search, confirmation: Confirmation) -> None:
    """Print the scores of both with every metric, and what they allow to say."""
    console, text = _console()
    chosen = ", ".join(_pairs(confirmation.values))
    console.print(f"[bold]{escape(search.study)}[/bold] · the recipe's own values against {escape(chosen)}\n")
    console.print(confirmed(confirmation, console.width))
    console.print(escape(told(confirmation)))
    _write(text)


def print_searches(searches: Sequence[Search]) -> None:
    """Print a line a study: a table on a terminal, tab-separated values into a pipe."""
    lines = [_line(search) for search in searches]
    if not sys.stdout.isatty():
        sys.stdout.write("".join("\t".join(line) + "\n" for line in [_HEADINGS, *lines]))
        return
    console, text = _console()
    wide = console.width >= _WIDE
    table = Table(box=None, pad_edge=False)
    for heading in _HEADINGS:
        if wide or heading not in _IN_THE_NAME:
            numbers = heading in ("trials", "best", "gain")
            justify: Literal["left", "right"] = "right" if numbers else "left"
            table.add_column(heading, justify=justify, no_wrap=heading not in ("study", "parameters"), overflow="fold")
    for line in lines:
        cells = dict(zip(_HEADINGS, line, strict=True))
        cells["updated"] = cells["updated"][5:16].replace("T", " ")
        table.add_row(*(escape(cell) for heading, cell in cells.items() if wide or heading not in _IN_THE_NAME))
    console.print(table)
    _write(text)


def write_json(content: Any) -> None:
    """Write one JSON document: a search, or several."""
    many = isinstance(content, list)
    plain = [one.model_dump(mode="json") for one in (content if many else [content])]
    document = {"schema_version": 1, "studies": plain} if many else {**plain[0], **_answers(content)}
    sys.stdout.write(json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def _answers(search: Search) -> dict[str, Any]:
    """Return what a program wants first, so that it need not look through the trials."""
    best = search.best
    return {
        "best": None if best is None else best.model_dump(mode="json"),
        "verdict": verdict(search),
        "confirmed": None if search.confirmation is None else search.confirmation.confirmed,
    }


def _line(search: Search) -> tuple[str, ...]:
    best, own = search.best, search.own
    gain = "" if best is None or own is None else signed((best.score or 0.0) - (own.score or 0.0))
    done = sum(trial.state != "running" for trial in search.trials)
    names = ", ".join(parameter.name for parameter in search.parameters)
    score = "" if best is None else f"{best.score:.2f}"
    return (search.study, search.recipe, f"{done}/{search.budget}", score, gain, names, search.updated or "")


def _about(search: Search) -> str:
    """Return recipe, metric and how many trials came to which end."""
    states: tuple[State, ...] = ("complete", "pruned", "failed", "running")
    counts = ", ".join(f"{search.count(state)} {state}" for state in states if search.count(state))
    steps = "" if search.steps is None else f", {search.steps} steps"
    return f"{search.recipe} · {search.metric}, {seeds(search.seeds)}{steps} · {len(search.trials)} trials: {counts}"


def seeds(chosen: Sequence[int]) -> str:
    """Return "seed 3", or "mean of seeds 0, 1, 2"."""
    listed = ", ".join(map(str, chosen))
    return f"seed {listed}" if len(chosen) == 1 else f"mean of seeds {listed}"


def _findings(search: Search) -> Iterable[str]:
    best, own = search.best, search.own
    if best is not None and not best.own:
        gain = "" if own is None else f": {signed((best.score or 0.0) - (own.score or 0.0))} over the recipe's own"
        yield f"best: {', '.join(_pairs(best.values))}{gain}"
    if search.importance:
        shares = ", ".join(f"{name} {share:.2f}" for name, share in search.importance.items())
        yield f"importance: {shares} (share in what sets the good ones of {len(search.complete)} trials apart)"
    yield from _failures(search)
    if best is not None:
        yield verdict(search)


def _failures(search: Search) -> Iterable[str]:
    reasons: dict[str, list[int]] = {}
    for trial in search.trials:
        if trial.state == "failed":
            reasons.setdefault(trial.reason or "no reason known", []).append(trial.number)
    for reason, numbers in list(reasons.items())[:_SHOWN_REASONS]:
        which = f"trial{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"
        yield f"failed: {which}: {reason}"


def _next(console: Console, search: Search, saved: Path | None) -> None:
    """Print commands that go on from here."""
    best = search.best
    if best is None or best.own:
        return
    at = "" if "://" not in search.storage else f" --storage {search.storage}"
    known = search.confirmation is not None and search.confirmation.values == best.values
    console.print()
    if not known:
        console.print(escape(f"is it more than luck:  cse tune --best {search.study}{at} --confirm 5"), soft_wrap=True)
    if saved is not None:
        console.print(escape(f"run what was found:    cse run {saved}"), soft_wrap=True)
        return
    console.print(
        escape(f"keep it as a recipe:   cse tune --best {search.study}{at} --save-best FILE.toml"), soft_wrap=True
    )


def _pairs(values: Mapping[str, Value | None]) -> list[str]:
    return [f"{name} = {'—' if value is None else shown(value)}" for name, value in values.items()]


def _console() -> tuple[Console, io.StringIO]:
    """Return a console as wide as the terminal; plain, wide and unwrapped where stdout is none."""
    terminal = sys.stdout.isatty()
    text = io.StringIO()
    width = shutil.get_terminal_size().columns if terminal else UNBOUND
    return Console(file=text, force_terminal=terminal, width=width, highlight=False), text


def _write(text: io.StringIO) -> None:
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in text.getvalue().removesuffix("\n").split("\n")))


ROWS = 10
"""Trials of the table."""
UNBOUND = 10_000
"""Columns of what is no terminal: nothing is left out or broken there."""


def trials(search: Search, width: int) -> RenderableType:
    """Return the best trials, and the recipe's own values where they are not among them.

    Args:
        search: What was found.
        width: Columns there are. Where they are too few, the seconds go, then every trial gets lines of its own.
    """
    best, own = search.complete[:ROWS], search.own
    rows = [*best, *([own] if own is not None and own not in best else [])]
    names = short(parameter.name for parameter in search.parameters)
    for table in (_trials(search, rows, names, seconds=seconds) for seconds in (True, False)):
        if _fits(table, width):
            return table
    return Group(*(part for trial in rows for part in _lines(search, trial, names)))


def _trials(search: Search, rows: Sequence[Trial], names: Mapping[str, str], *, seconds: bool) -> Table:
    table = _table()
    table.add_column("trial", justify="right", no_wrap=True)
    for heading in (search.metric, *names.values(), *(["seconds"] if seconds else [])):
        table.add_column(escape(heading), justify="right", no_wrap=True)
    table.add_column("")
    for trial in rows:
        took = "" if trial.seconds is None else f"{trial.seconds:.0f}"
        cells = [str(trial.number), f"{trial.score:.2f}", *map(escape, _values(search, trial))]
        note = "own" if trial.own else ""
        table.add_row(*cells, *([took] if seconds else []), note, style=_style(search, trial))
    return table


def _lines(search: Search, trial: Trial, names: Mapping[str, str]) -> Iterable[RenderableType]:
    took = "" if trial.seconds is None else f"  {trial.seconds:.0f} s"
    own = "  own" if trial.own else ""
    style = _style(search, trial) or "none"
    yield f"[{style}]trial {trial.number}  {escape(search.metric)} {trial.score:.2f}{took}{own}[/{style}]"
    chosen = [f"{name}={value}" for name, value in zip(names.values(), _values(search, trial), strict=True)]
    yield Padding(escape(", ".join(chosen)), (0, 0, 0, 4))


def _style(search: Search, trial: Trial) -> str | None:
    return "green" if trial == search.best else None


def _values(search: Search, trial: Trial) -> list[str]:
    return [_of(trial, parameter.name, parameter.default) for parameter in search.parameters]


def _of(trial: Trial, name: str, default: Value | None) -> str:
    value = trial.values.get(name, default if trial.own else None)
    return "—" if value is None else shown(value)


def short(names: Iterable[str]) -> dict[str, str]:
    """Return each dotted name with the shortest of its endings that no other one has."""
    whole = [name.split(".") for name in names]

    def ending(keys: Sequence[str]) -> str:
        lengths = range(1, len(keys))
        alone = (n for n in lengths if sum(other[-n:] == keys[-n:] for other in whole) == 1)
        return ".".join(keys[-next(alone, len(keys)) :])

    return {".".join(keys): ending(keys) for keys in whole}


def confirmed(confirmation: Confirmation, width: int) -> Table:
    """Return the scores of both sides with every metric.

    Args:
        confirmation: What fresh seeds say.
        width: Columns there are. Where they are too few, the interval goes, then the spread.
    """
    forms = [(True, True), (False, True), (False, False)]
    tables = [_confirmed(confirmation, interval=interval, spread=spread) for interval, spread in forms]
    return next((table for table in tables if _fits(table, width)), tables[-1])


def _confirmed(confirmation: Confirmation, *, interval: bool, spread: bool) -> Table:
    table = _table()
    table.add_column("", overflow="fold")
    for heading in ("own", "found", "difference", *(["95 % interval"] if interval else []), "p"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, over in confirmation.paired.items():
        reach = "" if over.low is None or over.high is None else f"{signed(over.low)} … {signed(over.high)}"
        p = "" if over.p is None else "<0.001" if over.p < 0.001 else f"{over.p:.3f}"
        cells = [*(_mean(side, spread=spread) for side in (over.first, over.second)), signed(over.difference)]
        style = "bold" if name == confirmation.main else None
        table.add_row(escape(name), *cells, *([reach] if interval else []), p, style=style)
    return table


def _table() -> Table:
    return Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)


def _fits(table: Table, width: int) -> bool:
    return Console(width=UNBOUND).measure(table).maximum <= width


def shown(value: Value) -> str:
    """Return a value for people: numbers in the digits that matter."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def signed(value: float) -> str:
    """Return a difference with its sign."""
    return f"{value:+.2f}".replace("-", "−")


def _mean(values: Sequence[float], *, spread: bool) -> str:
    around = f" ± {stdev(values):.2f}" if spread and len(values) > 1 else ""
    return f"{fmean(values):.2f}{around}"
