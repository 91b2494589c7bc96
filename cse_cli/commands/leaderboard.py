"""`cse leaderboard`: our finished runs beside the papers' rows."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer

EPILOG = (
    "Examples:  cse leaderboard  ·  cse leaderboard --table sts_en  ·  cse leaderboard --recipe ifcl_en --format md"
    "  ·  cse leaderboard --format csv > scores.csv"
)


class Format(StrEnum):
    """What is written to stdout."""

    TABLE = "table"
    MARKDOWN = "md"
    CSV = "csv"
    JSON = "json"


def add(app: typer.Typer) -> None:
    """Add `cse leaderboard`."""
    app.command("leaderboard", epilog=EPILOG)(leaderboard)


def leaderboard(
    paper: Annotated[str | None, typer.Option(help="Only this paper's tables, e.g. ifcl.")] = None,
    table: Annotated[str | None, typer.Option(help="Only this table, e.g. sts_en; shown even without runs.")] = None,
    recipe: Annotated[str | None, typer.Option(help="Only runs of this recipe.")] = None,
    language: Annotated[str | None, typer.Option(help="Only this language, e.g. en.")] = None,
    output: Annotated[Format, typer.Option("--format", help="How it is written.")] = Format.TABLE,
) -> None:
    """Show finished runs beside the papers' printed rows: mean ± std over seeds, and the difference."""
    from cse_cli.leaderboard import check_names, recipe_name, rows, standing
    from cse_cli.render_leaderboard import FORMATS
    from cse_cli.tracking.reader import finished_results

    check_names(paper, table)
    found = [
        result
        for result in finished_results()
        if language in (None, result.language) and (recipe is None or recipe_name(result.recipe) == recipe_name(recipe))
    ]
    lines = [row for row in rows(found, standing, paper, table) if language in (None, row.language)]
    if not lines:
        wanted = "no finished run matches" if paper or table or recipe or language else "no finished run yet"
        sys.stderr.write(
            f"{wanted}\n  → `cse run quickstart` makes one in about two minutes; `cse runs ls` lists all\n"
        )
    if lines or output in (Format.CSV, Format.JSON):
        sys.stdout.write(FORMATS[output](lines))
