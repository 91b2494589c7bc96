"""Sending of missing events to the mirrors (`cse runs sync`), and the server of `cse ui`."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
import sysconfig
import threading
import time
from contextlib import suppress
from importlib.metadata import distributions
from tempfile import TemporaryFile
from typing import Any, TextIO

from cse_cli.core.console import write_json
from cse_cli.core.environment import without_password
from cse_cli.core.formatting import counted
from cse_cli.core.processes import end_with_parent
from cse_cli.mirrors.mirror import configured, load, reason, send_missing
from cse_cli.runs.index import all_runs
from registry.errors import CseError, TrackingError, install_command

HOST = "127.0.0.1"
_STARTUP_SECONDS = 120.0
_REMOVED_VARIABLES = (
    "MLFLOW_TRACKING_URI",  # would make the server a client of itself or of another server
    "MLFLOW_SERVER_DISABLE_SECURITY_MIDDLEWARE",
    "MLFLOW_SERVER_CORS_ALLOWED_ORIGINS",
)


def sync(*, json_: bool = False) -> None:
    """Send the runs that MLflow, or a mirror in CSE_MIRRORS, does not have completely, and print what was sent."""
    names = configured()
    if not names:
        raise CseError("CSE_MIRRORS selects no mirror", "set CSE_MIRRORS to mlflow or wandb", code="mirrors.no_mirror")
    found = [_send(name, None if json_ else sys.stdout) for name in names]
    if json_:
        write_json({"mirrors": found})
    if failed := [one["mirror"] for one in found if one["failed"]]:
        problem = f"some events were not sent to {' and '.join(failed)}"
        raise TrackingError(problem, "fix the cause above, then run `cse runs sync` again", code="mirrors.not_sent")


def _send(name: str, out: TextIO | None) -> dict[str, Any]:
    """Send the missing runs, and print and return which were not sent and how many were."""
    found = list(send_missing(load(name)))
    failed = [(about, reason(error)) for about, error in found if error is not None]
    sent = len(found) - len(failed)
    if out is not None:
        out.writelines(f"{about.short} ({about.name}): {why}\n" for about, why in failed)
        out.write(f"{name}: {counted(sent, 'run')} sent\n" if found else f"{name}: up to date\n")
    return {"mirror": name, "sent": sent, "failed": {about.run_id: why for about, why in failed}}


def serve(port: int | None, *, browser: bool) -> None:
    """Open the MLflow UI on this machine until Ctrl-C. Without a port, it has a free one from 5000 up."""
    from cse_cli.mirrors import mlflow as store

    if not store.is_remote() and not any(distributions(name="mlflow")):  # recording needs only mlflow-skinny
        todo = f"run `{install_command('ui')}`"
        raise CseError("MLflow's server is not installed", todo, code="mirrors.ui_not_installed")
    sys.stderr.write("opening MLflow (about ten seconds)\n")
    _send("mlflow", sys.stderr)
    if store.is_remote():
        address = without_password(store.uri())
        _show(f"{address.rstrip('/')}/#/{_page()}" if address.startswith("http") else address, browser)
        return
    port = free_port(port)
    command = [sys.executable, "-P", "-m", "cse_cli.mirrors.ui", str(os.getpid()), *_options(port)]
    environment = {name: value for name, value in os.environ.items() if name not in _REMOVED_VARIABLES}
    environment["MLFLOW_BACKEND_STORE_URI"] = store.uri()  # all users see arguments, with the password
    environment["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] = "false"  # 2 processes instead of 13
    until = time.monotonic() + _STARTUP_SECONDS
    with TemporaryFile() as log, subprocess.Popen(command, env=environment, stdout=log, stderr=log) as server:
        while server.poll() is None and time.monotonic() < until:
            time.sleep(0.2)
            with suppress(OSError):
                socket.create_connection((HOST, port), timeout=1).close()
                with suppress(KeyboardInterrupt):
                    _show(f"http://{HOST}:{port}/#/{_page()}", browser)
                    sys.stderr.write(
                        'If you see "Traces", choose Model training at the top left. Press Ctrl-C to stop.\n'
                    )
                    # With a timeout, Python waits in short sleeps. Polars, which MLflow imports if it is installed,
                    # makes the system continue one long wait after Ctrl-C.
                    server.wait(threading.TIMEOUT_MAX)
                server.terminate()
                return
        server.kill()
        log.seek(0)
        lines = log.read().decode(errors="replace").split("\n")
    why = next((line.strip() for line in reversed(lines) if line.strip()), "no response")
    raise TrackingError(f"the MLflow server does not run: {why}", "try another --port", code="mirrors.no_server")


def free_port(requested: int | None) -> int:
    """Return the requested port if it is free, or the first free one from 5000 up for None."""
    for port in range(5000, 5100) if requested is None else [requested]:
        with suppress(OSError), socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((HOST, port))
            return port
    taken = "all ports from 5000 to 5099 are" if requested is None else f"--port: port {requested} is"
    todo = "use another --port, or omit it to use a free port"
    raise TrackingError(f"{taken} in use", todo, code="mirrors.port_in_use")


def _options(port: int) -> list[str]:
    # uvicorn imports from `--app-dir` first, by default the current directory. MLflow's default list of hosts has
    # `10.*`, which also matches `10.example.org`.
    from cse_cli.mirrors.mlflow import artifacts

    return [
        f"--default-artifact-root={artifacts().as_uri()}",
        f"--host={HOST}",
        f"--allowed-hosts={HOST},{HOST}:*,localhost,localhost:*",
        f"--port={port}",
        "--workers=1",
        f"--uvicorn-opts=--log-level warning --app-dir {shlex.quote(sysconfig.get_path('purelib'))}",
    ]


def _page() -> str:
    """Return the page of the newest run's experiment, sorted by the average score."""
    from mlflow import MlflowClient

    from cse_cli.mirrors.mlflow import uri

    newest = next(iter(all_runs()), None)
    found = newest and MlflowClient(uri()).get_experiment_by_name(newest.about.group)
    # Without the first parameter, the page opens in the view for chat applications.
    query = "workflowType=machine_learning&orderByKey=metrics.%60eval%2Favg%60&orderByAsc=false"
    return f"experiments/{found.experiment_id}/runs?{query}" if found else "experiments"


def _show(url: str, browser: bool) -> None:
    sys.stdout.write(f"{url}\n")
    sys.stdout.flush()
    if browser:
        import webbrowser

        webbrowser.open(url)


if __name__ == "__main__":  # MLflow's server, until the process of the first argument ends
    end_with_parent(int(sys.argv[1]))
    from mlflow.cli import cli

    cli(["server", *sys.argv[2:]], prog_name="mlflow")
