"""`cse runs`: what has been recorded.

`cse ui`: recorded runs in the browser.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

RUNS_EPILOG = "Examples:  cse runs ls  ·  cse runs show 3f2a --json  ·  cse runs close 3f2a  ·  cse runs sync"

Run = Annotated[str, typer.Argument(help="Run: the first characters of its id, or its name.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]


def ls(
    limit: Annotated[int, typer.Option(min=1, help="At most so many, newest first.")] = 50,
    json_: Json = False,
) -> None:
    """List runs, newest first; STALE is a run whose process is gone."""
    from cse_cli.tracking.reader import list_runs, summary
    from cse_cli.tracking.view import print_runs, write_runs_json
    from cse_cli.tracking.writes import waiting

    runs = [summary(run) for run in list_runs(limit=limit)]
    (write_runs_json if json_ else print_runs)(runs)
    if not runs:
        sys.stderr.write("no run yet\n  → `cse run quickstart` makes one in about two minutes\n")
    if kept := len(waiting()):
        sys.stderr.write(f"{kept} run(s) have records their tracking store has not taken\n  → `cse runs sync`\n")


def show(run: Run, json_: Json = False) -> None:
    """Show a run: scores, curves, parameters, and where its files lie."""
    from cse_cli.tracking.reader import details, find_run
    from cse_cli.tracking.view import print_details, write_details_json

    (write_details_json if json_ else print_details)(details(find_run(run)))


def close(
    run: Run,
    force: Annotated[bool, typer.Option("--force", help="Also a run that seems alive.")] = False,
) -> None:
    """Mark a run whose process is gone as KILLED."""
    from cse_cli.tracking.reader import close_run, find_run

    closed = close_run(find_run(run), force)
    sys.stdout.write(f"{closed.run_id[:8]} {closed.name}: {closed.status}\n")


def sync() -> None:
    """Send what runs kept on disk while their tracking server was away."""
    from cse_cli.tracking.mlflow_tracker import sync as send
    from registry.errors import TrackingError

    sent = send()
    for one in sent:
        sys.stdout.write(f"{one.run_id[:8]}: {one.refused or f'{one.records} records sent'}\n")
    if not sent:
        sys.stdout.write("nothing is waiting\n")
    if any(one.refused for one in sent):
        raise TrackingError("not everything could be sent", "start the tracking server, then run this again")


UI_EPILOG = "Examples:  cse ui  ·  cse ui --port 5555 --no-browser"


def ui(
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Port; default: a free one from 5000 up.")] = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the address.")] = False,
) -> None:
    """Show recorded runs in MLflow's pages, on this machine only, until Ctrl-C."""
    from cse_cli.core.environment import without_password
    from cse_cli.tracking import location
    from cse_cli.tracking.server import serve

    address = location.uri()
    if location.is_remote(address):
        _open(without_password(address), no_browser)
        return
    sys.stderr.write(f"opening {without_password(address)} (about ten seconds)\n")
    serve(port, lambda url: _open(url, no_browser, "Ctrl-C ends it\n"))


def _open(url: str, no_browser: bool, hint: str = "") -> None:
    sys.stdout.write(f"{url}\n")
    sys.stdout.flush()
    sys.stderr.write(hint)
    if not no_browser:
        import webbrowser

        webbrowser.open(url)


app = typer.Typer(no_args_is_help=True, epilog=RUNS_EPILOG, help="List, show and close recorded runs.")
app.command("ls", epilog="Examples:  cse runs ls --limit 5  ·  cse runs ls | cut -f1,5")(ls)
app.command("show", epilog="Examples:  cse runs show 3f2a  ·  cse runs show 'quickstart seed 0'")(show)
app.command("close", epilog="Examples:  cse runs close 3f2a  ·  cse runs close 3f2a --force")(close)
app.command("sync", epilog="Example:  cse runs sync")(sync)
