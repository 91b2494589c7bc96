"""The Typer app; the one place that prints a `CseError` and sets the exit code."""

from __future__ import annotations

import sys

import typer

app = typer.Typer(
    name="cse",
    help="Run, compare and reproduce unsupervised contrastive sentence embeddings from TOML recipes.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def run() -> None:
    """Run the app; a known error becomes one message on stderr and its exit code."""
    from cse_cli.commands import add_all

    add_all(app)
    try:
        app()
    except Exception as error:
        from registry.errors import CseError

        if not isinstance(error, CseError):
            raise
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_code)
