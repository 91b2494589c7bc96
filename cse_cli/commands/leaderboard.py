"""`cse leaderboard`: our finished runs beside the papers' rows."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from cse_cli.leaderboard import Found

EPILOG = (
    "Examples:  cse leaderboard  ·  cse leaderboard --table ifcl/5  ·  cse leaderboard --encoder bert-base --field"
    "  ·  cse leaderboard --recipe ifcl_en --format md  ·  cse leaderboard --html leaderboard.html"
)


class Format(StrEnum):
    """What is written to stdout."""

    TABLE = "table"
    MARKDOWN = "md"
    CSV = "csv"
    JSON = "json"
    LATEX = "latex"


def add(app: typer.Typer) -> None:
    """Add `cse leaderboard`."""
    app.command("leaderboard", epilog=EPILOG)(leaderboard)


def leaderboard(
    paper: Annotated[str | None, typer.Option(help="Only this paper's own tables, e.g. ifcl.")] = None,
    table: Annotated[
        str | None, typer.Option(help="Only this table, e.g. ifcl/5 or ifcl/queue_length; shown even without runs.")
    ] = None,
    encoder: Annotated[str | None, typer.Option(help="Only this encoder, e.g. bert-base or mini_en.")] = None,
    language: Annotated[str | None, typer.Option(help="Only this language, e.g. en.")] = None,
    recipe: Annotated[str | None, typer.Option(help="Only runs of this recipe: every configuration of it.")] = None,
    field: Annotated[bool, typer.Option("--field", help="The field's public leaderboard too.")] = False,
    output: Annotated[Format, typer.Option("--format", help="How it is written.")] = Format.TABLE,
    html: Annotated[Path | None, typer.Option(help="Write one self-contained page to this file instead.")] = None,
) -> None:
    """Show finished runs beside all that is known of their encoder: mean ± std over seeds, and what it means.

    Of each recipe the configuration with the best dev mean is shown; test scores choose nothing.
    """
    from cse_cli.leaderboard import Asked, blocks, check_names
    from cse_cli.render.leaderboard import FORMATS

    check_names(paper, table)
    asked = Asked(paper=paper, table=table, encoder=encoder, language=language, recipe=recipe, field=field)
    shown = blocks(_found(), asked)
    if html is not None:
        from cse_cli.board.page import write

        write(shown, html)
        sys.stderr.write(f"{html}: {len(shown)} table{'' if len(shown) == 1 else 's'}\n")
        return
    if not shown:
        wanted = "no finished run matches" if asked != Asked(field=field) else "no finished run yet"
        sys.stderr.write(
            f"{wanted}\n  → `cse run quickstart` makes one in about two minutes; `cse runs ls` lists all\n"
        )
    if shown or output in (Format.CSV, Format.JSON):
        sys.stdout.write(FORMATS[output](shown))


def _found() -> Found:
    """Return what has run, and which runs a study made."""
    from cse_cli.leaderboard import Found, standing
    from cse_cli.tracking import reader, tags

    results = reader.finished_results()
    runs = reader.list_names() if results else []
    return Found(results, {run.run_id: run.tags[tags.STUDY] for run in runs if tags.STUDY in run.tags}, standing)
