"""Finished runs as tables on stdout.

What a run would do: devices, parts, shapes and one batch of each view.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cse_cli.analysis.reproductions import told
from cse_cli.core.results import Result, Speed
from cse_cli.training.build import Prepared
from registry import EVALUATORS
from registry.tokens import Tokens


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


RunPlan = dict[str, Any]
"""JSON-ready; its keys are those `plan` writes."""


def plan_run(prepared: Prepared) -> RunPlan:
    """Return what a run would do, with the first batch."""
    recipe = prepared.job.loaded.recipe
    weights = list(prepared.experiment.method.parameters())
    batch = {} if prepared.batches is None else prepared.batches.batch(0)
    return {
        "recipe": prepared.job.loaded.name,
        "title": recipe.title,
        "seed": prepared.job.seed,
        "device": prepared.compute.describe(),
        "precision": prepared.compute.precision,
        "weights": sum(p.numel() for p in weights),
        "trained": sum(p.numel() for p in weights if p.requires_grad),
        "steps": prepared.steps,
        "batch_size": recipe.train.batch_size,
        "sentences": prepared.sentences,
        "evaluators": list(recipe.evaluators),
        "views": {name: _view(prepared, name, tokens) for name, tokens in batch.items()},
    }


def _view(prepared: Prepared, name: str, tokens: Tokens) -> dict[str, Any]:
    view = prepared.job.loaded.recipe.views[name]
    first = tokens.ids[0][tokens.mask[0] == 1].tolist()
    decode = getattr(prepared.experiment.plans[name].vocabulary, "decode", None)
    return {
        "encoder": view.encoder,
        "augment": [part.name for part in view.augment],
        **_size(tokens),
        "side": {column: _size(side) for column, side in tokens.side.items()},
        "first_row": first,
        "first_text": None if decode is None else decode(first),
    }


def _size(tokens: Tokens) -> dict[str, Any]:
    return {"shape": list(tokens.ids.shape), "real_tokens": int(tokens.mask.sum())}


def print_plan(made: RunPlan) -> None:
    """Print the plan of a run on stdout."""
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"[bold]{escape(made['recipe'])}[/bold] · {escape(made['title'])} · seed {made['seed']}")
    console.print(f"device {escape(made['device'])} · precision {made['precision']}")
    budget = f"{made['steps']:,} steps of {made['batch_size']} sentences" if made["steps"] else "no training"
    console.print(f"{made['weights']:,} weights, {made['trained']:,} trained · {budget}")
    console.print(f"{made['sentences']:,} sentences · evaluators: {', '.join(made['evaluators']) or '–'}")
    for name, view in made["views"].items():
        table = Table(box=None, title=f"view {escape(name)} → encoder {escape(view['encoder'])}", title_justify="left")
        table.add_column("what")
        table.add_column("value", overflow="fold")
        table.add_row("augment", escape(", ".join(view["augment"])) or "–")
        table.add_row("ids", _shown(view))
        for column, side in view["side"].items():
            table.add_row(f"side: {escape(column)}", _shown(side))
        table.add_row("first row", " ".join(map(str, view["first_row"])))
        if view["first_text"] is not None:
            table.add_row("", escape(view["first_text"]))
        console.print(table)


def _shown(size: dict[str, Any]) -> str:
    return f"{tuple(size['shape'])}, {size['real_tokens']:,} real tokens"


def write_plans(plans: Sequence[RunPlan]) -> None:
    """Write one JSON document with all plans."""
    document = {"schema_version": 1, "plans": plans}
    sys.stdout.write(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
