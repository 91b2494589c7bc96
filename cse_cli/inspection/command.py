"""`cse data inspect`: what a training text contains, before hours are spent on it."""

from __future__ import annotations

from typing import Annotated

import typer

from cse_cli.recipe.command import Set, Unset
from cse_cli.recipe.completion import complete_recipe

EPILOG = (
    "Examples:  cse data inspect sentences.txt  ·  cse data inspect wiki1m  ·  cse data inspect simcse_en --json  ·  "
    "cse data inspect pairs.tsv --set data.column=sentence"
)


def inspect(
    text: Annotated[
        str,
        typer.Argument(
            help="File, directory or glob, data set (NAME, NAME/SPLIT or hf:OWNER/NAME), or recipe.",
            autocompletion=complete_recipe,
        ),
    ],
    set_: Set = None,
    unset: Unset = None,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON document to stdout.")] = False,
) -> None:
    """Inspect a training text: lengths and what is cut, duplicates, near-duplicates, and evaluation sentences.

    A file or a data set is inspected with the settings of the recipe `quickstart`.
    """
    from cse_cli.core.console import Screen, write_json
    from cse_cli.inspection.inspect import inspect_text, print_inspection

    with Screen() as screen:
        document = inspect_text(text, set_ or [], unset or [], screen)
    if json_:
        write_json(document, 2)
    else:
        print_inspection(document)
