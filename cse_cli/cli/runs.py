"""`cse runs`: list, show, stop and remove runs, and exchange them as archives."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Annotated

import typer

from cse_cli.cli.options import AsJson
from registry.errors import CseError

EPILOG = "Examples:  cse runs ls  ·  cse runs show 3f2a --json  ·  cse runs stop 3f2a  ·  cse runs rm 3f2a"

Run = Annotated[str, typer.Argument(help="ID or name of the run. A unique prefix of the ID is enough.")]
Runs = Annotated[
    list[str], typer.Argument(metavar="RUN", help="IDs or names of the runs. Unique prefixes of the IDs are enough.")
]


def ls(
    recipe: Annotated[str | None, typer.Option(help="Only runs of this recipe, for example 'mini/*'.")] = None,
    status: Annotated[
        str | None, typer.Option(help="Only runs with this status: running, finished, failed, stopped, pruned or lost.")
    ] = None,
    tag: Annotated[
        list[str] | None, typer.Option(metavar="KEY[=VALUE]", help="Only runs with this tag. Repeatable.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="Only runs since this time, for example 2026-11-21, 3h or 2d.")
    ] = None,
    sort: Annotated[
        str, typer.Option(help="Order: started, avg, gain, dev or seconds (high to low), recipe, name or status.")
    ] = "started",
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of runs.")] = 50,
    trials: Annotated[bool, typer.Option("--trials", help="List the trials of searches, too.")] = False,
    json_: AsJson = False,
) -> None:
    """List runs, newest first, and each search in one line.

    LOST means that the process was killed or its machine went down.
    """
    from cse_cli.core.formatting import counted
    from cse_cli.runs.listing import fold_trials, print_runs, select_runs, write_runs_json

    found = select_runs(recipe=recipe, status=status, tags=tag or (), since=since, sort=sort)
    others, folded = fold_trials(found)
    runs = (found if trials else others)[:limit]
    if json_:
        write_runs_json(runs)
    else:
        print_runs(runs, folded)
    if folded and not trials:
        sys.stderr.write(f"{counted(folded.total(), 'trial')} of searches not listed\n  → cse runs ls --trials\n")
    elif not runs and any((recipe, status, tag, since)):
        sys.stderr.write("no run matches\n  → list all runs: cse runs ls\n")
    elif not runs:
        sys.stderr.write("no runs yet\n  → cse run quickstart (takes about two minutes)\n")


def show(
    run: Run,
    all_: Annotated[bool, typer.Option("--all", help="Add all curves, metrics, settings, identity and files.")] = False,
    json_: AsJson = False,
) -> None:
    """Show scores, curves of loss and scores, changed settings, warnings and the model of a run."""
    from cse_cli.runs.details import show_details
    from cse_cli.runs.index import find_run

    show_details(find_run(run), everything=all_, json_=json_)


def stop(
    runs: Runs,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Return immediately.")] = False,
    json_: AsJson = False,
) -> None:
    """Stop running runs on any machine that shares the state directory. You can resume them."""
    from cse_cli.core.console import write_json
    from cse_cli.runs.control import request_stop, wait_until_stopped

    requested = request_stop(runs)
    states = []
    for run in requested if no_wait else wait_until_stopped(requested):
        state = "requested to stop" if no_wait else run.state.lower()
        states.append({"id": run.run_id, "name": run.name, "state": state})
        if not json_:
            sys.stdout.write(f"{run.about.short} {run.name}: {state}\n")
    if json_:
        write_json({"runs": states})


def logs(
    run: Run,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue until the run ends, or Ctrl-C.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print the recorded events, one JSON object per line.")] = False,
) -> None:
    """Print the log of a run."""
    from cse_cli.runs.details import print_log

    with contextlib.suppress(KeyboardInterrupt):
        print_log(run, follow=follow, json_=json_)


def rm(
    runs: Annotated[
        list[str] | None, typer.Argument(metavar="RUN", help="IDs or names of runs, or names of searches.")
    ] = None,
    recipe: Annotated[str | None, typer.Option(help="All runs of this recipe, for example 'mini/*'.")] = None,
    status: Annotated[str | None, typer.Option(help="All runs with this status, for example failed.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="All runs and searches.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")] = False,
    json_: AsJson = False,
) -> None:
    """Delete runs with all their files and child runs, and searches with all their trials.

    You choose runs by name, or by --recipe and --status, or all.
    """
    from rich.filesize import decimal

    from cse_cli.core.console import write_json
    from cse_cli.core.formatting import counted
    from cse_cli.runs.control import find_removable, remove
    from cse_cli.runs.listing import select_runs

    if (how := bool(runs) + (recipe is not None or status is not None) + all_) != 1:
        fault = "no run is named" if how == 0 else "names, --recipe or --status, and --all exclude each other"
        raise CseError(fault, "cse runs rm RUN, --recipe NAME, --status failed or --all", code="runs.nothing_to_remove")
    found = find_removable(runs or [run.run_id for run in select_runs(recipe=recipe, status=status)])
    if not found:
        sys.stderr.write("no run matches\n  → list all runs: cse runs ls\n")
        if json_:
            write_json({"removed": [], "freed_bytes": 0})
        return
    for run in found:
        sys.stderr.write(f"{run.about.short} {run.name} {run.state}\n")
    question = f"delete {counted(len(found), 'run')}?"
    if not yes and not sys.stdin.isatty():
        raise CseError(
            f"{question} cannot confirm, because stdin is not a terminal", "add --yes", code="runs.not_confirmed"
        )
    if not yes and not typer.confirm(question, err=True):
        raise typer.Exit(1)
    freed = remove(found)
    if json_:
        write_json({"removed": [run.run_id for run in found], "freed_bytes": freed})
    else:
        sys.stdout.write(f"{counted(len(found), 'run')} removed, {decimal(freed)} freed\n")
    sys.stderr.write("Copies in MLflow and other trackers still exist. Delete them in the tracker.\n")


def export(
    file: Annotated[Path, typer.Argument(help="Archive to write, for example runs.zip.", dir_okay=False)],
    run: Annotated[
        list[str] | None, typer.Option(help="Only this run and its child runs: ID prefix or name. Repeatable.")
    ] = None,
    study: Annotated[list[str] | None, typer.Option(help="Only runs of this study. Repeatable.")] = None,
    small: Annotated[
        bool, typer.Option("--small", help="Omit figures and the scores of each pair, which `cse compare` resamples.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing archive.")] = False,
    json_: AsJson = False,
) -> None:
    """Write finished runs, without weights, to an archive that another state directory can import."""
    from rich.filesize import decimal

    from cse_cli.core.console import write_json
    from cse_cli.core.formatting import counted
    from cse_cli.runs.exchange import export_runs, find_exportable

    if file.exists() and not force:
        raise CseError(f"{file} exists", "add --force to overwrite it, or choose another file", code="runs.file_exists")
    found, skipped = find_exportable(run or (), study or ())
    size = export_runs(found, file, small=small)
    if json_:
        write_json({"path": str(file), "runs": len(found), "skipped": skipped, "bytes": size})
    else:
        sys.stdout.write(f"{file}: {counted(len(found), 'run')}, {decimal(size)}\n")
    if skipped:
        sys.stderr.write(f"{counted(skipped, 'run')} skipped: not finished, or without a readable result\n")


def import_(
    file: Annotated[Path, typer.Argument(help="Archive from `cse runs export`.", dir_okay=False)],
    json_: AsJson = False,
) -> None:
    """Import the runs of an archive. Runs that already exist are skipped."""
    from cse_cli.core.console import write_json
    from cse_cli.core.formatting import counted
    from cse_cli.core.paths import require_home
    from cse_cli.runs.exchange import import_runs

    require_home()
    new, known = import_runs(file)
    if json_:
        write_json({"imported": new, "skipped": known})
        return
    sys.stdout.write(f"{counted(new, 'run')} imported{f', {known} skipped (already exist)' if known else ''}\n")


app = typer.Typer(no_args_is_help=True, epilog=EPILOG, help="List, show, stop, remove and exchange runs.")
app.command(
    "ls",
    epilog="Examples:  cse runs ls --recipe 'mini/*' --sort avg  ·  "
    "cse runs ls --tag for=paper --since 2d  ·  cse runs ls | cut -f1,5",
)(ls)
app.command("show", epilog="Examples:  cse runs show 3f2a --all  ·  cse runs show 'quickstart seed 0'")(show)
app.command("logs", epilog="Examples:  cse runs logs 3f2a  ·  cse runs logs 3f2a -f")(logs)
app.command("stop", epilog="Examples:  cse runs stop 3f2a  ·  cse runs stop 3f2a 81bc --no-wait")(stop)
app.command(
    "rm", epilog="Examples:  cse runs rm 3f2a 81bc  ·  cse runs rm --status failed  ·  cse runs rm --all --yes"
)(rm)
app.command(
    "export", epilog="Examples:  cse runs export runs.zip  ·  cse runs export paper.zip --study studies/mini/ifcl_queue"
)(export)
app.command("import", epilog="Examples:  cse runs import runs.zip")(import_)
