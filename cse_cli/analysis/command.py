"""`cse leaderboard`, `cse compare` and `cse report`."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cse_cli.core.formatting import counted
from cse_cli.recipe.completion import complete_recipe, complete_study

if TYPE_CHECKING:
    from cse_cli.analysis.leaderboard import LeaderboardQuery

LEADERBOARD_EPILOG = (
    "Examples:  cse leaderboard  ·  cse leaderboard --table ifcl/5  ·  cse leaderboard --encoder bert-base --field"
    "  ·  cse leaderboard --recipe ifcl_en --format md  ·  cse leaderboard --html leaderboard.html"
)


class Pool(StrEnum):
    """What makes runs the seeds of one row."""

    EXPERIMENT = "experiment"
    SETTINGS = "settings"


class Format(StrEnum):
    """What is written to stdout."""

    TABLE = "table"
    MARKDOWN = "md"
    CSV = "csv"
    JSON = "json"
    LATEX = "latex"


def leaderboard(
    paper: Annotated[str | None, typer.Option(help="Only this paper's own tables, e.g. ifcl.")] = None,
    table: Annotated[
        str | None, typer.Option(help="Only this table, e.g. ifcl/5 or ifcl/queue_length; shown even without runs.")
    ] = None,
    encoder: Annotated[str | None, typer.Option(help="Only this encoder, e.g. bert-base or mini_en.")] = None,
    language: Annotated[str | None, typer.Option(help="Only this language, e.g. en.")] = None,
    recipe: Annotated[str | None, typer.Option(help="Only runs of this recipe: every configuration of it.")] = None,
    field: Annotated[bool, typer.Option("--field", help="The field's public list, and what answers each row.")] = False,
    pool: Annotated[
        Pool, typer.Option(help="Merge runs with equal settings, also if text, weights or code differ: settings.")
    ] = Pool.EXPERIMENT,
    output: Annotated[Format, typer.Option("--format", help="How it is written.")] = Format.TABLE,
    html: Annotated[Path | None, typer.Option(help="Write one self-contained page to this file instead.")] = None,
) -> None:
    """Show finished runs beside all that is known of their encoder: mean ± std over seeds, and what it means.

    Of each recipe the configuration with the best dev mean is shown; test scores choose nothing. Without a finished run
    it shows what the papers print, and the commands that put ours beside it.
    """
    from cse_cli.analysis.leaderboard import LeaderboardQuery, find_tables

    find_tables(paper, table)  # unknown names are reported before the runs are read
    query = LeaderboardQuery(paper, table, encoder, language, recipe, field, pool is Pool.SETTINGS)
    with _uncollected():
        _write_leaderboard(query, output, html)


def _write_leaderboard(query: LeaderboardQuery, output: Format, html: Path | None) -> None:
    from cse_cli.analysis.leaderboard import read_finished_runs, score_tables
    from cse_cli.analysis.leaderboard_view import WRITERS, print_tables, write_page

    runs = read_finished_runs()
    tables = score_tables(runs, query)
    if html is not None:
        write_page(tables, html)
        sys.stderr.write(f"{html}: {counted(len(tables), 'table')}\n")
        return
    if output in WRITERS:
        sys.stdout.write(WRITERS[output](tables) if tables or output in (Format.CSV, Format.JSON) else "")
    elif tables:
        print_tables(tables)
    if not any(row.source == "ours" and row.scores for table in tables for row in table.rows):
        which = "no finished run matches" if runs.results else "no finished run yet"
        shown = ": these are the papers' own numbers" if tables else ""
        sys.stdout.flush()
        sys.stderr.write(f"{which}{shown}\n  → `cse run quickstart` makes one in about two minutes\n")


@contextmanager
def _uncollected() -> Iterator[None]:
    """Look for no unused memory while thousands of results are read: nothing is unused, and it takes a fifth longer."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


COMPARE_EPILOG = (
    "Examples:  cse compare mini/simcse_en mini/ifcl_en  ·  cse compare 3f2a 81c0 --metric stsb  ·  "
    "cse compare mini/simcse_en mini/ifcl_en mini/mocose_en --pairwise  ·  cse compare simcse_en@1 ifcl_en@1 --json"
)


def compare(
    runs: Annotated[
        list[str],
        typer.Argument(
            help="Two or more: recipes (all their finished runs), recipe@seed, or run ids.",
            autocompletion=complete_recipe,
        ),
    ],
    metric: Annotated[
        list[str] | None,
        typer.Option(help="Only this: evaluator.metric, evaluator, or avg; may be repeated. Default: main metrics."),
    ] = None,
    bootstrap: Annotated[int, typer.Option(min=100, help="Resamples of the sentence pairs.")] = 2000,
    pairwise: Annotated[bool, typer.Option("--pairwise", help="Every two, instead of each with the first.")] = False,
    planned: Annotated[
        int | None,
        typer.Option(
            min=2,
            help="Seeds that you planned before the first run, if that is not recorded. Default: the recorded plan.",
        ),
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Compare methods: what differs in their recipes, over the same seeds, and on the same sentence pairs."""
    from cse_cli.analysis import compare as comparison
    from cse_cli.analysis.compare_view import print_comparison
    from cse_cli.analysis.runs import find_methods
    from cse_cli.core.console import write_json
    from cse_cli.runs.index import finished_results

    methods = find_methods(runs, finished_results())
    document = comparison.compare(methods, metric or (), bootstrap, pairwise=pairwise, planned=planned)
    if json_:
        write_json(document.model_dump(mode="json"))
    else:
        print_comparison(document)


REPORT_EPILOG = (
    "Examples:  cse report 3f2a  ·  cse report 3f2a --beside mini/simcse_en --output ifcl.md  ·  "
    "cse report studies/mini/ifcl_queue_length"
)


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
    from cse_cli.analysis.report import write_report

    sys.stdout.write(f"{write_report(what, output, beside, force=force)}\n")
