"""Shows the store in MLflow's own pages, on this machine only."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from cse_cli.core.paths import home
from cse_cli.tracking import location
from registry.errors import TrackingError

if TYPE_CHECKING:
    from cse_cli.tracking.store import Store


HOST = "127.0.0.1"
FIRST_PORT = 5000
# Without it the pages open in their view for chat applications.
_VIEW = "workflowType=machine_learning"
_STARTUP_SECONDS = 120.0
_STOP_SECONDS = 10.0


def free_port(wanted: int | None) -> int:
    """Return `wanted` if it is free, or the first free port from 5000 up where none is wanted.

    Raises:
        TrackingError: It is in use.
    """
    if wanted is not None:
        if not _is_free(wanted):
            raise TrackingError(f"port {wanted} is in use", "leave out --port to have a free one found")
        return wanted
    for port in range(FIRST_PORT, FIRST_PORT + 100):
        if _is_free(port):
            return port
    raise TrackingError(
        f"no port from {FIRST_PORT} to {FIRST_PORT + 99} is free", "name one with --port"
    )  # pragma: no cover


def serve(wanted: int | None, ready: Callable[[str], None]) -> None:
    """Run the pages until Ctrl-C, SIGTERM, or the server's own end.

    Args:
        wanted: Port on the loopback interface; none for the first free one.
        ready: Called with the address of the list of runs once it answers.

    Raises:
        TrackingError: The port is in use, or the server ended by itself.
    """
    # The database is created before the server's workers could race for it.
    from cse_cli.tracking.store import open_store

    port, store, log = free_port(wanted), open_store(), home() / "ui.log"
    previous = signal.signal(signal.SIGTERM, _interrupt)
    try:
        while not _served(store, port, ready, log) and wanted is None and not _is_free(port):
            port = free_port(None)  # another one was faster
        raise TrackingError(f"the MLflow server ended, or does not answer: {_last_line(log)}", f"see {log}")
    except KeyboardInterrupt:
        return
    finally:
        signal.signal(signal.SIGTERM, previous)


def _served(store: Store, port: int, ready: Callable[[str], None], log: Path) -> bool:
    """Run the pages to their end; return whether they came up."""
    with log.open("wb") as file:
        process = subprocess.Popen(_command(store.uri, port), env=_environment(), stdout=file, stderr=file)
    try:
        up = _wait_until_up(process, port)
        if up:
            ready(f"http://{HOST}:{port}/#/experiments/{store.experiment}/runs?{_VIEW}")
            process.wait()
        return up
    finally:
        _stop(process)


def _command(address: str, port: int) -> list[str]:
    # One worker and no job queue: 2 processes instead of 13, up in a third of the time.
    options = {
        "--backend-store-uri": address,
        "--default-artifact-root": location.artifacts().as_uri(),
        "--host": HOST,
        "--port": str(port),
        "--workers": "1",
        "--uvicorn-opts": "--log-level warning",
    }
    return [sys.executable, "-m", "mlflow", "server", *(part for pair in options.items() for part in pair)]


def _environment() -> dict[str, str]:
    # MLFLOW_TRACKING_URI would make the server a client of itself or of another one.
    kept = {name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"}
    return {**kept, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}


def _wait_until_up(process: subprocess.Popen[bytes], port: int) -> bool:
    until = time.monotonic() + _STARTUP_SECONDS
    while process.poll() is None and time.monotonic() < until:
        # Whoever was faster to take the port answers too, with the runs of another store.
        if _answers(port) and _listens(process.pid, port):
            return True
        time.sleep(0.2)
    return False


def _listens(pid: int, port: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        server = psutil.Process(pid)
        for each in (server, *server.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                if any(c.status == psutil.CONN_LISTEN and c.laddr[1] == port for c in each.net_connections("tcp")):
                    return True
    return False


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").split("\n") if line.strip()]
    return lines[-1][:200] if lines else "it said nothing"


def _answers(port: int) -> bool:
    # A proxy from the environment must not be asked for the loopback.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with contextlib.suppress(OSError), opener.open(f"http://{HOST}:{port}/health", timeout=2) as answer:
        return bool(answer.status == 200)
    return False


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _stop(process: subprocess.Popen[bytes]) -> None:
    # After Ctrl-C the terminal has told the server too; it needs a moment to end its worker.
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
