"""Runs on a Ray cluster: one task for each run, which starts its worker on the node and waits for it.

All nodes share the state directory, in which the run is claimed, recorded and followed, so nothing goes through Ray but
the ID of the run and the exit of its process. Ray does not repeat tasks: the engine continues a lost run.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

from cse_cli._version import __version__
from cse_cli.core.paths import home
from cse_cli.core.threads import THREADS_VARIABLE, limit_libraries
from cse_cli.jobs.child import LEAVE_SECONDS, Child
from cse_cli.jobs.request import Placement
from cse_cli.runs.record import folder_of
from cse_cli.runs.signals import defer_signals
from registry.errors import CseError, MissingError, install_command


class Cluster:
    """A Ray cluster, of which this process is a driver until `close`."""

    def __init__(self, placement: Placement) -> None:
        address, count, device = placement.cluster or "auto", placement.processes, placement.device
        if device not in ("auto", "cpu", "cuda"):
            message = f"--device {device}: Ray chooses the devices of a cluster"
            raise CseError(message, "use auto, cpu or cuda", code="cluster.device")
        # Ray reads these when it is imported. It would print on stdout that a node has died, and hide unasked GPUs.
        quiet = {"RAY_DEDUP_LOGS_SKIP_REGEX": ".*", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
        os.environ.update({name: value for name, value in quiet.items() if name not in os.environ})
        handlers = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
        try:
            import ray

            host, _, port = address.removeprefix("ray://").rpartition(":")
            if address != "auto":  # `ray.init` waits for two minutes
                socket.create_connection((host, int(port)), 10.0).close()
            ray.init(address=address, log_to_driver=False, logging_level="critical", configure_logging=False)
        except ModuleNotFoundError:
            message = f"--cluster {address} needs Ray, which is not installed"
            raise CseError(message, f"run `{install_command('ray')}`", code="cluster.not_installed") from None
        except Exception as error:  # Ray raises many kinds
            message = f"--cluster {address}: {str(error).strip().partition(chr(10))[0]}"
            how = "start a cluster with `ray start --head`, and name its HOST:PORT or use --cluster auto"
            raise MissingError(message, how, code="cluster.not_found") from None
        for each, handler in handlers.items():  # those of Ray exit at once, or abort three seconds after SIGTERM
            signal.signal(each, handler)
        self._ray, self._workers, threads = ray, placement.workers, int(os.environ.get(THREADS_VARIABLE) or 1)
        on_gpus = device != "cpu" and bool(ray.cluster_resources().get("GPU"))
        self._resource, self._each = ("GPU", count) if on_gpus or device == "cuda" else ("CPU", count * threads)
        if not self._fitting():
            ray.shutdown()
            message = f"no node of the cluster is large enough for a run, which needs {self._each} {self._resource}"
            action = f"add nodes, or use --device cpu, fewer --processes or a lower {THREADS_VARIABLE}"
            raise MissingError(message, action, code="cluster.too_small")
        setting = {name: value for name, value in os.environ.items() if name.startswith(("CSE_", "MLFLOW_", "HF_"))}
        setting |= {"CSE_HOME": str(home()), **({} if on_gpus else {THREADS_VARIABLE: str(threads)})}
        self._arguments = "cuda" if on_gpus else "cpu", count, setting, str(Path.cwd()), __version__
        # A run whose driver has died records its end and exits. Ray would kill it at once.
        environment = {"env_vars": {"RAY_kill_child_processes_on_worker_exit": "false"}}
        needs = {"num_gpus": self._each, "num_cpus": 0} if on_gpus else {"num_cpus": self._each}
        self._task = ray.remote(_execute).options(**needs, max_retries=0, runtime_env=environment)

    def _fitting(self) -> int:
        nodes = [node["Resources"].get(self._resource, 0) for node in self._ray.nodes() if node["Alive"]]
        return sum(int(number // self._each) for number in nodes)

    @property
    def slots(self) -> int:
        """The requested number of runs, even if some wait for new nodes. Default: as many as fit."""
        return self._workers or max(1, self._fitting())

    def start(self, run_id: str) -> RayProcess:
        """Start a run as soon as a node is free."""
        return RayProcess(self._ray, self._task.remote(run_id, *self._arguments))

    def close(self) -> None:
        """Leave the cluster."""
        self._ray.shutdown()


class RayProcess:
    """Process of one run on a node, with the methods of a `Child`."""

    def __init__(self, ray: Any, task: Any) -> None:
        self._ray, self._task, self._how = ray, task, ""

    def exit_code(self) -> int | None:
        """Return the exit code, or None while it runs or waits for a node."""
        with defer_signals():  # a signal inside a call of Ray would lose its exception
            if not self._ray.wait([self._task], timeout=0)[0]:
                return None
        code = -signal.SIGKILL
        try:
            code, self._how = self._ray.get(self._task)
        except self._ray.exceptions.RayError as error:
            self._how = f"was lost with its node: {str(error).strip().partition(chr(10))[0]}"
        return int(code)

    def stop(self) -> None:
        """Request the end of the run."""
        self._ray.cancel(self._task)

    def kill(self) -> None:
        """Kill the process, unless it has ended. A killed task would leave its process, so the task does it first."""
        self._ray.cancel(self._task)
        self._ray.wait([self._task], timeout=2 * LEAVE_SECONDS)
        self._ray.cancel(self._task, force=True)

    def describe_exit(self) -> str:
        """Return how it ended, for use after "its process"."""
        return self._how


def _execute(
    run_id: str, device: str, processes: int, setting: dict[str, str], folder: str, version: str
) -> tuple[int, str]:
    """Execute a run in a process of this node, and return its exit code and how it ended."""
    os.environ.pop(THREADS_VARIABLE, None)  # Ray sets it to 1
    os.environ.update(setting)
    limit_libraries(os.environ)
    if not folder_of(run_id).is_dir() or __version__ != version:
        return 3, f"cannot start on {socket.gethostname()}: the node needs cse {version} and the CSE_HOME {home()}"
    child, until = Child(run_id, device, os.environ, processes, Path(folder) if Path(folder).is_dir() else home()), None
    while (code := child.exit_code()) is None and (until is None or time.monotonic() < until):
        try:
            time.sleep(0.2)
        except BaseException as error:  # canceled by the driver, or the driver has exited and Ray ends this process
            child.stop()
            if not isinstance(error, KeyboardInterrupt):
                raise
            until = time.monotonic() + LEAVE_SECONDS
    child.kill()
    return -signal.SIGKILL if code is None else code, child.describe_exit()
