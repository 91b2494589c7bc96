"""`cse runs`: what is at work and has been recorded. `cse ui`: the same in MLflow's pages, on this machine only."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from typing import Annotated

import typer

from cse_cli.core.environment import without_password
from cse_cli.core.paths import home
from cse_cli.tracking import location
from registry.errors import CseError, TrackingError

RUNS_EPILOG = (
    "Examples:  cse runs ls  ·  cse runs ls --live  ·  cse runs show 3f2a --json  ·  cse runs stop 3f2a  ·  "
    "cse runs rm 3f2a"
)
UI_EPILOG = "Examples:  cse ui  ·  cse ui --port 5555 --no-browser"

HOST = "127.0.0.1"
FIRST_PORT = 5000
_PORTS = 100
_ALLOWED_HOSTS = "127.0.0.1,127.0.0.1:*,localhost,localhost:*"
"""Host headers that are answered. MLflow's own list has `10.*`, which a stranger's `10.example.org` fits too."""
_OF_OTHER_SERVERS = (
    "MLFLOW_TRACKING_URI",  # would make the server a client of itself or of another one
    "MLFLOW_SERVER_DISABLE_SECURITY_MIDDLEWARE",
    "MLFLOW_SERVER_CORS_ALLOWED_ORIGINS",
)
"""Variables that the server of `cse ui` does not get."""
_STARTUP_SECONDS = 120.0
_STOP_SECONDS = 10.0

Run = Annotated[str, typer.Argument(help="Run: the first characters of its id, or its name.")]
Runs = Annotated[list[str], typer.Argument(metavar="RUN", help="Runs: the first characters of their ids, or names.")]
RunId = Annotated[str, typer.Argument(help="Run: the first characters of its id.")]
RunIds = Annotated[list[str], typer.Argument(metavar="RUN", help="Runs: the first characters of their ids.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]


def ls(
    recipe: Annotated[str | None, typer.Option(help="Of this recipe: its name, or a pattern such as 'mini/*'.")] = None,
    status: Annotated[str | None, typer.Option(help="finished, running, failed, killed or gone.")] = None,
    tag: Annotated[
        list[str] | None, typer.Option(metavar="KEY[=VALUE]", help="With this tag; of several, with all.")
    ] = None,
    experiment: Annotated[str | None, typer.Option(help="Of this MLflow experiment, or a pattern.")] = None,
    since: Annotated[str | None, typer.Option(help="Started since: 2026-11-21, or 3h, 2d for so long ago.")] = None,
    sort: Annotated[
        str, typer.Option(help="started, avg, gain, dev or seconds, the highest first; recipe, name or status.")
    ] = "started",
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 50,
    live: Annotated[bool, typer.Option("--live", help="Watch the runs at work, until q or Ctrl-C.")] = False,
    json_: Json = False,
) -> None:
    """List runs, newest first; a run is GONE whose process has ended without a word."""
    if live:
        _ls_live(limit, json_)
        return
    from cse_cli.tracking.listing import RunQuery, check_order
    from cse_cli.tracking.unsent import waiting
    from cse_cli.tracking.view import print_runs, write_runs_json

    query = RunQuery(recipe, status, tag or (), experiment, since, check_order(sort), limit)
    runs = query.lines()
    (write_runs_json if json_ else print_runs)(runs)
    if not runs and query.is_open:
        sys.stderr.write("no run yet\n  → `cse run quickstart` makes one in about two minutes\n")
    elif not runs:
        sys.stderr.write("no such run\n  → `cse runs ls` without options shows all\n")
    if kept := len(waiting()):
        sys.stderr.write(f"{kept} run(s) have records their tracking store has not taken\n  → `cse runs sync`\n")


def _ls_live(limit: int, json_: bool) -> None:
    from cse_cli.core.run_status import all_statuses
    from cse_cli.tracking.live_view import print_live, show_live, write_live_json

    if sys.stdout.isatty() and not json_:
        show_live(lambda: all_statuses()[:limit])
        return
    runs = all_statuses()[:limit]
    (write_live_json if json_ else print_live)(runs)
    if not runs:
        sys.stderr.write("no run is at work\n")


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
    from cse_cli.core.run_status import forget_status
    from cse_cli.tracking.reader import close_run, find_run

    closed = close_run(find_run(run), force)
    forget_status(closed.run_id)
    sys.stdout.write(f"{closed.run_id[:8]} {closed.name}: {closed.status}\n")


def rm(
    runs: Runs,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove runs, and those below them as a search's trials: from lists, and their folders for good."""
    from cse_cli.core.formatting import counted
    from cse_cli.tracking.removal import find_removable, remove
    from cse_cli.tracking.store import answering
    from cse_cli.tracking.view import print_removed

    found = find_removable(runs)
    for run in found:
        sys.stderr.write(f"{run.run_id[:8]} {run.name} {run.status}\n")
    _ask(f"remove {counted(len(found), 'run')}?", yes)
    with answering():
        freed = remove(found)
    print_removed(found, freed)


def gc(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be deleted.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete for good what was removed, folders without a run, and checkpoints that finished runs have left."""
    from cse_cli.core.formatting import counted
    from cse_cli.tracking.removal import find_garbage, garbage_size
    from cse_cli.tracking.store import answering
    from cse_cli.tracking.view import print_freed, print_garbage

    with answering():
        found, lost = find_garbage()
    size = garbage_size(found)
    print_garbage({one.what: garbage_size([one]) for one in found}, size)
    if lost:
        sys.stderr.write(f"folders of {counted(lost, 'run')} that the store has lost stay\n  → `cse doctor --repair`\n")
    if not found or dry_run:
        return
    _ask("delete all of this for good?", yes)
    with answering():
        for one in found:
            one.collect()
    print_freed(size)


def _ask(question: str, yes: bool) -> None:
    """Ask before something is deleted.

    Raises:
        CseError: Nobody can be asked.
        Exit: The answer is no.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise CseError(f"{question} Nobody can be asked here", "--yes does it without asking")
    if not typer.confirm(question, err=True):
        raise typer.Exit(1)


def stop(
    runs: RunIds,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Only ask; do not wait until they have ended.")] = False,
) -> None:
    """Ask runs at work to stop, on whichever machine; each can be resumed from its last checkpoint."""
    from cse_cli.tracking.at_work import ask_to_stop, print_asked, wait_until_stopped

    asked = ask_to_stop(runs)
    if no_wait:
        print_asked(asked)
    else:
        wait_until_stopped(asked)


def logs(
    run: RunId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run ends, or Ctrl-C.")] = False,
) -> None:
    """Print what a run has told since its first step."""
    from cse_cli.tracking.at_work import print_log

    with contextlib.suppress(KeyboardInterrupt):
        print_log(run, follow=follow)


def sync(
    discard: Annotated[
        bool, typer.Option("--discard", help="Give up what a store refuses: it stays in the run's folder, unsent.")
    ] = False,
) -> None:
    """Send what runs kept on disk while their tracking server was away."""
    from cse_cli.tracking import unsent

    sent = unsent.sync(discard=discard)
    for one in sent:
        end = "" if one.aside is None else f"; given up, and kept in {one.aside}"
        sys.stdout.write(f"{one.run_id[:8]}: {one.refused or f'{one.records} records sent'}{end}\n")
    if not sent:
        sys.stdout.write("nothing is waiting\n")
    left = [one for one in sent if one.refused and one.aside is None]
    if any(not one.by_store for one in left):
        raise TrackingError("not everything could be sent", "start the tracking server, then run this again")
    if left:
        raise TrackingError(
            "not everything could be sent: the tracking store refuses it",
            "restore runs deleted in MLflow's pages there, or give the records up: `cse runs sync --discard`",
        )


def ui(
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Port; default: a free one from 5000 up.")] = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the address.")] = False,
) -> None:
    """Show recorded runs in MLflow's pages, on this machine only, until Ctrl-C."""
    address = location.uri()
    if location.is_remote(address):
        _open(without_password(address), no_browser)
        return
    sys.stderr.write(f"opening {without_password(address)} (about ten seconds)\n")
    _serve(port, no_browser)


def free_port(wanted: int | None) -> int:
    """Return `wanted` if it is free, or the first free port from 5000 up where none is wanted.

    Raises:
        TrackingError: It is in use.
    """
    candidates = range(FIRST_PORT, FIRST_PORT + _PORTS) if wanted is None else [wanted]
    for port in candidates:
        if _is_free(port):
            return port
    if wanted is not None:
        raise TrackingError(f"port {wanted} is in use", "leave out --port to have a free one found")
    raise TrackingError(f"no port from {FIRST_PORT} to {FIRST_PORT + _PORTS - 1} is free", "name one with --port")


def _serve(wanted: int | None, no_browser: bool) -> None:
    """Run MLflow's server until Ctrl-C, SIGTERM or its own end.

    It takes seconds to start. Where no port is wanted and another program takes the free one meanwhile, as a second
    `cse ui` does, it is started again on the next.
    """
    from cse_cli.tracking.store import open_store

    # The database is created before the server's workers could race for it.
    store, log = open_store(), home() / "ui.log"
    settings = {
        **{name: value for name, value in os.environ.items() if name not in _OF_OTHER_SERVERS},
        "MLFLOW_BACKEND_STORE_URI": store.uri,  # and not as an argument: every user sees those, with the password
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # both end it in the same way
    is_up = False
    while not is_up:
        port = free_port(wanted)
        with log.open("wb") as file:
            process = subprocess.Popen(_server(port), env=settings, stdout=file, stderr=file)
            try:
                if is_up := _is_up(process, port):
                    _open(f"http://{HOST}:{port}/#/{_page()}", no_browser, "Ctrl-C ends it\n")
                    process.wait()
            except KeyboardInterrupt:
                return
            finally:
                _stop(process)
        if wanted is not None or not _was_taken(port, log):
            break
    raise TrackingError(f"the MLflow server ended, or does not answer: {_last_line(log)}", f"see {log}")


def _page() -> str:
    """Return the page to begin with: the table of the experiment that the newest run is in."""
    from cse_cli.tracking.pages import table_page
    from cse_cli.tracking.reader import newest_experiment

    newest = newest_experiment()
    return "experiments" if newest is None else table_page(*newest)


def _server(port: int) -> list[str]:
    # One worker and no job queue: 2 processes instead of 13, up in a third of the time. uvicorn puts its `--app-dir`
    # first in the path, by default the current folder.
    options = {
        "--default-artifact-root": location.artifacts().as_uri(),
        "--host": HOST,
        "--allowed-hosts": _ALLOWED_HOSTS,
        "--port": str(port),
        "--workers": "1",
        "--uvicorn-opts": f"--log-level warning --app-dir {shlex.quote(sysconfig.get_path('purelib'))}",
    }
    command = [sys.executable, "-P", "-m", "cse_cli.tracking.server", str(os.getpid())]
    return [*command, *(part for pair in options.items() for part in pair)]


def _is_up(process: subprocess.Popen[bytes], port: int) -> bool:
    """Wait until the server, and no other that was faster to take the port, listens."""
    import psutil

    until = time.monotonic() + _STARTUP_SECONDS
    while process.poll() is None and time.monotonic() < until:
        with contextlib.suppress(psutil.Error):  # one of its processes has just ended
            server = psutil.Process(process.pid)
            sockets = [c for each in (server, *server.children(recursive=True)) for c in each.net_connections("tcp")]
            if any(c.status == psutil.CONN_LISTEN and c.laddr.port == port for c in sockets):
                return True
        time.sleep(0.2)
    return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    # After Ctrl-C the terminal has told the server too; it needs a moment to end its worker.
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _was_taken(port: int, log: Path) -> bool:
    """Return whether a server ended because another program has its port, or had it: one needs seconds to end."""
    return not _is_free(port) or "address already in use" in log.read_text(encoding="utf-8", errors="replace").lower()


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").split("\n") if line.strip()]
    return lines[-1][:200] if lines else "it said nothing"


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def _open(url: str, no_browser: bool, hint: str = "") -> None:
    sys.stdout.write(f"{url}\n")
    sys.stdout.flush()
    sys.stderr.write(hint)
    if not no_browser:
        import webbrowser

        webbrowser.open(url)


app = typer.Typer(no_args_is_help=True, epilog=RUNS_EPILOG, help="List, watch, show, stop, close and remove runs.")
app.command(
    "ls",
    epilog="Examples:  cse runs ls --live  ·  cse runs ls --recipe 'mini/*' --sort avg  ·  "
    "cse runs ls --tag for=paper --since 2d  ·  cse runs ls | cut -f1,5",
)(ls)
app.command("show", epilog="Examples:  cse runs show 3f2a  ·  cse runs show 'quickstart seed 0'")(show)
app.command("logs", epilog="Examples:  cse runs logs 3f2a  ·  cse runs logs 3f2a -f")(logs)
app.command("stop", epilog="Examples:  cse runs stop 3f2a  ·  cse runs stop 3f2a 81bc --no-wait")(stop)
app.command("close", epilog="Examples:  cse runs close 3f2a  ·  cse runs close 3f2a --force")(close)
app.command("rm", epilog="Examples:  cse runs rm 3f2a 81bc  ·  cse runs rm 3f2a --yes")(rm)
app.command("gc", epilog="Examples:  cse runs gc --dry-run  ·  cse runs gc --yes")(gc)
app.command("sync", epilog="Examples:  cse runs sync  ·  cse runs sync --discard")(sync)
