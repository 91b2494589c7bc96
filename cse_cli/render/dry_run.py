"""What a run would do: devices, parts, shapes and one batch of each view."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cse_cli.job import Prepared
from registry.tokens import Tokens

Plan = dict[str, Any]
"""JSON-ready; its keys are those `plan` writes."""


def plan(prepared: Prepared) -> Plan:
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


def print_plan(made: Plan) -> None:
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


def write_plans(plans: Sequence[Plan]) -> None:
    """Write one JSON document with all plans."""
    document = {"schema_version": 1, "plans": plans}
    sys.stdout.write(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
