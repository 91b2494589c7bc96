"""`cse run`: recipes and studies → trained, scored, recorded runs."""

from __future__ import annotations

from typing import Annotated

import typer

from cse_cli.recipe.completion import complete_recipe_or_study

EPILOG = (
    "Examples:  cse run quickstart  ·  cse run recipes/ifcl_en.toml --seeds 3  ·  "
    "cse run mini/simcse_en --set train.steps=100 --set losses.info_nce.temperature=0.1  ·  "
    "cse run mini/simcse_en --name baseline --tag for=paper  ·  cse run --resume 3f2a  ·  "
    "cse run studies/mini/ifcl_queue_length"
)

Workers = Annotated[
    int | None, typer.Option(min=1, help="Number of runs to execute in parallel. Default: one per CUDA device.")
]
Processes = Annotated[
    int | None,
    typer.Option(min=1, help="Number of processes that share each run. Default: one per CUDA device."),
]
On = Annotated[
    str | None, typer.Option(metavar="CLUSTER", help="Run on a Ray cluster: auto, ray://… or local-cluster.")
]
Name = Annotated[str | None, typer.Option(help="Name in lists; of several runs, what their names begin with.")]
Tag = Annotated[
    list[str] | None, typer.Option(metavar="KEY=VALUE", help="Tag each run; `cse runs ls --tag KEY=VALUE` finds it.")
]
Experiment = Annotated[
    str | None, typer.Option(help="MLflow experiment; if left out, one for each method and language, and each study.")
]
Patience = Annotated[str, typer.Option(help="Restart a run that reports no progress for this long: 90, 30m or 2h.")]
AcceptChanged = Annotated[
    bool, typer.Option("--accept-changed", help="Count finished runs of changed code as finished.")
]


def run(
    recipes: Annotated[
        list[str] | None,
        typer.Argument(help="Recipes or studies: files or names.", autocompletion=complete_recipe_or_study),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, max=2**32 - 1, help="Seed instead of the recipe's own.")] = None,
    seeds: Annotated[str | None, typer.Option(help="How many seeds (0, 1, …), or a list such as 1,5,7.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Override: dotted.key=value, value as TOML.")] = None,
    unset: Annotated[list[str] | None, typer.Option("--unset", help="Take a dotted key out.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Build all, show one batch of each view, stop.")] = False,
    resume: Annotated[str | None, typer.Option(help="Resume the run with this ID. A unique prefix is enough.")] = None,
    workers: Workers = None,
    processes: Processes = None,
    on: On = None,
    patience: Patience = "2h",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only results and errors.")] = False,
    name: Name = None,
    tag: Tag = None,
    experiment: Experiment = None,
    again: Annotated[bool, typer.Option("--again", help="Train again what is finished, as new runs.")] = False,
    accept_changed: AcceptChanged = False,
    json_: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Train and score recipes, or all cells of studies. Finished runs are shown, not repeated."""
    from cse_cli.core.processes import ProcessRank, among_others, end_with_parent, listen, place

    here = place() or ProcessRank()
    if here.world > 1:
        listen(here.rank)  # before a library starts threads
        end_with_parent()
    from cse_cli.core.formatting import parse_duration
    from cse_cli.jobs.request import RunRequest
    from cse_cli.jobs.run import run_as_rank, run_jobs, run_studies
    from cse_cli.recipe.study import find_study

    request = RunRequest(
        recipes or [], set_ or [], unset or [],
        seed,
        seeds,
        device,
        resume,
        workers,
        processes,
        on,
        parse_duration("--patience", patience),
        dry_run,
        json_,
        quiet,
        name,
        tag or [],
        experiment,
        again,
        accept_changed,
    )  # fmt: skip
    if here.world > 1:
        among_others(lambda: run_as_rank(request, here))
    is_study = any(find_study(name) for name in request.recipes)
    raise typer.Exit(run_studies(request) if is_study else run_jobs(request))
