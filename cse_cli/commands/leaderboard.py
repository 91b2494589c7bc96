"""`cse leaderboard`: our finished runs beside the papers' rows."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer

_EPILOG = """Examples:\n
  cse leaderboard\n
  cse leaderboard --table sts_en\n
  cse leaderboard --recipe ifcl_en --format md\n
  cse leaderboard --format csv > scores.csv
"""


class Format(StrEnum):
    """What is written to stdout."""

    TABLE = "table"
    MARKDOWN = "md"
    CSV = "csv"
    JSON = "json"


def add(app: typer.Typer) -> None:
    """Add the command to the app."""

    @app.command(epilog=_EPILOG)
    def leaderboard(
        paper: Annotated[str | None, typer.Option(help="Only this paper's tables, e.g. ifcl.")] = None,
        table: Annotated[
            str | None, typer.Option(help="Only this table, e.g. sts_en; shown even without runs.")
        ] = None,
        recipe: Annotated[str | None, typer.Option(help="Only runs of this recipe.")] = None,
        language: Annotated[str | None, typer.Option(help="Only this language, e.g. en.")] = None,
        output: Annotated[Format, typer.Option("--format", help="How it is written.")] = Format.TABLE,
    ) -> None:
        """Show finished runs beside the papers' printed rows: mean ± std over seeds, and the difference."""
        from functools import cache

        from cse_cli.leaderboard import check_names, rows, standing
        from cse_cli.render_leaderboard import FORMATS
        from cse_cli.tracking.reader import finished_results

        check_names(paper, table)
        found = [
            result
            for result in finished_results()
            if (language is None or result.language == language) and (recipe is None or _same(result.recipe, recipe))
        ]
        lines = [row for row in rows(found, cache(standing), paper, table) if language in (None, row.language)]
        if not lines:
            wanted = "no finished run matches" if (paper or table or recipe or language) else "no finished run yet"
            sys.stderr.write(
                f"{wanted}\n  → `cse run quickstart` makes one in about two minutes; `cse runs ls` lists all\n"
            )
            if output in (Format.TABLE, Format.MARKDOWN):
                return
        sys.stdout.write(FORMATS[output](lines))


def _same(asked: str, wanted: str) -> bool:
    from cse_cli.leaderboard import recipe_name

    return recipe_name(asked) == recipe_name(wanted)
