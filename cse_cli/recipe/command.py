"""`cse list`, `cse show` and `cse schema`: components, recipes and studies, and their JSON Schema for editors."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from cse_cli.recipe.completion import complete_anything, complete_kind

LIST_EPILOG = (
    "Examples:  cse list  ·  cse list losses  ·  cse list recipes  ·  cse list studies  ·  cse list augmenters --json"
)


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
    from cse_cli.core.console import write_json
    from cse_cli.recipe.describe import listing
    from cse_cli.recipe.view import print_components, print_recipes, print_studies, warn_of_plugins

    found = listing(kind)
    warn_of_plugins(found.broken)
    if json_:
        write_json(found.document())
        return
    print_components(found.components)
    if found.recipes is not None:
        print_recipes(found.recipes)
    if found.studies is not None:
        print_studies(found.studies)


SHOW_EPILOG = (
    "Examples:  cse show info_nce  ·  cse show ifcl_en  ·  cse show recipes/ifcl_en.toml --resolved  ·  "
    "cse show ifcl_en --resolved --set queue.length=512"
)


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
    from cse_cli.core.console import write_json
    from cse_cli.recipe.describe import component_documents, recipe_document, recipe_text
    from cse_cli.recipe.view import print_component

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


SCHEMA_EPILOG = (
    "Examples:  cse schema --output recipe.schema.json  ·  then put `#:schema ./recipe.schema.json` on a recipe's "
    "first line: editors with taplo or tombi complete and check it"
)


def schema(
    output: Annotated[Path | None, typer.Option(help="File to write instead of stdout.")] = None,
) -> None:
    """Write the JSON Schema of recipe files, made from the registered components."""
    import json

    from cse_cli.recipe.json_schema import json_schema
    from registry.errors import CseError

    text = json.dumps(json_schema(), ensure_ascii=False, indent=2) + "\n"
    if output is None:
        sys.stdout.write(text)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        message = f"cannot write '{output}': {error.strerror}"
        raise CseError(message, "choose a folder that exists and is yours") from None
