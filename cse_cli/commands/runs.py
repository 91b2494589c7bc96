"""`cse runs`: what has been recorded."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

_EPILOG = "Examples:  cse runs ls  ·  cse runs show 3f2a --json  ·  cse runs close 3f2a  ·  cse runs sync"

Run = Annotated[str, typer.Argument(help="Run: the first characters of its id, or its name.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]


def add(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(no_args_is_help=True, epilog=_EPILOG, help="List, show and close recorded runs.")
    group.command("ls", epilog="Examples:  cse runs ls --limit 5  ·  cse runs ls | cut -f1,5")(ls)
    group.command("show", epilog="Examples:  cse runs show 3f2a  ·  cse runs show 'quickstart seed 0'")(show)
    group.command("close", epilog="Examples:  cse runs close 3f2a  ·  cse runs close 3f2a --force")(close)
    group.command("sync", epilog="Example:  cse runs sync")(sync)
    app.add_typer(group, name="runs")


def ls(
    limit: Annotated[int, typer.Option(min=1, help="At most so many, newest first.")] = 50,
    json_: Json = False,
) -> None:
    """List runs, newest first; STALE is a run whose process is gone."""
    from cse_cli.render.runs import print_runs, write_runs_json
    from cse_cli.tracking.buffer import waiting
    from cse_cli.tracking.reader import list_runs
    from cse_cli.tracking.summary import summary

    runs = [summary(run) for run in list_runs(limit=limit)]
    (write_runs_json if json_ else print_runs)(runs)
    if not runs:
        sys.stderr.write("no run yet\n  → `cse run quickstart` makes one in about two minutes\n")
    if kept := len(waiting()):
        sys.stderr.write(f"{kept} run(s) have records their tracking store has not taken\n  → `cse runs sync`\n")


def show(run: Run, json_: Json = False) -> None:
    """Show a run: scores, curves, parameters, and where its files lie."""
    from cse_cli.render.runs import print_details, write_details_json
    from cse_cli.tracking.reader import details, find_run

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
    from cse_cli.tracking.sync import sync as send
    from registry.errors import TrackingError

    sent = send()
    for one in sent:
        sys.stdout.write(f"{one.run_id[:8]}: {one.refused or f'{one.records} records sent'}\n")
    if not sent:
        sys.stdout.write("nothing is waiting\n")
    if any(one.refused for one in sent):
        raise TrackingError("not everything could be sent", "start the tracking server, then run this again")
