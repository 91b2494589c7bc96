"""Command `cse run`."""

from __future__ import annotations

from typing import Annotated

import typer

from cse_cli.cli.options import (
    EXECUTION,
    OUTPUT,
    Cluster,
    Device,
    Json,
    Plugin,
    Portable,
    Precision,
    Quiet,
    Set,
    StallTimeout,
    Tag,
    Unset,
    Workers,
    compute_settings,
)
from cse_cli.recipe.completion import complete_recipe_or_study

EPILOG = (
    "Examples:  cse run quickstart  ·  cse run recipes/ifcl_en.toml --seeds 3  ·  "
    "cse run mini/simcse_en --set train.steps=100 --set data.limit=2000  ·  "
    "cse run mini/simcse_en --name baseline --tag for=paper  ·  cse run --resume 3f2a  ·  "
    "cse run studies/mini/ifcl_queue_length"
)

_TRIAL = {"rich_help_panel": "Before a run"}

Recipes = Annotated[
    list[str] | None,
    typer.Argument(help="Files or names of recipes or studies.", autocompletion=complete_recipe_or_study),
]
Seeds = Annotated[str | None, typer.Option(help="Number of seeds (3 is 0, 1, 2) or a list such as 1,5,7.")]
FastDevRun = Annotated[
    bool,
    typer.Option(
        "--fast-dev-run",
        help="Try the whole way on 2,000 sentences, 20 steps and 256 pairs per evaluator. It is not a result.",
        **_TRIAL,
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Build everything, print one batch per view and exit.", **_TRIAL)
]
Rows = Annotated[
    list[str] | None, typer.Option("--row", metavar="ROW", help="Run only this row of a study. Repeatable.")
]
Resume = Annotated[
    str | None, typer.Option(help="Resume the run with this ID. A unique prefix is enough.", **EXECUTION)
]
Processes = Annotated[
    int | None,
    typer.Option(min=1, help="Number of processes that share each run. Default: one per GPU.", **EXECUTION),
]
Again = Annotated[bool, typer.Option("--again", help="Repeat finished runs as new runs.", **EXECUTION)]
Name = Annotated[
    str | None, typer.Option(help="Display name of the run. With several runs, a prefix for their names.", **OUTPUT)
]


def run(
    recipes: Recipes = None,
    seed: Annotated[int | None, typer.Option(min=0, max=2**32 - 1, help="Seed. Default: the recipe's own.")] = None,
    seeds: Seeds = None,
    set_: Set = None,
    unset: Unset = None,
    plugin: Plugin = None,  # noqa: ARG001 - its callback loads the files
    device: Device = "auto",
    precision: Precision = None,
    dry_run: DryRun = False,
    fast_dev_run: FastDevRun = False,
    row: Rows = None,
    resume: Resume = None,
    workers: Workers = None,
    processes: Processes = None,
    cluster: Cluster = None,
    stall_timeout: StallTimeout = "2h",
    portable: Portable = False,
    again: Again = False,
    name: Name = None,
    tag: Tag = None,
    quiet: Quiet = False,
    json_: Json = False,
) -> None:
    """Train and score recipes, or all cells of studies, and skip finished runs."""
    from cse_cli.core import processes as group

    here = group.torchrun_rank() or group.ProcessRank()
    if here.world > 1:
        group.install_signal_handlers(here.rank)  # before a library starts threads
        group.end_with_parent()
    from cse_cli.core.formatting import parse_duration
    from cse_cli.jobs.launch import run_as_rank, run_jobs, run_studies
    from cse_cli.jobs.request import RunRequest
    from cse_cli.recipe.study import find_study

    request = RunRequest(
        recipes=recipes or [],
        overrides=[*(set_ or []), *compute_settings(precision, portable)],
        unset=unset or [],
        seed=seed,
        seeds=seeds,
        device=device,
        resume=resume,
        rows=row or [],
        workers=workers,
        processes=processes,
        cluster=cluster,
        stall_timeout=parse_duration("--stall-timeout", stall_timeout),
        dry_run=dry_run, fast_dev_run=fast_dev_run, as_json=json_, quiet=quiet,
        name=name, tags=tag or [], again=again,
    )  # fmt: skip
    if here.world > 1:
        group.run_rank_and_exit(lambda: run_as_rank(request, here))
    is_study = any(find_study(name) for name in request.recipes)
    raise typer.Exit(run_studies(request) if is_study else run_jobs(request))


PLAN_EPILOG = (
    "Examples:  cse plan simcse_en  ·  cse plan simcse_en --seeds 5 --device cuda  ·  "
    "cse plan studies/mini/ifcl_queue_length --workers 2"
)


def plan(
    recipes: Recipes = None,
    seeds: Seeds = None,
    set_: Set = None,
    unset: Unset = None,
    device: Device = "auto",
    precision: Precision = None,
    row: Rows = None,
    workers: Workers = None,
    plugin: Plugin = None,  # noqa: ARG001 - its callback loads the files
    json_: Json = False,
) -> None:
    """Estimate downloads, time, disk and memory of runs before they start, from a few measured steps."""
    from cse_cli.jobs.plan import plan as plan_runs
    from cse_cli.jobs.request import RunRequest

    request = RunRequest(
        recipes=recipes or [], seeds=seeds, overrides=[*(set_ or []), *compute_settings(precision)],
        unset=unset or [], device=device, rows=row or [], workers=workers, as_json=json_,
    )  # fmt: skip
    raise typer.Exit(plan_runs(request))
