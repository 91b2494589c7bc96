"""`cse list`: what can be composed, the recipes that compose it, and the studies that vary them."""

from __future__ import annotations

from typing import Annotated

import typer

from cse_cli.completion import complete_kind

EPILOG = (
    "Examples:  cse list  ·  cse list losses  ·  cse list recipes  ·  cse list studies  ·  cse list augmenters --json"
)


def add(app: typer.Typer) -> None:
    """Add the command."""
    app.command("list", epilog=EPILOG)(list_)


def list_(
    kind: Annotated[
        str | None,
        typer.Argument(
            help="augmenters, encoders, evaluators, generators, heads, losses, queues, recipes, studies; else all.",
            autocompletion=complete_kind,
        ),
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """List registered components, recipes and studies."""
    from cse_cli.completion import remember
    from cse_cli.listing import listing
    from cse_cli.render.registry import print_components, print_recipes, print_studies, warn_of_plugins, write_json

    found = listing(kind)
    remember()
    warn_of_plugins(found.broken)
    if json_:
        write_json(found.document())
        return
    print_components(found.components)
    if found.recipes is not None:
        print_recipes(found.recipes)
    if found.studies is not None:
        print_studies(found.studies)
