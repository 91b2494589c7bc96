"""`cse evaluate`: scores of any encoder on any task."""

from __future__ import annotations

from typing import Annotated

import typer

from cse_cli.cli.options import AsJson, Device, Plugin

EPILOG = (
    "Examples:  cse evaluate mini_en --pooling mean  ·  cse evaluate 3f2a --tasks stsb,sickr/all,geometry  ·  "
    "cse evaluate sentence-transformers/all-MiniLM-L6-v2 mini_en --tasks all --json  ·  "
    "cse evaluate mini_en --tasks pairs.tsv --set sts.score_column=rating  ·  "
    "cse evaluate intfloat/e5-small-v2 --prompt 'query: '  ·  "
    "cse evaluate mini_en --template '\"{text}\" means {mask}.' --pooling mask"
)

Template = Annotated[
    str | None,
    typer.Option(help="Text around every sentence. {text} is the sentence, {mask} the token for --pooling mask."),
]
Prompt = Annotated[
    list[str] | None,
    typer.Option(
        help="Text in front of every sentence, or the name of one of the model's prompts. query=TEXT and document=TEXT "
        "set it for one side of retrieval. Repeatable. Default: the model's own."
    ),
]
MaxLength = Annotated[
    int | None, typer.Option(min=3, help="Maximum number of tokens per sentence. Default: the model's own.")
]
BatchTokens = Annotated[
    int | None, typer.Option(min=1, help="Maximum number of tokens per batch. Default: 2048 on CPU, 16384 on a GPU.")
]
Width = Annotated[int | None, typer.Option(min=1, help="Number of leading dimensions that are scored. Default: all.")]
Precision = Annotated[
    str, typer.Option(help="fp32, bf16, fp16 or auto. bf16 can be faster, and scores differ by about 0.01.")
]


def evaluate(
    models: Annotated[list[str], typer.Argument(help="Directories, names in $CSE_MODELS, Hub IDs, or run IDs.")],
    tasks: Annotated[
        str,
        typer.Option(
            help="Tasks, separated by commas: sts, transfer, geometry, all, sts_zh, data sets such as stsb/dev, files "
            "of pairs, evaluators, tasks and benchmarks of mteb."
        ),
    ] = "sts",
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Parameter of an evaluator or a task, for example transfer.classifier=logistic. Repeatable."
        ),
    ] = None,
    pooling: Annotated[
        str | None,
        typer.Option(
            help="cls, mean, last2, first_last (embedding layer and last layer), avg_first_last (first block and last "
            "layer, SimCSE's option of this name), mask, last_mask, last or weighted_mean. Default: the model's own."
        ),
    ] = None,
    template: Template = None,
    prompt: Prompt = None,
    max_length: MaxLength = None,
    width: Width = None,
    batch_tokens: BatchTokens = None,
    plugin: Plugin = None,  # noqa: ARG001 - its callback loads the files
    device: Device = "auto",
    precision: Precision = "fp32",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only results and errors.")] = False,
    json_: AsJson = False,
) -> None:
    """Score encoders with the papers' protocols and compare them with reported results of the same encoder."""
    from dataclasses import asdict

    from cse_cli.core.console import Screen, write_json
    from cse_cli.evaluation.evaluate import Settings, fetch_needed, score_models, word_overlaps
    from cse_cli.evaluation.tasks import parse_tasks
    from cse_cli.evaluation.view import compare_with_papers, print_scores

    settings = Settings(pooling, max_length, batch_tokens, device, template, precision, prompt or (), width)
    parsed = parse_tasks(tasks, set_ or ())
    with Screen(quiet=quiet) as screen:
        if warning := settings.compute.warning:
            screen.warned(warning)
        fetch_needed(models, parsed, screen.downloading)
        scored = score_models(models, parsed, settings, screen.scoring)
    tables = compare_with_papers(scored, parsed)
    overlaps = word_overlaps({name: task.evaluator for name, task in parsed.items()})
    if json_:
        reported = [table.model_dump(mode="json") for table in tables]
        write_json({"models": [asdict(one) for one in scored], "word_overlap": overlaps, "papers": reported})
    else:
        print_scores(scored, parsed, tables, overlaps)
