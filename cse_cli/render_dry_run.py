"""What a run would do: devices, parts, shapes and one batch of each view."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cse_cli.job import Prepared


def print_dry_run(prepared: Prepared) -> None:
    """Print the plan of a run on stdout."""
    console = Console(highlight=False, soft_wrap=True)
    recipe = prepared.job.loaded.recipe
    console.print(
        f"[bold]{escape(prepared.job.loaded.name)}[/bold] · {escape(recipe.title)} · seed {prepared.job.seed}"
    )
    console.print(f"device {escape(prepared.compute.describe())} · precision {prepared.compute.precision}")
    weights = sum(p.numel() for p in prepared.experiment.method.parameters())
    trained = sum(p.numel() for p in prepared.experiment.method.parameters() if p.requires_grad)
    console.print(
        f"{weights:,} weights, {trained:,} trained · {prepared.steps:,} steps of {recipe.train.batch_size} sentences"
    )
    if prepared.batches is None or prepared.text is None:
        return
    console.print(f"{prepared.text.rows:,} sentences · evaluators: {', '.join(recipe.evaluators)}")
    for name, tokens in prepared.batches.batch(0).items():
        view = recipe.views[name]
        vocabulary = prepared.experiment.plans[name].vocabulary
        table = Table(box=None, title=f"view {escape(name)} → encoder {escape(view.encoder)}", title_justify="left")
        table.add_column("what")
        table.add_column("value", overflow="fold")
        table.add_row("augment", escape(", ".join(part.name for part in view.augment)) or "–")
        table.add_row("ids", f"{tuple(tokens.ids.shape)}, {int(tokens.mask.sum()):,} real tokens")
        for column, side in tokens.side.items():
            table.add_row(f"side: {escape(column)}", f"{tuple(side.ids.shape)}, {int(side.mask.sum()):,} real tokens")
        table.add_row("first row", escape(" ".join(str(i) for i in tokens.ids[0][tokens.mask[0] == 1].tolist())))
        decode = getattr(vocabulary, "decode", None)
        if decode is not None:
            table.add_row("", escape(decode(tokens.ids[0][tokens.mask[0] == 1].tolist())))
        console.print(table)
