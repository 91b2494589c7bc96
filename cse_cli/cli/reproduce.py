"""Command `cse reproduce`."""

from __future__ import annotations

from typing import Annotated

import typer

from cse_cli.cli.options import (
    Cluster,
    Device,
    Json,
    Plugin,
    Portable,
    Precision,
    Quiet,
    Set,
    Unset,
    Workers,
    compute_settings,
)
from cse_cli.recipe.completion import complete_recipe

EPILOG = (
    "Examples:  cse reproduce quickstart --seeds 3  ·  cse reproduce simcse_en --seeds 3  ·  "
    "cse reproduce 'ifcl/1/IFCL-BERT base' --seeds 5  ·  cse reproduce ifcl_en --set queue.order=oldest_first"
)


def reproduce(
    what: Annotated[
        str,
        typer.Argument(
            metavar="ROW|RECIPE",
            help="Recipe, or row of a paper's table: PAPER/TABLE/ROW, e.g. 'ifcl/1/IFCL-BERT base'.",
            autocompletion=complete_recipe,
        ),
    ],
    seeds: Annotated[
        str | None,
        typer.Option(
            help="Number of seeds (3 is 0, 1, 2) or a list such as 1,5,7. Default: 3, or 1 for a recipe without "
            "training."
        ),
    ] = None,
    set_: Set = None,
    unset: Unset = None,
    device: Device = "auto",
    precision: Precision = None,
    workers: Workers = None,
    cluster: Cluster = None,
    portable: Portable = False,
    plugin: Plugin = None,  # noqa: ARG001 - its callback loads the files
    quiet: Quiet = False,
    json_: Json = False,
) -> None:
    """Run a recipe over several seeds and compare the score with the reported one: reproduced, lower or higher?

    Finished runs are reused, and interrupted ones are resumed. The verdict is about the finished seeds.

    With --portable, the SHA-256 of the weights is compared with the published one.
    """
    from cse_cli.jobs.reproduce import run_reproduction
    from cse_cli.jobs.request import RunRequest

    request = RunRequest(
        overrides=[*(set_ or []), *compute_settings(precision, portable)], unset=unset or [], seeds=seeds,
        device=device, workers=workers, cluster=cluster, quiet=quiet, as_json=json_,
    )  # fmt: skip
    raise typer.Exit(run_reproduction(what, request))
