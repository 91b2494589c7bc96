"""`cse push`: upload of a run's model to the Hugging Face Hub."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from cse_cli.cli.options import AsJson

EPILOG = "Examples:  cse push 3f2a me/simcse-bert  ·  cse push 3f2a me/x --private  ·  cse push 3f2a me/x --dry-run"


def push(
    run: Annotated[str, typer.Argument(help="Run: prefix of its ID, or its name.")],
    repository: Annotated[str, typer.Argument(metavar="OWNER/NAME", help="Repository. Created if it does not exist.")],
    private: Annotated[bool, typer.Option("--private", help="Make a new repository private.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the model card without an upload.")] = False,
    json_: AsJson = False,
) -> None:
    """Upload a run's model to the Hugging Face Hub, with its recipe, the scores of all seeds, and a model card."""
    from cse_cli.core.console import write_json
    from cse_cli.push import model_card, push_model

    key = "card" if dry_run else "address"
    made = model_card(run, repository) if dry_run else f"{push_model(run, repository, private=private)}\n"
    if json_:
        write_json({key: made.removesuffix("\n")})
    else:
        sys.stdout.write(made)
