"""Command `cse reproduce`."""

from __future__ import annotations

from typing import Annotated

import typer

from cse_cli.cli.options import Cluster, Device, Json, Plugin, Precision, Quiet, Set, Unset, Workers, precision_setting
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
    plugin: Plugin = None,  # noqa: ARG001 - its callback loads the files
    quiet: Quiet = False,
    json_: Json = False,
) -> None:
    """Run a recipe over several seeds and compare the score with the reported one: reproduced, lower or higher?

    Finished runs are reused, and interrupted ones are resumed. The verdict is about the finished seeds.
    """
    import shlex
    from dataclasses import replace

    from rich.text import Text

    from cse_cli.analysis.reproduced import judge, verdict_text
    from cse_cli.analysis.score_table import measure
    from cse_cli.analysis.target import doubts, find_target
    from cse_cli.core.console import Screen, stdout_console, write_json
    from cse_cli.core.formatting import counted
    from cse_cli.core.results import Result
    from cse_cli.core.stats import MOST_SEEDS
    from cse_cli.jobs.launch import run_all
    from cse_cli.jobs.request import RunRequest, choose_placement
    from registry.errors import CseError

    request = RunRequest(
        overrides=[*(set_ or []), *precision_setting(precision)], unset=unset or [], device=device, workers=workers,
        cluster=cluster, quiet=quiet, as_json=json_,
    )  # fmt: skip
    target = find_target(what, [str(one) for one in request.overrides], request.unset)
    loaded, claim, trained = target.loaded, target.claim, target.loaded.recipe.train.steps != 0
    seeds = seeds or ("3" if trained else "1")
    recipe = str(loaded.path) if what.endswith(".toml") else loaded.name
    request = replace(request, recipes=[recipe], seeds=seeds)
    jobs, screen = request.jobs(), Screen(quiet=quiet)
    reported = f"{claim.heading} {claim.value:.{claim.digits}f}"
    runs = f"{counted(len(jobs), 'run')} of {shlex.quote(loaded.name)}"
    screen.advise([f"reproducing {target.name}: {reported}, by {runs}"])
    ends = run_all(jobs, choose_placement(jobs, request), request)
    scores = {end.seed: target.value(end) for end in ends if isinstance(end, Result)}
    errors = [end for end in ends if isinstance(end, CseError)]
    if not scores:
        raise errors[0]

    verdict = judge(measure(list(scores.values())), claim, trained=trained)
    points = list(doubts(loaded)) if verdict.outcome in ("lower", "higher") else []
    if json_:
        document = {
            "schema_version": 2, "recipe": loaded.name, "changes": loaded.changes, "row": target.name,
            "source": target.source, "claim": claim.model_dump(), "scores": scores, "verdict": verdict.model_dump(),
            "notes": target.notes, "doubts": [{**point.model_dump(), "options": tried} for point, tried in points],
        }  # fmt: skip
        write_json(document)
    else:
        lines = [Text(f"{target.name} · {loaded.name}", "bold"), Text(verdict_text(verdict, claim))]
        lines += [Text(f"The recipe was changed: {', '.join(loaded.changes)}.")] if loaded.changes else []
        lines += [Text(f"Doubt about the reported row: {note}") for note in target.notes]
        lines += [Text("\nDoubtful points of the method, and options that choose otherwise:")] if points else []
        with stdout_console(80) as console:
            for line in lines:
                console.print(line)
            for point, tried in points:
                console.print(Text(f"{point.name}  {point.about} (docs/methods/{point.page}.md)"))
                for options in tried:
                    console.print(Text(f"  {options}"), soft_wrap=True)  # you can copy a command that does not wrap
    if 0 < verdict.more_seeds <= MOST_SEEDS:
        unused = [seed for seed in range(len(scores) + 2 * verdict.more_seeds) if seed not in scores]
        planned = [*scores, *unused[: verdict.more_seeds]]
        option = str(len(planned)) if planned == list(range(len(planned))) else ",".join(map(str, planned))
        screen.advise(["next:", f"  {shlex.join(['cse', 'reproduce', what, *request.settings(), '--seeds', option])}"])
    raise typer.Exit(errors[0].exit_code if errors else 0)
