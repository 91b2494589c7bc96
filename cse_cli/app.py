"""Typer app: all commands, and the place that prints errors and sets the exit code."""

from __future__ import annotations

import errno
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Never

import typer

from cse_cli import doctor
from cse_cli._version import __version__
from cse_cli.analysis import command as analysis
from cse_cli.core.console import make_usable
from cse_cli.data import command as data
from cse_cli.evaluation import command as evaluation
from cse_cli.inspection import command as inspection
from cse_cli.jobs import command as jobs
from cse_cli.listing import command as listing
from cse_cli.mirrors import command as mirrors
from cse_cli.publishing import command as publishing
from cse_cli.recipe import command as recipe
from cse_cli.reproduce import command as reproduce
from cse_cli.runs import command as runs
from cse_cli.tuning import command as tuning

app = typer.Typer(
    name="cse",
    help="Run, compare and reproduce unsupervised contrastive sentence embeddings from TOML recipes.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.command("check", epilog=data.CHECK_RECIPES_EPILOG)(data.check_recipes)
app.command("compare", epilog=analysis.COMPARE_EPILOG)(analysis.compare)
app.command("cp", epilog=recipe.COPY_EPILOG)(recipe.copy)
app.command("doctor", epilog=doctor.EPILOG)(doctor.doctor)
app.command("evaluate", epilog=evaluation.EPILOG)(evaluation.evaluate)
app.command("leaderboard", epilog=analysis.LEADERBOARD_EPILOG)(analysis.leaderboard)
app.command("list", epilog=listing.EPILOG)(listing.list_)
app.command("plan", epilog=jobs.PLAN_EPILOG)(jobs.plan)
app.command("push", epilog=publishing.EPILOG)(publishing.push)
app.command("report", epilog=analysis.REPORT_EPILOG)(analysis.report)
app.command("reproduce", epilog=reproduce.EPILOG)(reproduce.reproduce)
app.command("run", epilog=jobs.EPILOG)(jobs.run)
app.command("schema", epilog=recipe.SCHEMA_EPILOG)(recipe.schema)
app.command("show", epilog=recipe.SHOW_EPILOG)(recipe.show)
app.command("tune", epilog=tuning.EPILOG)(tuning.tune)
app.command("ui", epilog=mirrors.UI_EPILOG)(mirrors.ui)
runs.app.command("sync", epilog=mirrors.SYNC_EPILOG)(mirrors.sync)
data.app.command("inspect", epilog=inspection.EPILOG)(inspection.inspect)
all_commands: tuple[Any, ...] = (
    *app.registered_commands,
    *data.app.registered_commands,
    *runs.app.registered_commands,
    runs.app.info,
)
for command in all_commands:  # one example a line, to copy
    command.epilog = (command.epilog or "").replace("  ·  ", "\n").replace("Examples:  ", "Examples:\n")
app.add_typer(data.app, name="data")
app.add_typer(runs.app, name="runs")


def _print_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"cse {__version__}\n")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version.")
    ] = False,
) -> None:
    """Run, compare and reproduce unsupervised contrastive sentence embeddings from TOML recipes."""


def run() -> None:
    """Run the app. An error that the user can correct becomes one message on stderr and an exit code."""
    make_usable()
    try:
        _check_directory()
        sys.exit(app(prog_name="cse", standalone_mode=False) or 0)
    except Exception as error:
        _end(error)


def _check_directory() -> None:
    """Check that the current directory exists. In a deleted one, libraries end the process without a message."""
    from registry.errors import CseError

    try:
        Path.cwd()
    except FileNotFoundError:
        raise CseError(
            "the current directory no longer exists", "change to another one: cd ~", code="app.no_directory"
        ) from None


def _end(error: Exception) -> Never:
    """Print the error and exit, or raise an unexpected error."""
    from registry.errors import CseError
    from registry.paths import NO_ROOM

    if isinstance(error, CseError):
        _exit(str(error), error.exit_code)
    if isinstance(error, OSError) and (error.errno in (*NO_ROOM, errno.EROFS) or error.filename):
        about = f": {error.filename}" if error.filename else ""
        action = "free disk space" if error.errno in (*NO_ROOM, errno.EROFS) else "correct the path or its permissions"
        _exit(f"{error.strerror}{about}\n  → {action}, or set CSE_HOME to another directory, then resume the run", 4)
    if isinstance(error, typer.Abort):
        _exit("stopped without changes", 1)
    if hasattr(error, "format_message"):  # an unknown option or an invalid value
        _exit(_usage(error), 2)
    if "torch" in sys.modules:  # otherwise no component is loaded
        _end_of_computation(error)
    raise error


def _end_of_computation(error: Exception) -> None:
    """Exit after a lack of memory, or after an exception in a component that is not part of the package."""
    from cse_cli.core.devices import missing_memory
    from cse_cli.core.part_errors import explain

    if isinstance(error, RuntimeError | MemoryError) and (reason := missing_memory(error)) is not None:
        _exit(f"{reason}\n  → lower the batch size or the maximum length of sentences", 1)
    if (explained := explain(error)) is not None:
        _exit(str(explained), explained.exit_code)


def _exit(text: str, code: int) -> Never:
    from cse_cli.core.console import print_error

    if text:
        with suppress(OSError):  # stderr may be closed
            print_error(text)
    sys.exit(code)


def _usage(error: Exception) -> str:
    """Return the message of a usage error, or an empty string if the help was printed instead."""
    from pydantic import ValidationError

    from registry.machinery.validation import describe

    text: str = error.format_message()  # type: ignore[attr-defined]
    if isinstance(error.__cause__, ValidationError):
        problem = describe(error.__cause__).replace("not the text ", "not ")  # every option is a string
        text = text.replace(str(error.message), problem)  # type: ignore[attr-defined]
    if not text:
        return ""
    context = getattr(error, "ctx", None)
    command = " ".join(["cse", *sys.argv[1:2]]) if context is None else context.command_path
    return f"{text[:1].lower()}{text[1:].rstrip('.')}\n  → see the options: {command} --help"
