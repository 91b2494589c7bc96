"""`cse runs`: list, watch, show, stop and remove runs, and exchange them as archives."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Annotated

import typer

from registry.errors import CseError

EPILOG = (
    "Examples:  cse runs ls  ·  cse runs ls --live  ·  cse runs show 3f2a --json  ·  cse runs stop 3f2a  ·  "
    "cse runs rm 3f2a"
)

Run = Annotated[str, typer.Argument(help="Run: the first characters of its ID, or its name.")]
Runs = Annotated[list[str], typer.Argument(metavar="RUN", help="Runs: the first characters of their IDs, or names.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def ls(
    recipe: Annotated[str | None, typer.Option(help="Only runs of this recipe: its name, or 'mini/*'.")] = None,
    status: Annotated[
        str | None, typer.Option(help="Only running, finished, failed, stopped, pruned or lost runs.")
    ] = None,
    tag: Annotated[
        list[str] | None, typer.Option(metavar="KEY[=VALUE]", help="Only runs with this tag; of several, with all.")
    ] = None,
    experiment: Annotated[
        str | None, typer.Option(help="Only runs of this group (`cse run --experiment`), a pattern, or experiment ID.")
    ] = None,
    since: Annotated[str | None, typer.Option(help="Only runs since 2026-11-21, or of the last 3h, 2d.")] = None,
    sort: Annotated[
        str, typer.Option(help="started, avg, gain, dev or seconds, from high to low; recipe, name or status.")
    ] = "started",
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of runs.")] = 50,
    live: Annotated[bool, typer.Option("--live", help="Watch running runs, until q or Ctrl-C.")] = False,
    json_: Json = False,
) -> None:
    """List runs, newest first. A run is LOST if its process was killed or its machine went down."""
    if live:
        _ls_live(limit, json_)
        return
    from cse_cli.runs.index import earlier_runs
    from cse_cli.runs.listing import RunQuery, check_order
    from cse_cli.runs.view import print_runs, write_runs_json

    query = RunQuery(recipe, status, tag or (), experiment, since, check_order(sort), limit)
    runs = query.lines()
    (write_runs_json if json_ else print_runs)(runs)
    if not runs and query.is_open:
        sys.stderr.write("no runs yet\n  → `cse run quickstart` makes one in about two minutes\n")
    elif not runs:
        sys.stderr.write("no run matches\n  → `cse runs ls` without options lists all runs\n")
    if earlier := earlier_runs():
        sys.stderr.write(f"{earlier}\n")


def _ls_live(limit: int, json_: bool) -> None:
    from cse_cli.runs.live import LiveRuns
    from cse_cli.runs.live_view import print_live, show_live, write_live_json

    live = LiveRuns()
    if sys.stdout.isatty() and not json_:
        show_live(lambda: live.read()[:limit])
        return
    runs = live.read()[:limit]
    (write_live_json if json_ else print_live)(runs)
    if not runs:
        sys.stderr.write("no run is running\n")


def show(run: Run, json_: Json = False) -> None:
    """Show a run: scores, curves, settings, what makes its experiment, and its files."""
    from cse_cli.runs.details import details
    from cse_cli.runs.index import find_run
    from cse_cli.runs.view import print_details, write_details_json

    (write_details_json if json_ else print_details)(details(find_run(run).run_id))


def stop(
    runs: Runs,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Do not wait until they have ended.")] = False,
) -> None:
    """Stop running runs, on any machine that shares the state directory. Each can be resumed."""
    from cse_cli.runs.stop import print_requested, request_stop, wait_until_stopped

    (print_requested if no_wait else wait_until_stopped)(request_stop(runs))


def logs(
    run: Run,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue until the run ends, or Ctrl-C.")] = False,
) -> None:
    """Print what a run has printed since its first step."""
    from cse_cli.runs.stop import print_log

    with contextlib.suppress(KeyboardInterrupt):
        print_log(run, follow=follow)


def rm(runs: Runs, yes: Yes = False) -> None:
    """Delete runs with all their files, and the runs below them, such as the trials of a search."""
    from cse_cli.core.formatting import counted
    from cse_cli.runs.removal import find_removable, remove
    from cse_cli.runs.view import print_removed

    found = find_removable(runs)
    for run in found:
        sys.stderr.write(f"{run.about.short} {run.name} {run.state}\n")
    _ask(f"delete {counted(len(found), 'run')}?", yes)
    print_removed(len(found), remove(found))


def gc(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be deleted.")] = False,
    yes: Yes = False,
) -> None:
    """Delete files that nothing needs: checkpoints of finished runs, drafts, directories without `run.toml`."""
    from cse_cli.runs.removal import find_garbage, size
    from cse_cli.runs.view import print_freed, print_garbage

    found = find_garbage()
    sizes = {one.what: size(one.paths) for one in found}
    print_garbage(sizes)
    if not found or dry_run:
        return
    _ask("delete all of this?", yes)
    for one in found:
        one.delete()
    print_freed(sum(sizes.values()))


def export(
    file: Annotated[Path, typer.Argument(help="Archive to write, such as runs.zip.", dir_okay=False)],
    run: Annotated[
        list[str] | None,
        typer.Option(help="Only this run, and the runs below it: first characters of its ID, or name."),
    ] = None,
    study: Annotated[list[str] | None, typer.Option(help="Only the runs of this study.")] = None,
) -> None:
    """Write finished runs to one archive, without weights: to publish, to send, or to continue a study elsewhere."""
    from cse_cli.runs.exchange import export_runs, find_exportable
    from cse_cli.runs.view import print_exported

    found, left_out = find_exportable(run or (), study or ())
    print_exported(file, len(found), export_runs(found, file), left_out)


def import_(
    file: Annotated[Path, typer.Argument(help="Archive made by `cse runs export`.", dir_okay=False)],
) -> None:
    """Read the runs of an archive. Runs that are already here are skipped."""
    from cse_cli.core.paths import require_home
    from cse_cli.runs.exchange import import_runs
    from cse_cli.runs.view import print_imported

    require_home()
    print_imported(*import_runs(file))


def _ask(question: str, yes: bool) -> None:
    """Ask for confirmation before something is deleted.

    Raises:
        CseError: If stdin is not a terminal.
        Exit: If the answer is no.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise CseError(f"{question} stdin is not a terminal, so you cannot answer", "add --yes to delete")
    if not typer.confirm(question, err=True):
        raise typer.Exit(1)


app = typer.Typer(no_args_is_help=True, epilog=EPILOG, help="List, watch, show, stop, remove and exchange runs.")
app.command(
    "ls",
    epilog="Examples:  cse runs ls --live  ·  cse runs ls --recipe 'mini/*' --sort avg  ·  "
    "cse runs ls --tag for=paper --since 2d  ·  cse runs ls | cut -f1,5",
)(ls)
app.command("show", epilog="Examples:  cse runs show 3f2a  ·  cse runs show 'quickstart seed 0'")(show)
app.command("logs", epilog="Examples:  cse runs logs 3f2a  ·  cse runs logs 3f2a -f")(logs)
app.command("stop", epilog="Examples:  cse runs stop 3f2a  ·  cse runs stop 3f2a 81bc --no-wait")(stop)
app.command("rm", epilog="Examples:  cse runs rm 3f2a 81bc  ·  cse runs rm 3f2a --yes")(rm)
app.command("gc", epilog="Examples:  cse runs gc --dry-run  ·  cse runs gc --yes")(gc)
app.command(
    "export", epilog="Examples:  cse runs export runs.zip  ·  cse runs export paper.zip --study studies/mini/ifcl_queue"
)(export)
app.command("import", epilog="Examples:  cse runs import runs.zip")(import_)
