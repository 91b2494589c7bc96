"""Tables and JSON of a search, on stdout."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

from rich.text import Text

from cse_cli.core import console
from cse_cli.core.console import Console, stdout_console
from cse_cli.core.formatting import interval, mean_text, p_value, signed
from cse_cli.core.tables import Cell, Row, Table, as_rich_parts, as_tsv, plain_table
from cse_cli.tuning.parameter import Value, show_value
from cse_cli.tuning.results import Search, Verification, verdict, verification_sentence
from cse_cli.tuning.study import State

ROWS = 10
"""Maximum number of trials in the table."""
_SHOWN_REASONS = 3
_HEADINGS = ("search", "recipe", "trials", "best", "gain", "parameters", "updated")


def print_search(search: Search, figures: Path | None = None, saved: Path | None = None) -> None:
    """Print the best trials, the findings and the next commands."""
    with stdout_console() as out:
        out.print(Text.assemble((search.name, "bold"), f" · {_about(search)}\n"))
        if search.complete:
            _print_table(out, trial_table(search))
        for line in _findings(search):
            out.print(Text(line))
        if figures is not None:
            out.print(Text(f"figures: {figures}"), soft_wrap=True)
        if search.best_verification is not None:
            _print_table(out, verification_table(search.best_verification))
        for line in _next_commands(search, saved):
            out.print(Text(line), soft_wrap=True)


def print_verification(search: Search, found: Verification) -> None:
    """Print the scores of both sides with every metric, and the verdict."""
    chosen = ", ".join(_pairs(found.values))
    with stdout_console() as out:
        out.print(Text.assemble((search.name, "bold"), f" · recipe's values compared with {chosen}\n"))
        _print_table(out, verification_table(found))
        out.print(Text(verification_sentence(found)))


def print_searches(searches: Sequence[Search]) -> None:
    """Print one line per search: a table in a terminal, tab-separated values in a pipe."""
    lines = [_line(search) for search in searches]
    if not sys.stdout.isatty():
        sys.stdout.write(as_tsv(plain_table(_HEADINGS, lines)))
        return
    for line in lines:
        line[-1] = line[-1][5:16].replace("T", " ")
    with stdout_console() as out:
        for part in as_rich_parts(plain_table(_HEADINGS, lines, align="plrrrpl"), out.width):
            out.print(part)


def write_searches(searches: Sequence[Search]) -> None:
    """Write several searches as one JSON document."""
    console.write_json({"searches": [one.model_dump(mode="json") for one in searches]})


def write_search(search: Search) -> None:
    """Write a search as one JSON document, with its best trial and verdict at the top level."""
    known = search.verification
    answers: dict[str, Any] = {
        "best": None if search.best is None else search.best.model_dump(mode="json"),
        "verdict": verdict(search),
        "confirmed": None if known is None else known.confirmed,
    }
    console.write_json({**search.model_dump(mode="json"), **answers})


def _about(search: Search) -> str:
    """Return recipe, metric and the number of trials in each state."""
    counts = ", ".join(f"{search.count(state)} {state}" for state in get_args(State) if search.count(state))
    config = search.config
    steps = "" if config.steps is None else f", {config.steps} steps"
    scored = f"{search.metric}, {config.scored_by}{steps}"
    return f"{config.recipe} · {scored} · {len(search.trials)} trials: {counts}"


def _line(search: Search) -> list[str]:
    done = len(search.trials) - search.count("running") - search.count("interrupted")
    names = ", ".join(parameter.name for parameter in search.config.parameters)
    score = "" if search.best is None else f"{search.best.score:.2f}"
    gain = "" if search.gain is None else signed(search.gain)
    trials = f"{done}/{search.config.trials}"
    return [search.name, search.config.recipe, trials, score, gain, names, search.updated or ""]


def _findings(search: Search) -> Iterator[str]:
    best = search.best
    if best is not None and not best.own:
        gain = "" if search.gain is None else f" ({signed(search.gain)} compared with the recipe's values)"
        yield f"best: {', '.join(_pairs(best.values))}{gain}"
    if search.importance:
        shares = ", ".join(f"{name} {share:.2f}" for name, share in search.importance.items())
        yield f"importance: {shares} (share of the score's variance over {len(search.complete)} trials)"
    yield from _reasons(search)
    if best is not None:
        yield verdict(search)


def _reasons(search: Search) -> Iterator[str]:
    """Yield the reasons of failed and invalid trials."""
    for state in ("failed", "invalid"):
        reasons: dict[str, list[str]] = {}
        for trial in search.trials:
            if trial.state == state:
                reasons.setdefault(trial.reason or "unknown reason", []).append(str(trial.number))
        for reason, numbers in list(reasons.items())[:_SHOWN_REASONS]:
            noun = "trial" if len(numbers) == 1 else "trials"
            yield f"{state}: {noun} {', '.join(numbers)}: {reason}"


def _next_commands(search: Search, saved: Path | None) -> Iterator[str]:
    if search.best is None or search.best.own:
        return
    command = f"cse tune --best {search.name}"
    yield ""
    if search.best_verification is None:
        yield f"verify the gain:    {command} --verify-seeds 5"
    yield f"run the best:       cse run {saved}" if saved else f"save the best:      {command} --save-best FILE.toml"


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


def _pairs(values: dict[str, Value | None]) -> list[str]:
    return [f"{name} = {show_value(value)}" for name, value in values.items()]


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
        p = found.p_values[name]
        sides = [mean_text(over.first), mean_text(over.second)]
        texts = [*sides, signed(over.difference), limits, "" if p is None else p_value(p)]
        rows.append(Row(name, tuple(map(Cell, texts)), emphasis="main" if name == found.main else ""))
    return Table("", ("own", "found", "gain", "interval", "p"), tuple(rows))


def _print_table(out: Console, table: Table) -> None:
    """Print a table, in several parts if it is wider than the terminal."""
    for part in as_rich_parts(table, out.width, ruled=True):
        out.print(part)
