"""`cse evaluate`: score any encoder on any of the tasks."""

from __future__ import annotations

from typing import Annotated

import typer

EPILOG = (
    "Examples:  cse evaluate mini_en --pooling mean  ·  cse evaluate 3f2a --tasks stsb,sickr/all,geometry  ·  "
    "cse evaluate sentence-transformers/all-MiniLM-L6-v2 mini_en --tasks all --json  ·  "
    "cse evaluate mini_en --tasks pairs.tsv --set sts.score_column=rating  ·  "
    "cse evaluate bert-base-uncased --template '\"{text}\" means {mask}.' --pooling mask"
)


def evaluate(
    models: Annotated[list[str], typer.Argument(help="Directories, names under $CSE_MODELS, hub ids, or run ids.")],
    tasks: Annotated[
        str,
        typer.Option(
            help="Separated by commas: sts, transfer, geometry, all, sts_zh; data sets: stsb/dev, mr; files of pairs; "
            "evaluators by name."
        ),
    ] = "sts",
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Parameter of an evaluator, or of one task: transfer.classifier=logistic."),
    ] = None,
    pooling: Annotated[
        str | None,
        typer.Option(
            help="cls, mean, last2, first_last, mask, last_mask, last or weighted_mean; default: what the model says."
        ),
    ] = None,
    template: Annotated[
        str | None,
        typer.Option(help="Text around every sentence, '{text}' its place and '{mask}' what --pooling mask reads."),
    ] = None,
    max_length: Annotated[int | None, typer.Option(min=3, help="Tokens a sentence is cut to.")] = None,
    batch_tokens: Annotated[
        int | None, typer.Option(min=1, help="Most tokens an encoding batch; default: what suits the device.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show results and errors alone.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Score encoders as the papers do, several side by side, with what the papers print of the same encoder."""
    from dataclasses import asdict

    from cse_cli.core.console import Screen, write_json
    from cse_cli.evaluation.beside import beside_papers
    from cse_cli.evaluation.evaluate import Settings, fetch_needed, score_models
    from cse_cli.evaluation.tasks import parse_tasks
    from cse_cli.evaluation.view import print_scores

    wanted = parse_tasks(tasks, set_ or ())
    with Screen(quiet=quiet) as screen:
        fetch_needed(models, wanted, screen.downloading)
        scored = score_models(
            models, wanted, Settings(pooling, max_length, batch_tokens, device, template), screen.scoring
        )
    tables = beside_papers(scored, wanted)
    if json_:
        printed = [table.model_dump(mode="json") for table in tables]
        write_json({"models": [asdict(one) for one in scored], "papers": printed})
    else:
        print_scores(scored, wanted, tables)
