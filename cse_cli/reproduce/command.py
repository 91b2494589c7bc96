"""Command `cse reproduce`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from cse_cli.recipe.command import Device, Precision, with_precision
from cse_cli.recipe.completion import complete_recipe

EPILOG = (
    "Examples:  cse reproduce quickstart --seeds 3  ·  cse reproduce simcse_en --seeds 3  ·  "
    "cse reproduce 'ifcl/1/IFCL-BERT base' --output report.md  ·  "
    "cse reproduce ifcl_en --set queue.order=oldest_first  ·  cse reproduce --from result.json"
)

What = Annotated[
    str | None,
    typer.Argument(
        metavar="ROW|RECIPE",
        help="Recipe, or row of a paper's table: PAPER/TABLE/ROW, e.g. 'ifcl/1/IFCL-BERT base'.",
        autocompletion=complete_recipe,
    ),
]
Seeds = Annotated[
    str | None,
    typer.Option(
        help="Number of seeds (3 is 0, 1, 2) or a list such as 1,5,7. Default: 3, or 1 for a recipe without training."
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set a dotted key to a TOML value. Repeatable."),
]
Unset = Annotated[list[str] | None, typer.Option(metavar="KEY", help="Remove a dotted key. Repeatable.")]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Number of runs to execute in parallel. Default: one per GPU.")
]
Output = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE|DIR", help="Also write FILE.md (to paste into an issue) or FILE.json (to share), or both to DIR."
    ),
]
From = Annotated[Path | None, typer.Option("--from", metavar="FILE", help="Show another person's JSON file instead.")]


def reproduce(
    what: What = None,
    seeds: Seeds = None,
    set_: Set = None,
    unset: Unset = None,
    device: Device = "auto",
    precision: Precision = None,
    workers: Workers = None,
    cluster: Annotated[
        str | None, typer.Option(help="Execute runs on a Ray cluster: auto, ray://HOST or local-cluster.")
    ] = None,
    output: Output = None,
    from_: From = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only results and errors.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
) -> None:
    """Run a recipe over several seeds and compare the scores with the reported ones: reproduced, lower or higher?

    Finished runs are reused, and interrupted ones are resumed.
    """
    from cse_cli.core.console import Screen
    from cse_cli.jobs.request import RunRequest
    from cse_cli.reproduce.document import read_reproduction
    from cse_cli.reproduce.report import check_output, next_command, write_output
    from cse_cli.reproduce.run import run_seeds
    from cse_cli.reproduce.view import print_reproduction
    from registry.errors import CseError

    if (what is None) == (from_ is None):
        raise CseError(
            "name a row or recipe, or a file with --from"
            if what is None
            else "--from cannot be combined with a recipe",
            "cse reproduce quickstart --seeds 3, or cse reproduce --from result.json",
            code="reproduce.what",
        )
    check_output(output)
    code = 0
    if from_ is not None:
        document = read_reproduction(from_)
    else:
        request = RunRequest(
            overrides=with_precision(set_, precision), unset=unset or [], seeds=seeds, device=device,
            workers=workers, cluster=cluster, quiet=quiet, as_json=json_,
        )  # fmt: skip
        document, code = run_seeds(str(what), request)
    if json_:
        sys.stdout.write(f"{document.to_json()}\n")
    else:
        print_reproduction(document)
    written = write_output(document, output)
    screen = Screen(quiet=quiet)
    screen.advise([f"saved {path}" for path in written])
    if from_ is None and (command := next_command(document)) is not None:
        screen.advise(["next:", f"  {command}"])
    raise typer.Exit(code)
