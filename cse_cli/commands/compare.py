"""`cse compare`: two methods or more, seed by seed and pair by pair."""

from __future__ import annotations

from typing import Annotated

import typer

from cse_cli.completion import complete_recipe

EPILOG = (
    "Examples:  cse compare mini/simcse_en mini/ifcl_en  ·  cse compare 3f2a 81c0 --metric stsb  ·  "
    "cse compare mini/simcse_en mini/ifcl_en mini/mocose_en --pairwise  ·  cse compare simcse_en@1 ifcl_en@1 --json"
)


def add(app: typer.Typer) -> None:
    """Add the command."""
    app.command("compare", epilog=EPILOG)(compare)


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
    json_: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Compare methods: what differs in their recipes, over the same seeds, and on the same sentence pairs."""
    from cse_cli.compare.comparing import compare as compared
    from cse_cli.compare.sides import find_sides
    from cse_cli.render.compare import print_comparison, write_json
    from cse_cli.tracking.reader import finished_results

    document = compared(find_sides(runs, finished_results()), metric or (), bootstrap, pairwise=pairwise)
    (write_json if json_ else print_comparison)(document)
