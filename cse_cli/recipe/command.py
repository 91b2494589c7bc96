"""`cse show`, `cse cp` and `cse schema`: what recipes are made of, copies to start from, a JSON Schema for editors."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from cse_cli.recipe.completion import complete_anything, complete_recipe

SHOW_EPILOG = (
    "Examples:  cse show info_nce  ·  cse show ifcl_en  ·  cse show stsb_open  ·  "
    "cse show recipes/ifcl_en.toml --resolved  ·  cse show ifcl_en --resolved --set queue.length=512"
)


def show(
    name: Annotated[
        str, typer.Argument(help="A component, a recipe, or a data set.", autocompletion=complete_anything)
    ],
    resolved: Annotated[
        bool, typer.Option("--resolved", help="The recipe with everything inherited and every default written in.")
    ] = False,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Override: dotted.key=value, value as TOML.")] = None,
    unset: Annotated[list[str] | None, typer.Option("--unset", help="Take a dotted key out.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Show a component's equation, inputs and parameters, a recipe's text, or a data set's licence and splits."""
    from cse_cli.core.console import write_json
    from cse_cli.recipe.show import component_documents, dataset_document, recipe_document, recipe_text
    from cse_cli.recipe.view import print_component, print_dataset

    changed = bool(set_ or unset)
    components = [] if resolved or changed else component_documents(name)
    if components:
        if json_:
            write_json({"components": components})
        else:
            for about in components:
                print_component(about)
    elif (dataset := dataset_document(name)) is not None:
        if json_:
            write_json({"dataset": dataset})
        else:
            print_dataset(dataset)
    elif json_:
        write_json(recipe_document(name, set_ or [], unset or []))
    else:
        sys.stdout.write(recipe_text(name, set_ or [], unset or [], resolved=resolved or changed))


COPY_EPILOG = (
    "Examples:  cse cp quickstart my.toml  ·  cse cp ifcl_en my_ifcl.toml, then cse check my_ifcl.toml, "
    "cse run my_ifcl.toml"
)


def copy(
    recipe: Annotated[str, typer.Argument(help="A recipe's name or path.", autocompletion=complete_recipe)],
    target: Annotated[Path, typer.Argument(help="File to write, a .toml; must not exist yet.")],
) -> None:
    """Write a recipe to a file of your own, to be changed: its text, or, where it inherits, all that it comes to."""
    from cse_cli.recipe.copies import write_copy

    write_copy(recipe, target)
    sys.stderr.write(f"next: change it, then  cse check {target}  and  cse run {target}\n")
    sys.stdout.write(f"{target}\n")


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
