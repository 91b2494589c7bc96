"""`cse data inspect`: what a training text contains, before hours are spent on it."""

from __future__ import annotations

from typing import Annotated

import typer

from cse_cli.recipe.completion import complete_recipe

SCHEMA_VERSION = 1
"""Version of the JSON document."""

EPILOG = (
    "Examples:  cse data inspect sentences.txt  ·  cse data inspect wiki1m  ·  cse data inspect simcse_en --json  ·  "
    "cse data inspect pairs.tsv --set data.column=sentence --set train.batch_size=256  ·  "
    "cse data inspect sentences.txt --model bert-base-uncased --figure text.png"
)


def inspect(
    text: Annotated[
        str,
        typer.Argument(
            help="File, directory or glob, data set (NAME, NAME/SPLIT or hf:OWNER/NAME), or recipe.",
            autocompletion=complete_recipe,
        ),
    ],
    model: Annotated[
        str | None, typer.Option(help="Model whose tokenizer counts tokens. Default: that of the recipe.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Override a value of the recipe, for a file or a data set of `quickstart`: dotted.key=value. "
            "Repeatable.",
        ),
    ] = None,
    figure: Annotated[str | None, typer.Option(help="Draw the facts to this .png or .svg file.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON document to stdout.")] = False,
) -> None:
    """Inspect a training text: lengths and what is cut, duplicates, language, evaluation sentences, hard negatives.

    A file or a data set is inspected with the settings of the recipe `quickstart`.
    """
    from cse_cli.core.console import Screen, write_json
    from cse_cli.inspection.alarms import alarms_of
    from cse_cli.inspection.facts import inspect_text
    from cse_cli.inspection.subject import open_subject
    from cse_cli.inspection.view import as_document, print_inspection

    if figure is not None:
        from cse_cli.inspection.figure import check_path

        check_path(figure)
    with Screen() as screen:
        subject = open_subject(text, set_ or (), model, screen.downloading)
        inspection = inspect_text(subject, screen.preparing)
    alarms = alarms_of(inspection, subject.recipe)
    if figure is not None:
        from cse_cli.inspection.figure import draw_inspection

        draw_inspection(inspection, figure)
    if json_:
        write_json(as_document(inspection, alarms), SCHEMA_VERSION)
    else:
        print_inspection(inspection, alarms)
