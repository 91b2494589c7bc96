"""Command `cse data mine`: hard negatives for pairs."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from cse_cli.evaluation.command import BatchTokens, MaxLength, Precision, Template
from cse_cli.recipe.command import Device, Plugin

SCHEMA_VERSION = 1
"""Version of the JSON document."""

EPILOG = (
    "Examples:  cse data mine pairs.csv --model mini_en --relative-margin 0.05  ·  "
    "cse data mine pairs.jsonl --model BAAI/bge-base-en-v1.5 --corpus wiki1m --num-negatives 5 --output hard.jsonl  ·  "
    "cse data mine hf:sentence-transformers/all-nli:pair --model 3f2a --range-min 10 --range-max 50 --sampling random"
)


Pairs = Annotated[str, typer.Argument(help="Pairs: a file, directory or glob, name of a data set, or hf:OWNER/NAME.")]
Teacher = Annotated[str, typer.Option(help="Teacher: a directory, a name in $CSE_MODELS, a Hub ID, or a run ID.")]
Anchor = Annotated[str | None, typer.Option(help="Column of the anchors. Default: the first column.")]
Positive = Annotated[str | None, typer.Option(help="Column of the positives. Default: the next column.")]
MoreTexts = Annotated[
    str | None, typer.Option(help="Text with more candidates. The positives of all anchors are candidates, too.")
]
Count = Annotated[int, typer.Option(min=1, help="Number of negatives of each anchor.")]
RangeMin = Annotated[int, typer.Option(min=0, help="Number of the nearest candidates to skip.")]
RangeMax = Annotated[
    int | None,
    typer.Option(min=1, help="Number of the nearest texts that are candidates. Default: depends on --num-negatives."),
]
AbsoluteMargin = Annotated[
    float | None, typer.Option(help="Minimum distance of a negative's cosine to that of the positive.")
]
RelativeMargin = Annotated[
    float | None, typer.Option(help="The same as a share of the positive's cosine, for example 0.05.")
]
Sampling = Annotated[
    Literal["top", "random"], typer.Option(help="top: the nearest candidates. random: any candidates.")
]
Format = Annotated[
    Literal["triplet", "n-tuple"],
    typer.Option("--format", help="triplet: a row for each negative. n-tuple: a row with all negatives of a pair."),
]
SearchOption = Annotated[
    Literal["torch", "faiss"], typer.Option(help="torch or faiss (extra `faiss`). Both are exact.")
]


def mine(
    pairs: Pairs,
    model: Teacher,
    anchor: Anchor = None,
    positive: Positive = None,
    corpus: MoreTexts = None,
    corpus_column: Annotated[str, typer.Option(help="Column of --corpus.")] = "text",
    num_negatives: Count = 3,
    range_min: RangeMin = 0,
    range_max: RangeMax = None,
    max_score: Annotated[float | None, typer.Option(help="Maximum cosine of anchor and negative.")] = None,
    min_score: Annotated[float | None, typer.Option(help="Minimum cosine of anchor and negative.")] = None,
    absolute_margin: AbsoluteMargin = None,
    relative_margin: RelativeMargin = None,
    sampling: Sampling = "top",
    seed: Annotated[int, typer.Option(help="Seed of --sampling random.")] = 0,
    format_: Format = "triplet",
    output: Annotated[str | None, typer.Option("--output", "-o", help="Path of the new .jsonl or .csv file.")] = None,
    split: Annotated[str, typer.Option(help="Split of the data set.")] = "train",
    limit: Annotated[int | None, typer.Option(min=1, help="Maximum number of pairs. Default: all.")] = None,
    search: SearchOption = "torch",
    pooling: Annotated[str | None, typer.Option(help="Pooling of the teacher. Default: the model's own.")] = None,
    template: Template = None,
    max_length: MaxLength = None,
    batch_tokens: BatchTokens = None,
    plugin: Plugin = None,  # noqa: ARG001 - its callback loads the files
    device: Device = "auto",
    precision: Precision = "fp32",
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON document to stdout.")] = False,
) -> None:
    """Mine hard negatives for pairs: the nearest texts of a corpus, with margins to the positive.

    The parameters have the meaning of `mine_hard_negatives` of sentence-transformers.
    """
    from dataclasses import asdict

    from cse_cli.core.console import Screen, write_json
    from cse_cli.evaluation.evaluate import Settings, fetch_needed
    from cse_cli.mining.mine import MiningRequest
    from cse_cli.mining.mine import mine as mine_pairs
    from cse_cli.mining.negatives import Filters
    from cse_cli.mining.view import print_mined

    filters = Filters(
        num_negatives, range_min, range_max, max_score, min_score, absolute_margin, relative_margin, sampling, seed
    )
    settings = Settings(pooling, max_length, batch_tokens, device, template, precision)
    request = MiningRequest(
        pairs, model, settings, filters, anchor, positive, corpus, corpus_column, split, limit, output, format_, search
    )
    with Screen() as screen:
        fetch_needed([model], {}, screen.downloading)
        mined = mine_pairs(request, screen.preparing, screen.warned)
    if json_:
        write_json(asdict(mined), SCHEMA_VERSION)
    else:
        print_mined(mined)
