"""`cse report`: one page about a run or a study."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from cse_cli.completion import complete_recipe, complete_study

EPILOG = (
    "Examples:  cse report 3f2a  ·  cse report 3f2a --beside mini/simcse_en --output ifcl.md  ·  "
    "cse report studies/mini/ifcl_queue_length"
)


def add(app: typer.Typer) -> None:
    """Add the command."""
    app.command("report", epilog=EPILOG)(report)


def report(
    what: Annotated[
        str,
        typer.Argument(
            metavar="RUN|STUDY",
            help="Run: the first characters of its id, or its name. Study: name or file.",
            autocompletion=complete_study,
        ),
    ],
    output: Annotated[
        Path | None, typer.Option(help="FILE.html, or FILE.md with its figures in a folder beside it.")
    ] = None,
    beside: Annotated[
        str | None,
        typer.Option(help="Recipe or run to compare a run's recipe with.", autocompletion=complete_recipe),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite what is there.")] = False,
) -> None:
    """Write one page about a run or a study: recipe, environment, scores, curves, figures, how to run it again.

    Without --output it is report-ID.html in the working directory. The page loads nothing and can be sent to others.
    """
    from cse_cli.report.reporting import report as written

    sys.stdout.write(f"{written(what, output, beside, force=force)}\n")
