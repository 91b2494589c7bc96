"""`cse runs sync`, `cse runs pull` and `cse ui`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from cse_cli.core.environment import without_password
from cse_cli.core.formatting import counted
from cse_cli.mirrors import location
from cse_cli.mirrors.mirror import GoneError, configured, load
from registry.errors import CseError, TrackingError

SYNC_EPILOG = "Examples:  cse runs sync  ·  cse runs sync --again  ·  cse runs sync --rebuild"
PULL_EPILOG = "Examples:  cse runs pull http://server:5000  ·  MLFLOW_TRACKING_URI=http://server:5000 cse runs pull"
UI_EPILOG = "Examples:  cse ui  ·  cse ui --port 5555 --no-browser"


def sync(
    again: Annotated[
        bool, typer.Option("--again", help="Also send runs again that were deleted in the tracker.")
    ] = False,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Send all runs again, to a new database if it is on this machine.")
    ] = False,
) -> None:
    """Send to MLflow, or to the mirrors in CSE_MIRRORS, what they lack of the runs."""
    names = configured()
    if not names:
        raise CseError("CSE_MIRRORS switches all mirrors off", "set it to mlflow, wandb or both")
    left = [name for name in names if not synchronize(name, again=again, rebuild=rebuild)]
    if left:
        raise TrackingError(
            f"not everything was sent to {' and '.join(left)}", "remove the cause, then run `cse runs sync` again"
        )


def synchronize(name: str, *, again: bool = False, rebuild: bool = False, err: bool = False) -> bool:
    """Send to a mirror what it lacks, print what was sent, on stderr if `err`, and return whether that was all."""
    from cse_cli.mirrors.sync import Scope, sync, waiting_elsewhere

    kind = load(name)
    complete, runs = True, 0
    for sent in sync(kind, Scope(again=again, rebuild=rebuild)):
        if sent.error is None:
            runs += 1
        elif not isinstance(sent.error, GoneError):  # of which a warning was printed
            complete = False
            typer.echo(f"{sent.about.short} ({sent.about.name}): {_message(sent.error)}", err=err)
    if runs or complete:
        what = f"sent {counted(runs, 'run')}" if runs else "up to date"
        typer.echo(f"{name}: {what}", err=err)
    for uri, number in waiting_elsewhere(name, kind.connect()).items():
        todo = "set MLFLOW_TRACKING_URI to it, and run this again"
        typer.echo(f"{name}: {counted(number, 'run')} not complete at {uri}: {todo}", err=err)
    return complete


def pull(
    uri: Annotated[
        str | None, typer.Argument(metavar="[URI]", help="Address of an MLflow server; default: MLFLOW_TRACKING_URI.")
    ] = None,
) -> None:
    """Copy finished runs of others from an MLflow server, so that leaderboard, compare and report read them."""
    from cse_cli.mirrors.pull import pull as pull_runs

    address = uri or location.uri()
    if location.is_own(address):
        raise CseError("there is no server to pull from", "give its address: `cse runs pull http://server:5000`")
    pulled = pull_runs(address)
    typer.echo(f"pulled {counted(pulled.new, 'run')} from {without_password(address)}")
    if pulled.known:
        typer.echo(f"{counted(pulled.known, 'run')} were here already")
    if pulled.unusable:
        typer.echo(f"{counted(pulled.unusable, 'run')} left out: without a readable run.toml and result.json")


def ui(
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Port; default: a free one from 5000 up.")] = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the address.")] = False,
) -> None:
    """Show runs in MLflow's pages, on this machine only, until Ctrl-C."""
    from cse_cli.mirrors.ui import serve, show

    address = location.uri()
    sys.stderr.write(f"opening {location.shown(address)} (about ten seconds)\n")
    try:
        synchronize("mlflow", err=True)
    except (TrackingError, OSError) as error:
        if not location.is_own(address) or not location.own_database().exists():
            raise
        sys.stderr.write(f"warning: {location.own_database()} may lack runs: {_message(error)}\n")  # in an archive
    if location.is_remote(address):
        show(without_password(address), no_browser)
    else:
        serve(_page(), port, no_browser)


def _page() -> str:
    """Return the page to start with: the table of the experiment of the newest run."""
    from cse_cli.mirrors.pages import table_page
    from cse_cli.mirrors.store import open_store
    from cse_cli.runs.index import all_runs

    newest = next(iter(all_runs()), None)
    try:
        found = None if newest is None else open_store().client.get_experiment_by_name(newest.about.group)
    except TrackingError:
        found = None
    return "experiments" if found is None else table_page(found.experiment_id, found.tags)


def _message(error: Exception) -> str:
    return error.message if isinstance(error, CseError) else str(error)
