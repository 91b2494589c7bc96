"""`cse show`: all of one component, or of one recipe."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from cse_cli.completion import complete_anything

EPILOG = (
    "Examples:  cse show info_nce  ·  cse show ifcl_en  ·  cse show recipes/ifcl_en.toml --resolved  ·  "
    "cse show ifcl_en --resolved --set queue.length=512"
)


def add(app: typer.Typer) -> None:
    """Add the command."""
    app.command("show", epilog=EPILOG)(show)


def show(
    name: Annotated[str, typer.Argument(help="A component, or a recipe.", autocompletion=complete_anything)],
    resolved: Annotated[
        bool, typer.Option("--resolved", help="The recipe with everything inherited and every default written in.")
    ] = False,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Override: dotted.key=value, value as TOML.")] = None,
    unset: Annotated[list[str] | None, typer.Option("--unset", help="Take a dotted key out.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Show a component's equation, inputs and parameters, or a recipe's text."""
    from cse_cli.completion import remember
    from cse_cli.render.registry import print_component, write_json
    from cse_cli.showing import component_documents, recipe_document, recipe_text

    changed = bool(set_ or unset)
    components = [] if resolved or changed else component_documents(name)
    if components:
        if json_:
            write_json({"components": components})
        else:
            for about in components:
                print_component(about)
    elif json_:
        write_json(recipe_document(name, set_ or [], unset or []))
    else:
        sys.stdout.write(recipe_text(name, set_ or [], unset or [], resolved=resolved or changed))
    remember()
