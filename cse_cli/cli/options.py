"""Options that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

EXECUTION = {"rich_help_panel": "Execution"}
OUTPUT = {"rich_help_panel": "Record and output"}
"""Panels of the help."""


def _load_plugins(files: list[str] | None) -> list[str] | None:
    from registry.machinery import plugins

    for file in files or ():
        plugins.add(file)
    return files


Plugin = Annotated[
    list[str] | None,
    typer.Option(
        "--plugin",
        metavar="FILE",
        callback=_load_plugins,
        help="Python file with your components. It is executed. Repeatable.",
    ),
]

SET = "Set a dotted key of the recipe to a TOML value, for example train.steps=100. Repeatable."
UNSET = "Remove a dotted key of the recipe. Repeatable."
Set = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help=SET)]
Unset = Annotated[list[str] | None, typer.Option("--unset", metavar="KEY", help=UNSET)]
Device = Annotated[
    str, typer.Option(help="auto (this machine's accelerator, else the CPU), cpu, cuda, mps, xpu or cuda:N.")
]
Precision = Annotated[
    str | None,
    typer.Option(
        help="fp32, bf16, fp16 or auto, as --set train.precision=…. Default: the recipe's.", show_default=False
    ),
]
Portable = Annotated[
    bool,
    typer.Option(
        "--portable",
        help="Compute the same bits on every x86-64 processor with AVX2 and the same torch, as --set "
        "train.portable=true. Slower.",
        **EXECUTION,
    ),
]


def compute_settings(precision: str | None, portable: bool = False) -> list[str]:
    """Return the assignments that `--precision` and `--portable` stand for."""
    own = [] if precision is None else [f"train.precision={precision}"]
    return [*own, "train.portable=true"] if portable else own


Workers = Annotated[
    int | None, typer.Option(min=1, help="Number of runs in parallel. Default: one per GPU.", **EXECUTION)
]
Cluster = Annotated[
    str | None, typer.Option(help="Execute runs on a Ray cluster: auto, HOST:PORT or ray://HOST:PORT.", **EXECUTION)
]
StallTimeout = Annotated[
    str,
    typer.Option(help="Restart a run that reports no progress for this long, for example 90, 30m or 2h.", **EXECUTION),
]
Tag = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE", help="Tag of each run, for `cse runs ls --tag KEY=VALUE`. Repeatable.", **OUTPUT),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only results and errors.", **OUTPUT)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.", **OUTPUT)]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
