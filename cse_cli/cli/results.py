"""`cse leaderboard`, `cse compare` and `cse report`."""

from __future__ import annotations

import gc
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cse_cli.cli.options import AsJson, Plugin
from cse_cli.core.formatting import counted
from cse_cli.recipe.completion import complete_recipe, complete_recipe_or_study

ELSEWHERE = (
    "a CSV file (method,seed,task,score), or a folder or NAME=FOLDERS with one folder per seed that contains mteb's "
    "results or the CSV files of sentence-transformers' evaluators."
)
LEADERBOARD_EPILOG = (
    "Examples:  cse leaderboard  ·  cse leaderboard --table ifcl/5  ·  cse leaderboard --encoder bert-base --community"
    "  ·  cse leaderboard --recipe ifcl_en --format md  ·  cse leaderboard --html leaderboard.html"
)


class Pool(StrEnum):
    """Condition under which runs are the seeds of one row."""

    EXPERIMENT = "experiment"
    SETTINGS = "settings"


class Format(StrEnum):
    """Output format of a table of scores."""

    TABLE = "table"
    MARKDOWN = "md"
    CSV = "csv"
    JSON = "json"
    LATEX = "latex"


def leaderboard(
    paper: Annotated[str | None, typer.Option(help="Show only the tables of this paper, e.g. ifcl.")] = None,
    table: Annotated[
        str | None, typer.Option(help="Show only this table, also without runs, e.g. ifcl/5 or ifcl/queue_length.")
    ] = None,
    encoder: Annotated[str | None, typer.Option(help="Show only this encoder, e.g. bert-base or mini_en.")] = None,
    language: Annotated[str | None, typer.Option(help="Show only this language, e.g. en.")] = None,
    recipe: Annotated[
        list[str] | None, typer.Option(help="Show only runs of this recipe, in every configuration. Repeatable.")
    ] = None,
    community: Annotated[
        bool,
        typer.Option(
            "--community", help="Show the public list of published results and the recipe that reproduces each row."
        ),
    ] = False,
    results: Annotated[
        list[str] | None,
        typer.Option(help=f"Show these results made elsewhere, too: {ELSEWHERE} Repeatable."),
    ] = None,
    pool: Annotated[
        Pool, typer.Option(help="Runs in one row: the same experiment, or only the same settings.")
    ] = Pool.EXPERIMENT,
    output: Annotated[Format, typer.Option("--format", help="Output format.")] = Format.TABLE,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON document, as --format json.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write one self-contained page to this file instead.")] = None,
    plugin: Plugin = None,  # noqa: ARG001 - its callback loads the files
    wide: Annotated[bool, typer.Option("--wide", help="Show all rows with all score columns.")] = False,
    notes: Annotated[
        bool, typer.Option("--notes", help="Show the notes on all rows and the remarks on the tables.")
    ] = False,
) -> None:
    """Show finished runs and the best published results by encoder: mean ± std over seeds, and significance.

    Shows the configuration of each recipe with the best mean dev score. Test scores never select a configuration.
    Without finished runs, it shows the published results and the commands that reproduce them.
    """
    from cse_cli.analysis.experiments import read_finished_runs
    from cse_cli.analysis.leaderboard import LeaderboardQuery, find_tables, overview, score_tables
    from cse_cli.analysis.table_view import WRITERS, print_compact, print_tables, write_page

    output = Format.JSON if json_ else output
    find_tables(paper, table)  # reports unknown names before the runs are read
    query = LeaderboardQuery(
        paper, table, encoder, language, recipe or (), community, pool is Pool.SETTINGS, results or ()
    )
    gc.disable()  # it takes a fifth of the time of reading thousands of results
    try:
        runs = read_finished_runs()
        tables = score_tables(runs, query)
    finally:
        gc.enable()
    if html is not None:
        write_page(tables, html)
        sys.stderr.write(f"{html}: {counted(len(tables), 'table')}\n")
        return
    if output in WRITERS:
        sys.stdout.write(WRITERS[output](tables) if tables or output in (Format.CSV, Format.JSON) else "")
    elif tables and (wide or query.by_paper):
        print_tables(tables)
    elif tables:
        screen, others = overview(tables, query)
        print_compact(screen, others, notes=notes)
    if not any(row.source == "measured" and row.scores for shown in tables for row in shown.rows):
        which = "no finished run matches" if runs.results else "no finished runs yet"
        published = ": showing published results" if tables else ""
        sys.stdout.flush()
        sys.stderr.write(f"{which}{published}\n  → run `cse run quickstart` (about two minutes)\n")


COMPARE_EPILOG = (
    "Examples:  cse compare mini/simcse_en mini/ifcl_en  ·  cse compare 3f2a 81c0 --metric test  ·  "
    "cse compare mini/simcse_en mini/ifcl_en mini/mocose_en --pairwise  ·  cse compare simcse_en@1 ifcl_en@1 --json"
    "  ·  cse compare studies/open/methods --format csv"
)


def compare(
    runs: Annotated[
        list[str],
        typer.Argument(
            help="Two or more recipes (all their finished runs), recipe@seed, run IDs or results made elsewhere. A "
            f"study stands for its rows. Results made elsewhere: {ELSEWHERE}",
            autocompletion=complete_recipe_or_study,
        ),
    ],
    metric: Annotated[
        list[str] | None,
        typer.Option(help="Metric: evaluator.metric, evaluator or avg. Repeatable. Default: all main metrics."),
    ] = None,
    bootstrap: Annotated[int, typer.Option(min=100, help="Number of resamples of the sentence pairs.")] = 2000,
    pairwise: Annotated[bool, typer.Option("--pairwise", help="Compare every two, not each with the first.")] = False,
    planned: Annotated[
        int | None,
        typer.Option(
            min=2,
            help="Number of seeds that you planned before the first run. Default: the recorded plan.",
        ),
    ] = None,
    details: Annotated[
        bool, typer.Option("--details", help="Show all tables of more than three comparisons, not only a summary.")
    ] = False,
    plugin: Plugin = None,  # noqa: ARG001 - its callback loads the files
    output: Annotated[Format, typer.Option("--format", help="Output format.")] = Format.TABLE,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON document, as --format json.")] = False,
) -> None:
    """Compare methods over the same seeds and on the same sentence pairs, and show how their recipes differ."""
    from cse_cli.analysis import compare as comparison
    from cse_cli.analysis.compare_view import FEW, comparison_tables, print_comparison
    from cse_cli.analysis.experiments import read_finished_runs
    from cse_cli.analysis.methods import find_methods
    from cse_cli.analysis.table_view import WRITERS
    from cse_cli.core.console import write_json

    methods, notes = find_methods(runs, read_finished_runs(), pairwise=pairwise)
    few = len(comparison.couples_of(methods, pairwise=pairwise)) <= FEW
    output = Format.JSON if json_ else output
    # Tables for other programs show no sentence pairs.
    with_pairs = output is Format.JSON or (output is Format.TABLE and (few or details))
    resamples = bootstrap if with_pairs else 0
    document = comparison.compare(methods, metric or (), resamples, pairwise=pairwise, planned=planned, notes=notes)
    if output is Format.JSON:
        write_json(document.model_dump(mode="json"))
    elif output in WRITERS:
        sys.stdout.write(WRITERS[output](comparison_tables(document, methods)))
    else:
        print_comparison(document, details=details)


REPORT_EPILOG = (
    "Examples:  cse report 3f2a  ·  cse report 3f2a --baseline mini/simcse_en --output ifcl.md  ·  "
    "cse report studies/mini/ifcl_queue_length"
)


def report(
    what: Annotated[
        str,
        typer.Argument(
            metavar="RUN|RECIPE|STUDY",
            help="Run: ID, a prefix of it, or name. Recipe (its newest run), recipe@seed or study: name or file.",
            autocompletion=complete_recipe_or_study,
        ),
    ],
    output: Annotated[
        Path | None, typer.Option(help="FILE.html, or FILE.md with a directory of figures. Default: report-ID.html.")
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(help="Recipe or run to compare the run's recipe with.", autocompletion=complete_recipe),
    ] = None,
    plugin: Plugin = None,  # noqa: ARG001 - its callback loads the files
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    json_: AsJson = False,
) -> None:
    """Write a report on a run or a study: recipe, environment, scores, curves, figures and the command to reproduce it.

    The page is self-contained, so you can send it to others.
    """
    from cse_cli.analysis.report import write_report
    from cse_cli.core.console import write_json

    path = write_report(what, output, baseline, force=force)
    if json_:
        write_json({"path": str(path)})
    else:
        sys.stdout.write(f"{path}\n")
