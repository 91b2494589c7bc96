"""MLflow's pages on this machine: starts MLflow's server and ends it."""

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

from cse_cli.core.paths import home
from cse_cli.mirrors import location
from registry.errors import TrackingError

HOST = "127.0.0.1"
FIRST_PORT = 5000
_PORTS = 100
_ALLOWED_HOSTS = "127.0.0.1,127.0.0.1:*,localhost,localhost:*"
"""Host headers that are answered. MLflow's own list has `10.*`, which also matches `10.example.org`."""
_OF_OTHER_SERVERS = (
    "MLFLOW_TRACKING_URI",  # would make the server a client of itself or of another one
    "MLFLOW_SERVER_DISABLE_SECURITY_MIDDLEWARE",
    "MLFLOW_SERVER_CORS_ALLOWED_ORIGINS",
)
"""Variables that the server does not get."""
_STARTUP_SECONDS = 120.0
_STOP_SECONDS = 10.0


def free_port(wanted: int | None) -> int:
    """Return `wanted` if it is free, or the first free port from 5000 up if it is None.

    Raises:
        TrackingError: If it is in use.
    """
    candidates = range(FIRST_PORT, FIRST_PORT + _PORTS) if wanted is None else [wanted]
    for port in candidates:
        if _is_free(port):
            return port
    if wanted is not None:
        raise TrackingError(f"port {wanted} is in use", "leave out --port to use a free one")
    raise TrackingError(f"no port from {FIRST_PORT} to {FIRST_PORT + _PORTS - 1} is free", "choose one with --port")


def serve(page: str, wanted: int | None, no_browser: bool) -> None:
    """Run MLflow's server until Ctrl-C, SIGTERM or its own end.

    It takes seconds to start. If no port is wanted and another program takes the free one meanwhile, as a second
    `cse ui` does, it is started again on the next.

    Args:
        page: Page to open, below the address of the server.
        wanted: Port, or None for a free one.
        no_browser: Whether only to print the address.

    Raises:
        TrackingError: If the server does not start, or ends.
    """
    log = home() / "ui.log"
    environment = {
        **{name: value for name, value in os.environ.items() if name not in _OF_OTHER_SERVERS},
        "MLFLOW_BACKEND_STORE_URI": location.uri(),  # not as an argument, which every user can see, with the password
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # both end it in the same way
    is_up = False
    while not is_up:
        port = free_port(wanted)
        with log.open("wb") as file:
            process = subprocess.Popen(_server(port), env=environment, stdout=file, stderr=file)
            try:
                if is_up := _is_up(process, port):
                    show(f"http://{HOST}:{port}/#/{page}", no_browser, "press Ctrl-C to end it\n")
                    process.wait()
            except KeyboardInterrupt:
                return
            finally:
                _stop(process)
        if wanted is not None or not _was_taken(port, log):
            break
    raise TrackingError(f"the MLflow server ended, or does not answer: {_last_line(log)}", f"see {log}")


def _server(port: int) -> list[str]:
    # One worker and no job queue: 2 processes instead of 13, and a third of the time to start. uvicorn puts its
    # `--app-dir` first in the path, by default the current directory.
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
    """Wait until the server listens, and not another program that was faster to take the port."""
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
    # After Ctrl-C, the server received the signal from the terminal too. It needs a moment to end its worker.
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _was_taken(port: int, log: Path) -> bool:
    """Return whether a server ended because another program has its port, or had it until a moment ago."""
    return not _is_free(port) or "address already in use" in log.read_text(encoding="utf-8", errors="replace").lower()


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").split("\n") if line.strip()]
    return lines[-1][:200] if lines else "it printed nothing"


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
