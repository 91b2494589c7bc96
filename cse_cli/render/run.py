"""Finished runs as tables on stdout."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cse_cli.distribution import told
from cse_cli.results import Result, Speed
from registry.kinds import EVALUATORS


def headline(scores: Mapping[str, Mapping[str, float]], metrics: Mapping[str, str]) -> dict[str, float]:
    """Return evaluator → the one metric its table shows."""
    return {name: values[metrics[name]] for name, values in scores.items()}


def print_results(results: Sequence[Result], metrics: Mapping[str, Mapping[str, str]]) -> None:
    """Print one table a recipe: a row a seed, the untrained encoder above, mean ± std below, what others got last.

    Args:
        results: In the order they ran.
        metrics: Recipe hash → evaluator → metric shown; runs of one hash stand in one table.
    """
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 400
    for recipe in dict.fromkeys(result.recipe_hash for result in results):
        runs = [result for result in results if result.recipe_hash == recipe]
        console.print(f"[bold]{escape(runs[0].recipe)}[/bold] · {escape(runs[0].title)}", soft_wrap=True)
        console.print(_table(runs, metrics[recipe]))
        for line in (*told(runs), *speed_line(runs)):
            console.print(escape(line), soft_wrap=True)
        console.print()


def _table(runs: Sequence[Result], shown: Mapping[str, str]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("", *shown, "step", "seconds"):
        table.add_column(heading, justify="left" if heading == "" else "right", no_wrap=True)
    if runs[0].untrained:
        base = headline(runs[0].untrained, shown)
        table.add_row("untrained", *(f"{base[n]:.2f}" if n in base else "" for n in shown), "", "")
    for run in runs:
        values = headline(run.scores, shown)
        kept = "" if run.selected_step is None else str(run.selected_step)
        label = f"seed {run.seed}" + (" (test-selected)" if run.test_selected else "")
        table.add_row(label, *(f"{values[n]:.2f}" for n in shown), kept, f"{run.seconds:.0f}")
    if len(runs) > 1:
        columns = [[headline(run.scores, shown)[n] for run in runs] for n in shown]
        table.add_row("mean ± std", *(f"{statistics.mean(c):.2f} ± {statistics.stdev(c):.2f}" for c in columns), "", "")
    for line in _learned(runs, shown):
        table.add_row(*line)
    return table


def _learned(runs: Sequence[Result], shown: Mapping[str, str]) -> list[list[str]]:
    """Return the row of differences to the untrained encoder, where it was scored."""
    if not runs[0].untrained:
        return []
    cells = []
    for name, metric in shown.items():
        gains = [r.scores[name][metric] - r.untrained[name][metric] for r in runs if name in r.untrained]
        spread = f" ± {statistics.stdev(gains):.2f}" if len(gains) > 1 else ""
        cells.append(f"{statistics.mean(gains):+.2f}{spread}" if gains else "")
    return [["gain", *cells, "", ""]]


def speed_line(runs: Sequence[Result]) -> list[str]:
    """Return where the time of a recipe's runs went, in one line; nothing where nothing was trained."""
    speeds = [run.speed for run in runs if run.speed is not None]
    if not speeds:
        return []
    rates = [run.sentences_per_second for run in runs if run.sentences_per_second]
    tokens = [speed.tokens_per_second for speed in speeds if speed.tokens_per_second]
    used = [speed.model_flop_utilisation for speed in speeds if speed.model_flop_utilisation]
    told = [
        *([f"{statistics.mean(rates):,.0f} sentences/s"] if rates else []),
        *([f"{statistics.mean(tokens):,.0f} tokens/s"] if tokens else []),
        *([f"{statistics.mean(used):.0%} of the device's peak"] if used else []),
        *_shares(speeds),
        f"peak {max(speed.peak_memory for speed in speeds) / 1e9:.1f} GB",
    ]
    return [f"speed: {', '.join(told)}"]


def _shares(speeds: Sequence[Speed]) -> list[str]:
    """Return each part's share of the time; parts below half a percent are left out."""
    total = sum(sum(speed.seconds.values()) for speed in speeds)
    shares = {part: sum(speed.seconds.get(part, 0.0) for speed in speeds) / (total or 1) for part in speeds[0].seconds}
    return [f"{part} {share:.0%}" for part, share in shares.items() if share >= 0.005]


def shown_metrics(names: Mapping[str, str]) -> dict[str, str]:
    """Return evaluator key → the metric its component declares as the one to show.

    Args:
        names: Evaluator key → registered name.
    """
    return {key: EVALUATORS[name].cls.metric for key, name in names.items()}


def write_json(results: Sequence[Result]) -> None:
    """Write one JSON document with all results."""
    document = {"schema_version": 1, "results": [result.model_dump(mode="json") for result in results]}
    sys.stdout.write(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
