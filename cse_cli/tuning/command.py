"""`cse tune`: better values for a recipe's parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cse_cli.recipe.completion import complete_recipe

EPILOG = (
    "Examples:  cse tune --param queue_length  ·  cse tune mini/ifcl_en --param queue_length,temperature --trials 40  "
    "·  cse tune quickstart --range learning_rate=1e-4..1e-2:log --seeds 3  ·  cse tune --best STUDY --confirm 5  ·  "
    "cse tune ls  ·  cse tune --join STUDY --workers 4"
)
_SEARCH = {"rich_help_panel": "What is searched"}
_STUDY = {"rich_help_panel": "How, and where it is kept"}
_AFTER = {"rich_help_panel": "What becomes of it"}
_WHICH = "Recipe; if left out, the configured one, the one run last, or quickstart. `ls` lists the studies."
_PRUNERS = "auto (default), median, percentile, halving, hyperband, wilcoxon or none."

Recipe = Annotated[
    str | None, typer.Argument(metavar="RECIPE|ls", help=_WHICH, autocompletion=complete_recipe, show_default=False)
]
Param = Annotated[
    list[str] | None,
    typer.Option("--param", "-p", help="Parameter to search: its name, its path or an ending.", **_SEARCH),
]
Range = Annotated[
    list[str] | None,
    typer.Option("--range", help="Values: a..b, a..b:log, a..b:step; NAME=a..b if several.", **_SEARCH),
]
Choices = Annotated[list[str] | None, typer.Option(help="Values or parts: 64,128 or NAME=cls,mean.", **_SEARCH)]
Metric = Annotated[str | None, typer.Option(help="Dev metric to maximise, if not evaluate.select.", **_SEARCH)]
Seeds = Annotated[str | None, typer.Option(help="Score by the mean over so many seeds, or 1,5,7.", **_SEARCH)]
Steps = Annotated[int | None, typer.Option(min=1, help="Steps of a trial, instead of the recipe's.", **_SEARCH)]
Set = Annotated[list[str] | None, typer.Option("--set", help="Set dotted.key=value in every trial.", **_SEARCH)]
Unset = Annotated[list[str] | None, typer.Option(help="Take a dotted key out of every trial.", **_SEARCH)]
Trials = Annotated[int | None, typer.Option(min=1, help="Total number of trials (default: 20).", **_STUDY)]
Timeout = Annotated[str | None, typer.Option(help="Start no new trial after this time: 90, 30m, 2h.", **_STUDY)]
Sampler = Annotated[str | None, typer.Option(help="tpe (default), gp, random, grid or qmc.", **_STUDY)]
Pruner = Annotated[str | None, typer.Option(help=_PRUNERS, **_STUDY)]
Name = Annotated[str | None, typer.Option(help="Study name; an existing one is continued.", **_STUDY)]
Join = Annotated[str | None, typer.Option("--join", "--resume", help="Go on with a study.", **_STUDY)]
Storage = Annotated[str | None, typer.Option(help="postgresql://… or sqlite:///…; else a local file.", **_STUDY)]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.", **_STUDY)]
Workers = Annotated[int | None, typer.Option(min=1, help="Trials at once; one a CUDA device if left out.", **_STUDY)]
On = Annotated[
    str | None,
    typer.Option(metavar="CLUSTER", help="Run on a Ray cluster: auto, ray://… or local-cluster.", **_STUDY),
]
Tag = Annotated[
    list[str] | None, typer.Option(metavar="KEY=VALUE", help="Tag the search's run and its trials'.", **_STUDY)
]
Experiment = Annotated[
    str | None, typer.Option(help="MLflow experiment; if left out, the search's own, tune/NAME.", **_STUDY)
]
Patience = Annotated[
    str, typer.Option(help="Kill and repeat a run that tells nothing for so long: 90, 30m, 2h.", **_STUDY)
]
Best = Annotated[str | None, typer.Option(metavar="STUDY", help="Show what a study has found.", **_AFTER)]
Confirm = Annotated[int | None, typer.Option(min=2, help="Best against own values over so many new seeds.", **_AFTER)]
SaveBest = Annotated[Path | None, typer.Option(metavar="FILE", help="Write a recipe with the best values.", **_AFTER)]
AcceptChanged = Annotated[
    bool, typer.Option("--accept-changed", help="Keep trials that other code of the components made.", **_STUDY)
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show results and errors alone.", **_AFTER)]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.", **_AFTER)]


def tune(
    recipe: Recipe = None,
    param: Param = None,
    range_: Range = None,
    choices: Choices = None,
    metric: Metric = None,
    seeds: Seeds = None,
    steps: Steps = None,
    set_: Set = None,
    unset: Unset = None,
    trials: Trials = None,
    timeout: Timeout = None,
    sampler: Sampler = None,
    pruner: Pruner = None,
    name: Name = None,
    join: Join = None,
    storage: Storage = None,
    device: Device = "auto",
    workers: Workers = None,
    on: On = None,
    patience: Patience = "2h",
    best: Best = None,
    confirm: Confirm = None,
    save_best: SaveBest = None,
    quiet: Quiet = False,
    tag: Tag = None,
    experiment: Experiment = None,
    accept_changed: AcceptChanged = False,
    json_: Json = False,
) -> None:
    """Search for better values of a recipe's parameters, by its dev metric. Each trial is recorded."""
    from cse_cli.tuning.options import SearchOptions
    from cse_cli.tuning.search import list_studies, search, show_study
    from cse_cli.tuning.storage import answering

    options = SearchOptions(
        recipe, param or (), range_ or (), choices or (), metric, set_ or (), unset or (), trials, timeout, sampler,
        pruner, seeds, steps, name, join, storage, device, workers, on, patience, save_best, confirm, json_, quiet,
        tag or (), experiment, accept_changed,
    )  # fmt: skip
    with answering(storage, best or join or name or ""):
        if recipe == "ls":  # a recipe of that name is ls.toml
            list_studies(options)
        elif best is not None:
            show_study(best, options)
        else:
            search(options)
