"""Connect this process to a Ray cluster, or start one on this machine."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Thread
from typing import Any

from cse_cli.jobs.child import LEAVE_SECONDS
from registry.errors import CseError, MissingError

LOCAL = "local-cluster"
"""Address that starts a cluster of two nodes on this machine until the command ends."""
REACH_SECONDS = 10.0
"""Longest wait for a TCP connection."""
CONNECT_SECONDS = 25.0
"""Longest wait for a cluster. Ray itself waits for two minutes."""
_QUIET = {
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS": "1",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".*",  # else Ray prints on stdout that a node has died, despite `log_to_driver=False`
}
_ON_THIS_MACHINE = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # despite its name: Ray listens only on the loopback device
}
_HOW = "start one with `ray start --head` and name its HOST:PORT, or use --cluster local-cluster"


def import_ray(address: str) -> Any:
    """Return the module `ray`, which reads these environment variables when it is imported."""
    for name, value in (_QUIET | (_ON_THIS_MACHINE if address == LOCAL else {})).items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ModuleNotFoundError:
        raise CseError(
            f"--cluster {address} needs Ray, which is not installed",
            "pip install 'cse-registry[ray]'",
            code="ray.not_installed",
        ) from None
    return ray


class LocalCluster:
    """Cluster of two nodes on this machine, each with `cpus` slots, which another process runs."""

    def __init__(self, cpus: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "cse_cli.ray.local_cluster", str(cpus)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            text=True,
        )
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip()
        if not self.address:
            self.shutdown()
            raise MissingError(
                "--cluster local-cluster: the Ray nodes did not start",
                "read the reason in the output of `ray start --head --block`",
                code="ray.not_started",
            )

    def shutdown(self) -> None:
        """End the nodes."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(LEAVE_SECONDS)
        self._process.kill()


def connect(ray: Any, address: str) -> None:
    """Make this process a driver of a cluster, if one responds and has the versions of this machine."""
    if address != "auto":
        _reach(address)
    failed: list[BaseException] = []

    def init() -> None:
        try:
            ray.init(address=address, log_to_driver=False, logging_level="critical")
        except BaseException as error:
            failed.append(error)

    thread = Thread(target=init, daemon=True)  # Ray's C++ code cannot be interrupted
    with _stderr_closed():
        thread.start()
        thread.join(CONNECT_SECONDS)
    if thread.is_alive():
        message = f"--cluster {address}: no Ray cluster responds within {CONNECT_SECONDS:.0f} s"
        raise MissingError(message, _HOW, code="ray.no_cluster")
    for error in failed:
        raise _explained(address, error) from None
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # Ray's C++ code has put handlers below those of Python, which abort the process three seconds after SIGTERM.
        signal.signal(number, signal.getsignal(number))


@contextmanager
def _stderr_closed() -> Iterator[None]:
    """Discard everything on stderr, where Ray's C++ code writes its log."""
    sys.stderr.flush()
    before, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, 2)
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)
        os.close(null)


def _reach(address: str) -> None:
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        raise CseError(
            f"--cluster '{address}': not an address of a Ray cluster",
            "use auto, HOST:PORT, ray://HOST:PORT or local-cluster",
            code="ray.invalid_address",
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), REACH_SECONDS).close()
    except OSError as error:
        message = f"--cluster {address}: cannot connect ({error.strerror or error})"
        raise MissingError(message, _HOW, code="ray.no_cluster") from None


def _explained(address: str, error: BaseException) -> CseError:
    text = str(error)
    if "ray[client]" in text:
        message = f"--cluster {address} needs Ray's client, which is not installed"
        return CseError(message, "pip install 'cse-registry[ray]'", code="ray.not_installed")
    if "ersion mismatch" in text:
        action = f"install the versions of the cluster. This machine has Python {sys.version.split()[0]}"
        return MissingError(f"--cluster {address}: {text.strip()}", action, code="ray.version_mismatch")
    return MissingError(f"--cluster {address}: {first_line(error)}", _HOW, code="ray.no_cluster")


def first_line(error: BaseException) -> str:
    """Return the first line of an error message."""
    return next((line for line in str(error).strip().split("\n") if line), type(error).__name__)
