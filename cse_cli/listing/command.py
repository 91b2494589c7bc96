"""`cse list`: components, recipes and studies."""

from __future__ import annotations

from typing import Annotated

import typer

from cse_cli.recipe.completion import complete_kind

EPILOG = (
    "Examples:  cse list  ·  cse list recipes  ·  cse list recipes --all  ·  cse list losses  ·  cse list studies  ·  "
    "cse list augmenters --json"
)


def list_(
    kind: Annotated[
        str | None,
        typer.Argument(
            help="augmenters, encoders, evaluators, generators, heads, losses, queues, recipes, studies. Default: all.",
            autocompletion=complete_kind,
        ),
    ] = None,
    all_: Annotated[
        bool,
        typer.Option("--all", help="Load every recipe. Print what it needs, the row that it reproduces, and checks."),
    ] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """List components, recipes and studies. With --all, list what each recipe needs to run on this machine."""
    from cse_cli.core.console import write_json
    from cse_cli.listing import view
    from cse_cli.listing.inventory import listing, overview

    found = overview() if kind is None and not all_ and not json_ else listing(kind, in_full=all_)
    view.warn_of_plugins(found.broken)
    if json_:
        write_json(found.document())
    elif kind is None and not all_:
        view.print_overview(found)
    else:
        view.print_listing(found, in_full=all_)
