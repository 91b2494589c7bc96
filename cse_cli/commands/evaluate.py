"""`cse evaluate`: score any encoder on any of the tasks."""

from __future__ import annotations

from typing import Annotated

import typer

EPILOG = (
    "Examples:  cse evaluate mini_en --pooling mean  ·  cse evaluate 3f2a --tasks stsb,sickr/all  ·  "
    "cse evaluate sentence-transformers/all-MiniLM-L6-v2 --json"
)


def add(app: typer.Typer) -> None:
    """Add the command."""
    app.command("evaluate", epilog=EPILOG)(evaluate)


def evaluate(
    models: Annotated[list[str], typer.Argument(help="Directories, names under $CSE_MODELS, hub ids, or run ids.")],
    tasks: Annotated[
        str, typer.Option(help="sts (the seven English sets), or data sets: stsb,sickr/all,cstsb/dev.")
    ] = "sts",
    pooling: Annotated[
        str | None, typer.Option(help="cls, mean, last2 or first_last; default: what the model says.")
    ] = None,
    max_length: Annotated[int | None, typer.Option(min=3, help="Tokens a sentence is cut to.")] = None,
    batch_tokens: Annotated[
        int | None, typer.Option(min=1, help="Most tokens an encoding batch; default: what suits the device.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    json_: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Score encoders as the papers do: Spearman × 100 of the cosine, subsets concatenated."""
    from cse_cli.render_evaluate import print_scores, write_json
    from cse_cli.scoring import Request, score_models

    scored = score_models(models, Request(tasks, pooling, max_length, batch_tokens, device))
    (write_json if json_ else print_scores)(scored)
