"""`cse tune`: search for better values of a recipe's parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import typer

from cse_cli.cli.options import (
    Cluster,
    Device,
    Json,
    Plugin,
    Precision,
    Quiet,
    Set,
    StallTimeout,
    Tag,
    Unset,
    Workers,
    compute_settings,
)
from cse_cli.core.formatting import parse_duration
from cse_cli.recipe.completion import complete_recipe
from registry.errors import CseError
from registry.machinery import plugins

EPILOG = (
    "Examples:  cse tune --param queue_length  ·  cse tune mini/ifcl_en --param queue_length,temperature --trials 40  "
    "·  cse tune quickstart --range learning_rate=1e-4..1e-2:log --seeds 3  ·  "
    "cse tune --best NAME --verify-seeds 5  ·  cse tune ls  ·  cse tune --resume NAME --workers 4"
)
LIST: Final = "ls"
"""Argument that lists all searches. A recipe with this name is given as ls.toml."""
_LISTS = {"quiet", "json_"}
_SHOWS = _LISTS | {"best", "verify_seeds", "save_best"}
_VERIFIES = {"device", "workers", "cluster", "stall_timeout"}
_SPACE = {"rich_help_panel": "Search space"}
_SEARCH = {"rich_help_panel": "Execution"}
_OUTPUT = {"rich_help_panel": "Record and output"}
_RECIPE = "Recipe. Default: the recipe of your last run, else quickstart. `ls` lists all searches."
_PRUNERS = "auto, median, percentile, halving, hyperband, wilcoxon or none. Default: auto."

Recipe = Annotated[
    str | None, typer.Argument(metavar="RECIPE|ls", help=_RECIPE, autocompletion=complete_recipe, show_default=False)
]
Param = Annotated[
    list[str] | None, typer.Option("--param", "-p", help="Parameter to search: name, path or end of a path.", **_SPACE)
]
Range = Annotated[
    list[str] | None,
    typer.Option("--range", help="Values: a..b, a..b:log or a..b:step. NAME=a..b for several parameters.", **_SPACE),
]
Choices = Annotated[list[str] | None, typer.Option(help="Values or components: 64,128 or NAME=cls,mean.", **_SPACE)]
Metric = Annotated[
    str | None, typer.Option(help="Dev metric to maximize. Default: evaluate.metric_for_best_model.", **_SPACE)
]
Seeds = Annotated[str | None, typer.Option(help="Number or list of seeds. The score is their mean.", **_SPACE)]
Steps = Annotated[int | None, typer.Option(min=1, help="Training steps of a trial. Default: the recipe's.", **_SPACE)]
Trials = Annotated[int | None, typer.Option(min=1, help="Total number of trials. Default: 20.", **_SEARCH)]
Timeout = Annotated[str | None, typer.Option(help="Start no new trial after this time: 90, 30m or 2h.", **_SEARCH)]
Sampler = Annotated[str | None, typer.Option(help="tpe, gp, random, grid or qmc. Default: tpe.", **_SEARCH)]
Pruner = Annotated[str | None, typer.Option(help=_PRUNERS, **_SEARCH)]
Name = Annotated[str | None, typer.Option(help="Name of the search. An existing search is continued.", **_SEARCH)]
Resume = Annotated[str | None, typer.Option(metavar="NAME", help="Continue an existing search.", **_SEARCH)]
Best = Annotated[str | None, typer.Option(metavar="NAME", help="Show the results of a search.", **_OUTPUT)]
VerifySeeds = Annotated[
    int | None, typer.Option(min=2, help="Compare best and current values on this many new seeds.", **_OUTPUT)
]
SaveBest = Annotated[Path | None, typer.Option(metavar="FILE", help="Write a recipe with the best values.", **_OUTPUT)]


def tune(
    context: typer.Context,
    recipe: Recipe = None,
    param: Param = None,
    range_: Range = None,
    choices: Choices = None,
    metric: Metric = None,
    seeds: Seeds = None,
    steps: Steps = None,
    set_: Set = None,
    unset: Unset = None,
    plugin: Plugin = None,  # noqa: ARG001 - its callback loads the files
    trials: Trials = None,
    timeout: Timeout = None,
    sampler: Sampler = None,
    pruner: Pruner = None,
    name: Name = None,
    resume: Resume = None,
    device: Device = "auto",
    precision: Precision = None,
    workers: Workers = None,
    cluster: Cluster = None,
    stall_timeout: StallTimeout = "2h",
    best: Best = None,
    verify_seeds: VerifySeeds = None,
    save_best: SaveBest = None,
    quiet: Quiet = False,
    tag: Tag = None,
    json_: Json = False,
) -> None:
    """Search for better values of a recipe's parameters by its dev metric. Every trial is recorded."""
    from cse_cli.jobs.request import RunRequest, parse_seeds, parse_tags
    from cse_cli.tuning.search import list_searches, search, show_search
    from cse_cli.tuning.study import SearchConfig

    if resume is not None and name is not None:
        raise CseError("--resume and --name exclude each other", "remove --name", code="tune.exclusive_options")
    stall = parse_duration("--stall-timeout", stall_timeout)
    asked = RunRequest(device=device, workers=workers, cluster=cluster, stall_timeout=stall, as_json=json_, quiet=quiet)
    given: dict[str, Any] = {
        "name": resume or name, "recipe": recipe, "unset": unset,
        "overrides": [*(set_ or []), *compute_settings(precision)], "trials": trials,
        "sampler": sampler, "pruner": pruner, "seeds": seeds and parse_seeds(seeds), "steps": steps,
        "tags": parse_tags(tag or ()), "timeout": timeout and parse_duration("--timeout", timeout), "request": asked,
        "plugins": plugins.named(), "save_best": save_best, "verify_seeds": verify_seeds, "resume": resume is not None,
    }  # fmt: skip
    config = SearchConfig(**{key: value for key, value in given.items() if value})
    if recipe == LIST:
        _refuse_others(context, "ls", _LISTS | {"recipe"})
        list_searches(as_json=json_)
    elif best is not None:
        _refuse_others(context, "--best", _SHOWS | _VERIFIES if verify_seeds is not None else _SHOWS)
        show_search(best, config)
    else:
        search(config, param or (), range_ or (), choices or (), metric)


def _refuse_others(context: typer.Context, form: str, allowed: set[str]) -> None:
    """Refuse options that have no effect in a form of the command that does not search."""
    for key in context.params.keys() - allowed:
        source = context.get_parameter_source(key)
        if source is not None and source.name not in ("DEFAULT", "DEFAULT_MAP"):
            option = f"--{key.strip('_').replace('_', '-')}" if key != "recipe" else f"'{context.params[key]}'"
            message = f"{form} does not search: {option} has no effect"
            raise CseError(message, f"remove {option}", code="tune.exclusive_options")
