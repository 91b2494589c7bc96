"""`cse adapt`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from cse_cli.cli.options import Device, Json, Quiet, Workers

EPILOG = (
    "Examples:  cse adapt docs.txt --model sentence-transformers/all-MiniLM-L6-v2  ·  "
    "cse adapt tickets.jsonl --model intfloat/e5-small-v2 --minutes 60  ·  "
    "cse adapt pages/ --model mini_en --judge labels.csv"
)


def adapt(
    corpus: Annotated[
        Path,
        typer.Argument(
            metavar="CORPUS",
            help="Documents: a text file with blank lines between them, or one in each line; a .jsonl file with `text` "
            "(and `title`, `label`); or a directory of .txt files.",
        ),
    ],
    model: Annotated[str, typer.Option(help="Directory, name in CSE_MODELS, or ID on the Hub.")],
    pooling: Annotated[str | None, typer.Option(help="Pooling, as in `cse evaluate`. Default: its own.")] = None,
    minutes: Annotated[float, typer.Option(min=1, help="Time for everything.")] = 15,
    out: Annotated[Path | None, typer.Option(help="Directory of the results. Default: adapt-NAME.")] = None,
    judge: Annotated[Path | None, typer.Option(help="Table with labels, which only judge (see below).")] = None,
    device: Device = "auto",
    workers: Workers = None,
    quiet: Quiet = False,
    json_: Json = False,
) -> None:
    """Find out in minutes whether training without labels helps a model to search your text.

    A few recipes compete on dev documents. Test documents and three fresh seeds judge the best of them.

    The table of --judge has the columns query,document, or text,label, or sentence1,sentence2,score.

    To continue after an interruption, run the same command again.
    """
    from cse_cli.adapt.adapt import adapt as answer
    from cse_cli.jobs.request import RunRequest

    command = shlex.join(["cse", *sys.argv[1:]])
    request = RunRequest(device=device, workers=workers, quiet=quiet, as_json=json_, written=command)
    answer(corpus, model, pooling, minutes=minutes, out=out, judge=judge, request=request)
