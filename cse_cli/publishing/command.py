"""`cse push`: a run's model to a repository of the Hugging Face hub."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

EPILOG = "Examples:  cse push 3f2a me/simcse-bert  ·  cse push 3f2a me/x --private  ·  cse push 3f2a me/x --card"


def push(
    run: Annotated[str, typer.Argument(help="Run: the first characters of its id, or its name.")],
    repository: Annotated[str, typer.Argument(metavar="OWNER/NAME", help="Repository; made where there is none.")],
    private: Annotated[bool, typer.Option("--private", help="Make a new repository private.")] = False,
    card: Annotated[bool, typer.Option("--card", help="Print the model card, and send nothing.")] = False,
) -> None:
    """Send a run's model to the hub, with recipe, scores over all seeds and the command that repeats it."""
    from cse_cli.publishing.push import model_card, push_model

    if card:
        sys.stdout.write(model_card(run, repository))
        return
    sys.stdout.write(f"{push_model(run, repository, private=private)}\n")
