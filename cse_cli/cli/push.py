"""`cse push`: upload of a run's model to the Hugging Face Hub."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

EPILOG = "Examples:  cse push 3f2a me/simcse-bert  ·  cse push 3f2a me/x --private  ·  cse push 3f2a me/x --dry-run"


def push(
    run: Annotated[str, typer.Argument(help="Run: prefix of its ID, or its name.")],
    repository: Annotated[str, typer.Argument(metavar="OWNER/NAME", help="Repository. Created if it does not exist.")],
    private: Annotated[bool, typer.Option("--private", help="Make a new repository private.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the model card without an upload.")] = False,
) -> None:
    """Upload a run's model to the Hugging Face Hub, with its recipe, the scores of all seeds, and a model card."""
    from cse_cli.push import model_card, push_model

    if dry_run:
        sys.stdout.write(model_card(run, repository))
        return
    sys.stdout.write(f"{push_model(run, repository, private=private)}\n")
