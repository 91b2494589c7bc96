"""`cse list`: components, recipes and studies; of recipes, which run on this machine and what the others need."""

from __future__ import annotations

from typing import Annotated

import typer

from cse_cli.recipe.completion import complete_kind

EPILOG = (
    "Examples:  cse list  ·  cse list recipes  ·  cse list losses  ·  cse list studies  ·  cse list --all  ·  "
    "cse list augmenters --json"
)


def list_(
    kind: Annotated[
        str | None,
        typer.Argument(
            help="augmenters, encoders, evaluators, generators, heads, losses, queues, recipes, studies; else all.",
            autocompletion=complete_kind,
        ),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Every line in full: summaries, titles, papers' rows.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """List components, recipes and studies; `cse list recipes` says which run on this machine and what others need."""
    from cse_cli.core.console import write_json
    from cse_cli.listing import view
    from cse_cli.listing.inventory import listing

    found = listing(kind)
    view.warn_of_plugins(found.broken)
    if json_:
        write_json(found.document())
    elif kind is None and not all_:
        view.print_overview(found)
    else:
        view.print_listing(found, in_full=all_)
