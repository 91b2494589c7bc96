"""Typer app: all commands, and the place that prints errors and sets the exit code."""

from __future__ import annotations

import errno
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Never

import typer

from cse_cli._version import __version__
from cse_cli.cli import adapt, data, doctor, evaluate, push, recipes, reproduce, results, runs, tune, ui
from cse_cli.cli import run as run_command
from cse_cli.core.console import make_usable

app = typer.Typer(
    name="cse",
    help="Run, compare and reproduce unsupervised contrastive sentence embeddings from TOML recipes.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.command("adapt", epilog=adapt.EPILOG)(adapt.adapt)
app.command("check", epilog=data.CHECK_RECIPES_EPILOG)(data.check_recipes)
app.command("cite", epilog=recipes.CITE_EPILOG)(recipes.cite)
app.command("compare", epilog=results.COMPARE_EPILOG)(results.compare)
app.command("cp", epilog=recipes.COPY_EPILOG)(recipes.copy)
app.command("doctor", epilog=doctor.EPILOG)(doctor.doctor)
app.command("evaluate", epilog=evaluate.EPILOG)(evaluate.evaluate)
app.command("leaderboard", epilog=results.LEADERBOARD_EPILOG)(results.leaderboard)
app.command("list", epilog=recipes.LIST_EPILOG)(recipes.list_)
app.command("plan", epilog=run_command.PLAN_EPILOG)(run_command.plan)
app.command("push", epilog=push.EPILOG)(push.push)
app.command("report", epilog=results.REPORT_EPILOG)(results.report)
app.command("reproduce", epilog=reproduce.EPILOG)(reproduce.reproduce)
app.command("run", epilog=run_command.EPILOG)(run_command.run)
app.command("schema", epilog=recipes.SCHEMA_EPILOG)(recipes.schema)
app.command("show", epilog=recipes.SHOW_EPILOG)(recipes.show)
app.command("tune", epilog=tune.EPILOG)(tune.tune)
app.command("ui", epilog=ui.UI_EPILOG)(ui.ui)
runs.app.command("sync", epilog=ui.SYNC_EPILOG)(ui.sync)
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
        from cse_cli.core.devices import missing_memory
        from cse_cli.core.part_errors import explain

        if isinstance(error, RuntimeError | MemoryError) and (reason := missing_memory(error)) is not None:
            _exit(f"{reason}\n  → lower the batch size or the maximum length of sentences", 1)
        if (explained := explain(error)) is not None:  # of a component that is not part of the package
            _exit(str(explained), explained.exit_code)
    raise error


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
