"""MLflow's server for `cse ui`, on this machine only."""

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
from importlib.metadata import distributions
from pathlib import Path

from cse_cli.core.paths import home
from cse_cli.mirrors import location
from registry.errors import CseError, TrackingError

HOST = "127.0.0.1"
FIRST_PORT = 5000
_PORTS = 100
_ALLOWED_HOSTS = "127.0.0.1,127.0.0.1:*,localhost,localhost:*"
"""Accepted host headers. MLflow's default list has `10.*`, which also matches `10.example.org`."""
_REMOVED_VARIABLES = (
    "MLFLOW_TRACKING_URI",  # would make the server a client of itself or of another server
    "MLFLOW_SERVER_DISABLE_SECURITY_MIDDLEWARE",
    "MLFLOW_SERVER_CORS_ALLOWED_ORIGINS",
)
_STARTUP_SECONDS = 120.0
_STOP_SECONDS = 10.0


def require_server() -> None:
    """Raise `CseError` without MLflow's server: the package `mlflow`. Tracking needs only `mlflow-skinny`."""
    if not any(distributions(name="mlflow")):
        raise CseError(
            "MLflow's server is not installed", "pip install 'cse-registry[ui]'", code="mirrors.ui_not_installed"
        )


def free_port(requested: int | None) -> int:
    """Return the requested port if it is free, or the first free one from 5000 up for None."""
    candidates = range(FIRST_PORT, FIRST_PORT + _PORTS) if requested is None else [requested]
    for port in candidates:
        if _is_free(port):
            return port
    raise TrackingError(
        f"all ports from {candidates[0]} to {candidates[-1]} are in use"
        if requested is None
        else f"--port: port {requested} is in use",
        "use another --port, or omit it to use a free port",
        code="mirrors.port_in_use",
    )


def serve(page: str, requested: int | None, no_browser: bool) -> None:
    """Run MLflow's server until Ctrl-C, SIGTERM or its own exit, and open a page of it unless `no_browser`.

    The server takes seconds to start. If another program takes the free port in the meantime, such as another server of
    MLflow, the server is started again on the next port.
    """
    log = home() / f"ui-{os.getpid()}.log"  # two at once would empty each other's
    environment = {
        **{name: value for name, value in os.environ.items() if name not in _REMOVED_VARIABLES},
        "MLFLOW_BACKEND_STORE_URI": location.uri(),  # arguments are visible to all users, with the password
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the same as Ctrl-C
    is_up = False
    while not is_up:
        port = free_port(requested)
        with log.open("wb") as file:
            process = subprocess.Popen(_server(port), env=environment, stdout=file, stderr=file)
            try:
                if is_up := _is_up(process, port):
                    show(f"http://{HOST}:{port}/#/{page}", no_browser, "Press Ctrl-C to stop.\n")
                    process.wait()
            except KeyboardInterrupt:
                log.unlink()
                return
            finally:
                _stop(process)
        if requested is not None or not _was_taken(port, log):
            break
    raise TrackingError(
        f"the MLflow server exited or does not respond: {_last_line(log)}", f"see {log}", code="mirrors.no_server"
    )


def _server(port: int) -> list[str]:
    # One worker and no job queue: 2 processes instead of 13, and a third of the start time. uvicorn imports from
    # `--app-dir` first, by default the current directory.
    options = {
        "--default-artifact-root": location.artifacts().as_uri(),
        "--host": HOST,
        "--allowed-hosts": _ALLOWED_HOSTS,
        "--port": str(port),
        "--workers": "1",
        "--uvicorn-opts": f"--log-level warning --app-dir {shlex.quote(sysconfig.get_path('purelib'))}",
    }
    command = [sys.executable, "-P", "-m", "cse_cli.mirrors.server", str(os.getpid())]
    return [*command, *(part for pair in options.items() for part in pair)]


def _is_up(process: subprocess.Popen[bytes], port: int) -> bool:
    # A request is not enough: another program may have taken the port.
    import psutil

    until = time.monotonic() + _STARTUP_SECONDS
    while process.poll() is None and time.monotonic() < until:
        with contextlib.suppress(psutil.Error):  # one of its processes has just exited
            server = psutil.Process(process.pid)
            sockets = [c for each in (server, *server.children(recursive=True)) for c in each.net_connections("tcp")]
            if any(c.status == psutil.CONN_LISTEN and c.laddr.port == port for c in sockets):
                return True
        time.sleep(0.2)
    return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    # After Ctrl-C, the terminal has sent the signal to the server too. It needs a moment to stop its worker.
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _was_taken(port: int, log: Path) -> bool:
    return not _is_free(port) or "address already in use" in log.read_text(encoding="utf-8", errors="replace").lower()


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").split("\n") if line.strip()]
    return lines[-1][:200] if lines else "its log is empty"


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def show(url: str, no_browser: bool, hint: str = "") -> None:
    """Print an address, and open it in the browser."""
    sys.stdout.write(f"{url}\n")
    sys.stdout.flush()
    sys.stderr.write(hint)
    if not no_browser:
        import webbrowser

        webbrowser.open(url)
