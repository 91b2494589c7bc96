"""`cse runs sync` and `cse ui`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from cse_cli.core.environment import without_password
from cse_cli.core.formatting import counted
from cse_cli.mirrors import location
from cse_cli.mirrors.mirror import GoneError, configured, load
from cse_cli.mirrors.send import reason
from registry.errors import CseError, TrackingError

SYNC_EPILOG = "Examples:  cse runs sync  ·  cse runs sync --again  ·  cse runs sync --rebuild"
UI_EPILOG = "Examples:  cse ui  ·  cse ui --port 5555 --no-browser"


def sync(
    again: Annotated[bool, typer.Option("--again", help="Also send runs that you deleted in the tracker.")] = False,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Send all runs again. A database on this machine is replaced.")
    ] = False,
) -> None:
    """Send missing events to MLflow, or to the mirrors in CSE_MIRRORS."""
    names = configured()
    if not names:
        raise CseError("CSE_MIRRORS selects no mirror", "set CSE_MIRRORS to mlflow or wandb", code="mirrors.no_mirror")
    failed = [name for name in names if not send_missing(name, again=again, rebuild=rebuild)]
    if failed:
        raise TrackingError(
            f"some events were not sent to {' and '.join(failed)}",
            "fix the cause above, then run `cse runs sync` again",
            code="mirrors.not_sent",
        )


def send_missing(name: str, *, again: bool = False, rebuild: bool = False, err: bool = False) -> bool:
    """Send missing events to a mirror, report it (on stderr with `err`), and return whether all were sent."""
    from cse_cli.mirrors.send import sync, waiting_elsewhere

    kind = load(name)
    complete, runs = True, 0
    for about, error in sync(kind, again=again, rebuild=rebuild):
        if error is None:
            runs += 1
        elif not isinstance(error, GoneError):  # a warning was printed
            complete = False
            typer.echo(f"{about.short} ({about.name}): {reason(error)}", err=err)
    if runs or complete:
        typer.echo(f"{name}: {counted(runs, 'run')} sent" if runs else f"{name}: up to date", err=err)
    for uri, number in waiting_elsewhere(name, kind.connect()).items():
        todo = "set MLFLOW_TRACKING_URI to this address and run `cse runs sync` again"
        typer.echo(f"{name}: {counted(number, 'run')} incomplete at {uri} → {todo}", err=err)
    return complete


def ui(
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Port. Default: a free one from 5000 up.")] = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address only.")] = False,
) -> None:
    """Open the MLflow UI on this machine until Ctrl-C."""
    from cse_cli.mirrors.ui import require_server, serve, show

    address = location.uri()
    if not location.is_remote(address):
        require_server()
    sys.stderr.write(f"opening {location.shown(address)} (about ten seconds)\n")
    try:
        send_missing("mlflow", err=True)
    except (TrackingError, OSError) as error:
        if not location.is_own(address) or not location.own_database().exists():
            raise
        sys.stderr.write(f"warning: {location.own_database()} may lack runs: {reason(error)}\n")  # it is read-only
    if location.is_remote(address):
        show(without_password(address), no_browser)
    else:
        serve(_page(), port, no_browser)


def _page() -> str:
    from cse_cli.mirrors.store import open_store, table_page
    from cse_cli.runs.index import all_runs

    newest = next(iter(all_runs()), None)
    try:
        found = None if newest is None else open_store().client.get_experiment_by_name(newest.about.group)
    except TrackingError:
        found = None
    return "experiments" if found is None else table_page(found.experiment_id, found.tags)
