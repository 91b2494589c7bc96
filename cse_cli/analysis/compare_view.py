"""A comparison as tables and sentences on stdout, or as JSON."""

from __future__ import annotations

import io
import json
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from cse_cli.analysis.compare import Change, Comparison, Document, MetricDocument
from cse_cli.core.stats import LEVEL, MOST_SEEDS, Paired

_NARROW = 110
_SHORT = 65
_UNSET = "—"


def print_comparison(document: Document) -> None:
    """Write tables for a terminal; plain, wide and unwrapped where stdout is none."""
    terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if terminal else 10_000
    text = io.StringIO()
    console = Console(file=text, force_terminal=terminal, width=width, highlight=False)
    _print_sides(console, document)
    _print_changes(console, document)
    for comparison in document.comparisons:
        _print_comparison(console, document, comparison)
    _print_legend(console, document)
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in text.getvalue().removesuffix("\n").split("\n")))


def write_json(document: Document) -> None:
    """Write the same as one JSON document, with every seed and every test."""
    plain = document.model_dump(mode="json")
    sys.stdout.write(json.dumps(plain, ensure_ascii=False, indent=1, allow_nan=False) + "\n")


def _print_sides(console: Console, document: Document) -> None:
    for side in document.sides:
        runs = "1 run" if len(side.seeds) == 1 else f"{len(side.seeds)} runs"
        about = f"{side.name}: {runs}, {_seeds(side.seeds)}, {side.model}, hash {side.recipe_hash[:8]}"
        console.print(f"[bold]{side.letter}[/bold]  {escape(about)}")
    for note in document.notes:
        console.print(escape(f"   {note}"))


def _print_changes(console: Console, document: Document) -> None:
    console.print("\n[bold]What differs in the recipes[/bold]\n")
    if document.changes is None:
        console.print("not known: a recipe cannot be read")
    elif not document.changes:
        console.print("nothing but seed and prose")
    else:
        _print_values(console, document, document.changes)
    if document.circumstances:
        console.print("\n[bold]And in how they ran[/bold]\n")
        _print_values(console, document, document.circumstances)


def _print_values(console: Console, document: Document, changes: Sequence[Change]) -> None:
    """Print a line a key, or one for each of its values where these are long; letters with the same value together."""
    for change in changes:
        letters: dict[str, list[str]] = {}
        for side, value in zip(document.sides, change.values, strict=True):
            letters.setdefault(_value(value), []).append(side.letter)
        parts = [f"[bold]{' '.join(known)}[/bold] {escape(value)}" for value, known in letters.items()]
        long = len(change.key) + sum(map(len, letters)) > _SHORT
        console.print(f"{escape(change.key)}:" + "".join(f"\n    {part}" if long else f"  {part}" for part in parts))


def _value(value: Any, inside: bool = False) -> str:
    """Return a value as TOML writes it, roughly: quotes and outer braces are left out."""
    if value is None:
        return _UNSET
    if isinstance(value, Mapping):
        text = ", ".join(f"{key} = {_value(inner, True)}" for key, inner in value.items())
        return f"{{{text}}}" if inside else text
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_value(inner, True) for inner in value)}]"
    return value if isinstance(value, str) else json.dumps(value)


def _print_comparison(console: Console, document: Document, comparison: Comparison) -> None:
    sides = {side.letter: side.name for side in document.sides}
    first, second = comparison.first, comparison.second
    about = f"{sides[second]} against {sides[first]}, {_seeds(comparison.seeds)}"
    console.print(f"\n[bold]{second} against {first}[/bold]: {escape(about)}")
    for letter, others in comparison.left_out.items():
        console.print(f"   left out, as the other has none: {_seeds(others)} of {letter}")
    console.print()
    console.print(_seeds_table(comparison, narrow=console.width < _NARROW))
    if any(one.on_pairs for one in comparison.metrics):
        console.print("\n[bold]On the same sentence pairs[/bold]\n")
        console.print(_pairs_table(comparison))
    for reason, metrics in _reasons(comparison.metrics).items():
        console.print(escape(f"no comparison of sentence pairs for {', '.join(metrics)}: {reason}"))
    console.print("\n[bold]In words[/bold]\n")
    widest = max(len(one.metric) for one in comparison.metrics)
    words = RichTable.grid(padding=(0, 2))
    words.add_column(no_wrap=True, width=widest)
    words.add_column(overflow="fold")
    for one in comparison.metrics:
        words.add_row(escape(one.metric), escape(one.verdict))
    console.print(words)


def _seeds_table(comparison: Comparison, *, narrow: bool) -> RichTable:
    """Return a line a metric; a narrow one is without the spread of each side and without the effect size."""
    table = _table(tight=narrow)
    table.add_column("", overflow="fold")
    gap = f"{comparison.second} − {comparison.first}"
    effect = () if narrow else ("d",)
    for heading in (comparison.first, comparison.second, gap, "95 % interval", "p", "Wilcoxon", *effect, "needed"):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in comparison.metrics:
        seeds = one.over_seeds
        scores = [_mean(values, spread=not narrow) for values in (seeds.first, seeds.second)]
        interval = _interval(seeds.low, seeds.high)
        tests = [interval.replace(" ", "") if narrow else interval, _p(seeds.p_adjusted), _p(seeds.wilcoxon_p)]
        if not narrow:
            tests.append(_signed(seeds.effect_size))
        style = "green" if one.finding == "different" else None
        table.add_row(escape(one.metric), *scores, _signed(seeds.difference), *tests, _needed(seeds), style=style)
    return table


def _pairs_table(comparison: Comparison) -> RichTable:
    table = _table(tight=True)
    table.add_column("", overflow="fold")
    for heading in ("pairs", f"{comparison.second} − {comparison.first}", "95 % bootstrap", "p", "Williams", "Steiger"):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in comparison.metrics:
        if (pairs := one.on_pairs) is not None:
            williams = _rejected([seed.williams_p for seed in pairs.of_seeds])
            steiger = _rejected([seed.steiger_p for seed in pairs.of_seeds])
            interval = _interval(pairs.low, pairs.high)
            cells = (f"{pairs.pairs:,}", _signed(pairs.difference), interval, _p(pairs.p_adjusted), williams, steiger)
            table.add_row(escape(one.metric), *cells)
    return table


def _rejected(values: Sequence[float | None]) -> str:
    """Return the p of a single seed, or how many of several seeds' tests reject equality."""
    known = [p for p in values if p is not None]
    if not known:
        return _UNSET
    return _p(known[0]) if len(known) == 1 else f"{sum(p < LEVEL for p in known)} of {len(known)}"


def _print_legend(console: Console, document: Document) -> None:
    console.print()
    effect = "" if console.width < _NARROW else "d: Cohen's d_z; "
    lines = [
        f"p: paired t-test over seeds, two-sided; {effect}needed: seeds to see a difference of this size in 80 % of "
        "tries at 5 %, a rough estimate: it takes the difference and the spread of these few seeds for the true ones"
    ]
    if document.corrected_for > 1:
        lines.append("p is corrected by Holm's procedure for the comparisons of each metric; intervals are not")
    if (tested := max(len(comparison.metrics) for comparison in document.comparisons)) > 1:
        lines.append(f"{tested} metrics are tested, each at 5 %: of equal methods one metric in twenty seems different")
    smallest = {len(c.seeds): 2.0 ** (1 - len(c.seeds)) for c in document.comparisons if 1 < len(c.seeds) < 6}
    lines += [f"Wilcoxon: signed-rank test; {n} seeds cannot give less than p = {p:.4g}" for n, p in smallest.items()]
    if any(one.on_pairs for comparison in document.comparisons for one in comparison.metrics):
        lines.append(
            f"bootstrap: {document.resamples:,} resamples of the pairs, the trained models fixed, mean over seeds; "
            "Williams, Steiger: p, or seeds with p < 0.05"
        )
    for line in lines:
        console.print(escape(line), style="dim")


def _reasons(metrics: Iterable[MetricDocument]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for one in metrics:
        if one.pairs_note:
            found.setdefault(one.pairs_note, []).append(one.metric)
    return found


def _table(*, tight: bool = False) -> RichTable:
    return RichTable(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0) if tight else (0, 1))


def _mean(values: Sequence[float], *, spread: bool) -> str:
    mean = f"{fmean(values):.2f}"
    return f"{mean} ± {stdev(values):.2f}" if spread and len(values) > 1 else mean


def _signed(value: float | None) -> str:
    return _UNSET if value is None else f"{value:+.2f}".replace("-", "−")


def _interval(low: float | None, high: float | None) -> str:
    return _UNSET if low is None or high is None else f"{_signed(low)} … {_signed(high)}"


def _p(p: float | None) -> str:
    return _UNSET if p is None else "<0.001" if p < 0.001 else f"{p:.3f}"


def _needed(seeds: Paired) -> str:
    n = seeds.seeds_needed
    return _UNSET if n is None else f">{MOST_SEEDS:,}" if n > MOST_SEEDS else f"{n:,}"


def _seeds(seeds: Sequence[int]) -> str:
    """Return "seed 3", "seeds 0–4" for neighbours, else all of them."""
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    together = len(seeds) > 2 and list(seeds) == list(range(seeds[0], seeds[-1] + 1))
    return f"seeds {seeds[0]}–{seeds[-1]}" if together else f"seeds {', '.join(map(str, seeds))}"
