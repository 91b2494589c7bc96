"""Scores of models side by side, on stdout."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cse_cli.scoring import Scored


def print_scores(scored: Sequence[Scored]) -> None:
    """Print a row a model: Spearman × 100 of each task, and their mean where there are several."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 400
    tasks = list(scored[0].scores)
    table = Table(box=None, pad_edge=False)
    table.add_column("model", overflow="fold")
    for heading in (*tasks, *(["avg"] if len(tasks) > 1 else []), "pooling", "seconds"):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in scored:
        values = [round(one.scores[task]["spearman"], 2) for task in tasks]
        mean = [f"{sum(values) / len(values):.2f}"] if len(tasks) > 1 else []
        table.add_row(escape(one.model), *(f"{v:.2f}" for v in values), *mean, one.pooling, f"{one.seconds:.1f}")
    console.print(table)


def write_json(scored: Sequence[Scored]) -> None:
    """Write one JSON document with every metric and setting."""
    document = {"schema_version": 1, "models": [asdict(one) for one in scored]}
    sys.stdout.write(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
