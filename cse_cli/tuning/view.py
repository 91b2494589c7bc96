"""What a search found, on stdout: its tables in the widest form that the terminal has room for, or JSON."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from cse_cli.core import console
from cse_cli.core.console import Console, stdout_console
from cse_cli.core.formatting import UNSET, interval, mean_text, p_value, seed_list, signed
from cse_cli.core.tables import Cell, Row, Table, as_rich, as_tsv, fits, plain_table
from cse_cli.tuning.ranges import Value
from cse_cli.tuning.results import Confirmation, Search, Trial, confirmation_sentence, verdict
from cse_cli.tuning.study import State

ROWS = 10
"""Trials of the table."""
_SHOWN_REASONS = 3
_WIDE = 120
_IN_THE_NAME = ("recipe", "parameters")
"""Columns that a narrow terminal leaves out: the name that a study gets says both."""
_HEADINGS = ("study", "recipe", "trials", "best", "gain", "parameters", "updated")


def print_search(search: Search, figures: Path | None = None, saved: Path | None = None) -> None:
    """Print the best trials, what mattered, and what to do next.

    Args:
        search: What was found.
        figures: Folder of its figures.
        saved: The recipe that was written.
    """
    with stdout_console() as out:
        _print_heading(out, search.study, _about(search))
        if search.complete:
            out.print(trial_table(search, out.width))
        for line in _findings(search):
            out.print(Text(line))
        if figures is not None:
            out.print(Text(f"figures: {figures}"), soft_wrap=True)
        if search.best_confirmation is not None:
            out.print(confirmation_table(search.best_confirmation, out.width))
        for line in _next_commands(search, saved):
            out.print(Text(line), soft_wrap=True)


def print_confirmation(search: Search, confirmation: Confirmation) -> None:
    """Print the scores of both sides with every metric, and what they allow to say."""
    chosen = ", ".join(_pairs(confirmation.values))
    with stdout_console() as out:
        _print_heading(out, search.study, f"the recipe's own values against {chosen}")
        out.print(confirmation_table(confirmation, out.width))
        out.print(Text(confirmation_sentence(confirmation)))


def print_searches(searches: Sequence[Search]) -> None:
    """Print a line a study: a table on a terminal, tab-separated values into a pipe."""
    lines = [_line(search) for search in searches]
    if not sys.stdout.isatty():
        sys.stdout.write(as_tsv(plain_table(_HEADINGS, lines)))
        return
    with stdout_console() as out:
        shown = [heading for heading in _HEADINGS if out.width >= _WIDE or heading not in _IN_THE_NAME]
        kinds = {"trials": "r", "best": "r", "gain": "r", "updated": "l", "recipe": "l"}
        rows = [dict(zip(_HEADINGS, line, strict=True)) for line in lines]
        for row in rows:
            row["updated"] = row["updated"][5:16].replace("T", " ")
        align = "".join(kinds.get(heading, "p") for heading in shown)
        out.print(as_rich(plain_table(shown, [[row[heading] for heading in shown] for row in rows], align=align)))


def write_searches(content: Search | Sequence[Search]) -> None:
    """Write one JSON document: a search with its best trial and verdict at the top, or several searches."""
    if not isinstance(content, Search):
        console.write_json({"studies": [one.model_dump(mode="json") for one in content]})
        return
    known = content.confirmation
    answers: dict[str, Any] = {
        "best": None if content.best is None else content.best.model_dump(mode="json"),
        "verdict": verdict(content),
        "confirmed": None if known is None else known.confirmed,
    }
    console.write_json({**content.model_dump(mode="json"), **answers})


def _print_heading(out: Console, study: str, about: str) -> None:
    out.print(Text.assemble((study, "bold"), f" · {about}\n"))


def _about(search: Search) -> str:
    """Return recipe, metric and how many trials came to which end."""
    states: tuple[State, ...] = ("complete", "pruned", "failed", "refused", "running", "interrupted")
    counts = ", ".join(f"{search.count(state)} {state}" for state in states if search.count(state))
    steps = "" if search.steps is None else f", {search.steps} steps"
    scored = f"{search.metric}, {scored_by(search.seeds)}{steps}"
    return f"{search.recipe} · {scored} · {len(search.trials)} trials: {counts}"


def _line(search: Search) -> tuple[str, ...]:
    done = sum(trial.state not in ("running", "interrupted") for trial in search.trials)
    names = ", ".join(parameter.name for parameter in search.parameters)
    score = "" if search.best is None else f"{search.best.score:.2f}"
    gain = "" if search.gain is None else signed(search.gain)
    return (search.study, search.recipe, f"{done}/{search.budget}", score, gain, names, search.updated or "")


def scored_by(seeds: Sequence[int]) -> str:
    """Return "seed 3", or "mean of seeds 0–2"."""
    return seed_list(seeds) if len(seeds) == 1 else f"mean of {seed_list(seeds)}"


def _findings(search: Search) -> Iterator[str]:
    best = search.best
    if best is not None and not best.own:
        gain = "" if search.gain is None else f": {signed(search.gain)} over the recipe's own"
        yield f"best: {', '.join(_pairs(best.values))}{gain}"
    if search.importance:
        shares = ", ".join(f"{name} {share:.2f}" for name, share in search.importance.items())
        yield f"importance: {shares} (share in what sets the good ones of {len(search.complete)} trials apart)"
    if search.accepted:
        yield f"made by different code (--accept-changed): {', '.join(search.accepted)}"
    yield from _reasons(search)
    if best is not None:
        yield verdict(search)


def _reasons(search: Search) -> Iterator[str]:
    """Yield why trials failed or were refused."""
    for ended in ("failed", "refused"):
        reasons: dict[str, list[str]] = {}
        for trial in search.trials:
            if trial.state == ended:
                reasons.setdefault(trial.reason or "no reason known", []).append(str(trial.number))
        for reason, numbers in list(reasons.items())[:_SHOWN_REASONS]:
            yield f"{ended}: trial{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}: {reason}"


def _next_commands(search: Search, saved: Path | None) -> Iterator[str]:
    if search.best is None or search.best.own:
        return
    command = f"cse tune --best {search.study}{f' --storage {search.storage}' if '://' in search.storage else ''}"
    yield ""
    if search.best_confirmation is None:
        yield f"is it more than luck:  {command} --confirm 5"
    yield (
        f"run what was found:    cse run {saved}"
        if saved
        else f"keep it as a recipe:   {command} --save-best FILE.toml"
    )


def trial_table(search: Search, width: int) -> RenderableType:
    """Return the best trials, and the recipe's own values where they are not among them.

    Args:
        search: What was found.
        width: Of the terminal. In a narrow one the seconds are left out, then every trial gets lines of its own.
    """
    best, own = search.complete[:ROWS], search.own
    trials = [*best, *([own] if own is not None and own not in best else [])]
    names = shortest_names(parameter.name for parameter in search.parameters)
    for seconds in (True, False):
        table = _trial_table(search, trials, names, seconds=seconds)
        if fits(table, width):
            return table
    return Group(*(part for trial in trials for part in _trial_lines(search, trial, names)))


def _trial_table(search: Search, trials: Sequence[Trial], names: Sequence[str], *, seconds: bool) -> RichTable:
    headings = (search.metric, *names, *(["seconds"] if seconds else []), "")
    rows = []
    for trial in trials:
        took = [_seconds(trial)] if seconds else []
        texts = [f"{trial.score:.2f}", *_values(search, trial), *took, "own" if trial.own else ""]
        rows.append(Row(str(trial.number), tuple(map(Cell, texts)), emphasis="best" if trial == search.best else ""))
    align = "r" * len(headings) + "l"
    return as_rich(Table("", headings, tuple(rows), label="trial", align=align), ruled=True)


def _trial_lines(search: Search, trial: Trial, names: Sequence[str]) -> Iterator[RenderableType]:
    took = f"  {_seconds(trial)} s" if trial.seconds is not None else ""
    line = f"trial {trial.number}  {search.metric} {trial.score:.2f}{took}{'  own' if trial.own else ''}"
    yield Text(line, style="green" if trial == search.best else "")
    chosen = [f"{name}={value}" for name, value in zip(names, _values(search, trial), strict=True)]
    yield Padding(Text(", ".join(chosen)), (0, 0, 0, 4))


def _seconds(trial: Trial) -> str:
    return "" if trial.seconds is None else f"{trial.seconds:.0f}"


def _values(search: Search, trial: Trial) -> list[str]:
    return [
        show_value(trial.values.get(parameter.name, parameter.default if trial.own else None))
        for parameter in search.parameters
    ]


def _pairs(values: dict[str, Value | None]) -> list[str]:
    return [f"{name} = {show_value(value)}" for name, value in values.items()]


def show_value(value: Value | None) -> str:
    """Return a value for people: numbers in four digits, a dash for one left unset."""
    if value is None or isinstance(value, bool):
        return UNSET if value is None else str(value).lower()
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def shortest_names(names: Iterable[str]) -> list[str]:
    """Return the shortest ending of each dotted name that no other one has."""
    whole = [name.split(".") for name in names]

    def ending(keys: Sequence[str]) -> str:
        alone = (n for n in range(1, len(keys)) if sum(other[-n:] == keys[-n:] for other in whole) == 1)
        return ".".join(keys[-next(alone, len(keys)) :])

    return list(map(ending, whole))


def confirmation_table(confirmation: Confirmation, width: int) -> RichTable:
    """Return the scores of both sides with every metric.

    Args:
        confirmation: What fresh seeds say.
        width: Of the terminal. In a narrow one the interval is left out, then the spread.
    """
    forms = ((True, True), (False, True), (False, False))
    tables = [_confirmation_table(confirmation, reach=reach, spread=spread) for reach, spread in forms]
    return next((table for table in tables if fits(table, width)), tables[-1])


def _confirmation_table(confirmation: Confirmation, *, reach: bool, spread: bool) -> RichTable:
    rows, p_values = [], confirmation.p_values
    for name, over in confirmation.paired.items():
        sides = [mean_text(side) if spread else f"{fmean(side):.2f}" for side in (over.first, over.second)]
        limits = [interval(over.low, over.high) if over.low is not None else ""] if reach else []
        p = p_values[name]
        texts = [*sides, signed(over.difference), *limits, "" if p is None else p_value(p)]
        rows.append(Row(name, tuple(map(Cell, texts)), emphasis="main" if name == confirmation.main else ""))
    headings = ("own", "found", "gain", *(["interval"] if reach else []), "p")
    return as_rich(Table("", headings, tuple(rows)), ruled=True)
