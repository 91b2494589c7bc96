"""The tables of a search, each in the widest of its forms that the terminal has room for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, stdev

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from cse_cli.tuning.found import Confirmation, Search, Trial, Value

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
