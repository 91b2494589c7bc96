"""Runs on the nodes of a Ray cluster: a Ray task for each attempt of a job, and the observers here, in the driver.

A task is a small relay (`cse_cli.jobs.relay`) of a child process like those of `LocalExecutor`. A run in several
processes is one task with as many GPUs: Ray takes all that a task needs from one node, as it would with a placement
group of one bundle. Ray does not repeat tasks: `retry` does, from the last checkpoint.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Thread
from typing import Any
from uuid import uuid4

from cse_cli import __version__
from cse_cli.core.console import Observer
from cse_cli.core.devices import THREADS_VARIABLE, schedulable_cores
from cse_cli.core.paths import home
from cse_cli.core.results import Result
from cse_cli.jobs.channel import Failed
from cse_cli.jobs.child import LEAVE_SECONDS
from cse_cli.jobs.executor import PoolExecutor, Submission
from cse_cli.runs.signals import defer_signals
from cse_cli.training.build import Job
from registry.errors import CseError, MissingError, RunFailedError

LOCAL = "local-cluster"
"""The address that starts a cluster of two nodes on this machine, for as long as the command lasts."""
REACH_SECONDS = 10.0
"""How long a machine may take to answer at all."""
CONNECT_SECONDS = 25.0
"""How long a cluster may take to let a driver in. Ray itself would try for two minutes."""
_CHECK_SECONDS = 60.0
"""How long the nodes may take to say whether they can do runs: each starts a process first."""
_SETTLE_SECONDS = 5.0
"""How long nothing starts after a node was lost: if its processes live, they end meanwhile."""
_SLOTS_SECONDS = 5.0
"""How often the cluster is asked for its size."""
_POLL_SECONDS = 0.5
_QUIET = {
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS": "1",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".*",  # else Ray prints on stdout that a node has died, `log_to_driver` or not
}
_ON_THIS_MACHINE = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # whatever its name: Ray listens on the loopback device alone
}
_TASK_ENVIRONMENT = {"RAY_kill_child_processes_on_worker_exit": "false"}
"""A run whose driver has died records its end, then ends by itself; Ray would kill it at once."""
_PASSED_ON = ("CSE_", "MLFLOW_", "HF_")


@dataclass(eq=False)
class _Attempt:
    """A Ray task that does a job.

    Args:
        number: By which the channel knows it.
        began: Whether its process has started: until then it waits for a slot.
        given_up: Why it was cancelled, where it was for its silence.
    """

    submission: Submission
    number: int
    began: bool = False
    given_up: str = ""


class RayExecutor(PoolExecutor):
    """Runs jobs on the nodes of a Ray cluster.

    Args:
        address: "auto", HOST:PORT, ray://HOST:PORT, or "local-cluster".
        device: "auto" takes GPUs where the cluster has any; or "cpu", "cuda".
        processes: That share each run, on one node.
        workers: How many runs at once; None is as many as the cluster has room for.
        patience: Seconds without a word from a run after which its process is ended.

    Raises:
        CseError: Ray is not installed, the cluster does not answer or has no room, or a node cannot do runs.
    """

    def __init__(self, address: str, device: str, processes: int, workers: int | None, patience: float) -> None:
        super().__init__()
        if device not in ("auto", "cpu", "cuda"):
            raise CseError(f"--device {device}: on a cluster Ray chooses the device", "use auto, cpu or cuda")
        self._processes, self._workers, self._patience = processes, workers, patience
        self._ray = _import_ray(address)
        self._local = _LocalCluster(workers, processes) if address == LOCAL else None
        self._tasks: dict[Any, _Attempt] = {}
        self._started = 0
        self._not_before = 0.0
        self._asked, self._known_room = float("-inf"), 0
        self._marker = home() / "cluster" / uuid4().hex
        self._warning = ""
        try:
            _connect(self._ray, address if self._local is None else self._local.address)
            self._open(device)
        except BaseException:
            self._disconnect()
            raise

    def _open(self, device: str) -> None:
        """Find out what the cluster has, check its nodes, and start the channel."""
        found = any(node["Resources"].get("GPU") for node in self._nodes())
        if device == "cuda" and not found:
            raise MissingError("--device cuda: no node of the cluster has a GPU", "use --device cpu")
        self._device = "cuda" if found and device != "cpu" else "cpu"
        on_gpus = self._device == "cuda"
        threads = _threads() or (None if on_gpus else 1)
        self._resource, self._each = ("GPU", self._processes) if on_gpus else ("CPU", self._processes * (threads or 1))
        self._setting = self._make_setting(threads)
        self._check_nodes()
        self._start_channel()
        if self._room() == 0:
            raise MissingError(
                f"no node of the cluster has room for a run: it needs {self._each} {self._resource}",
                "add nodes, or lower --processes" + ("" if on_gpus else f" or {THREADS_VARIABLE}"),
            )

    def _make_setting(self, threads: int | None) -> Any:
        from cse_cli.jobs.relay import Setting

        self._marker.parent.mkdir(parents=True, exist_ok=True)
        self._marker.touch()
        passed_on = {name: value for name, value in os.environ.items() if name.startswith(_PASSED_ON)}
        passed_on["CSE_HOME"] = str(home())
        return Setting(
            __version__, passed_on, threads, Path.cwd(), self._marker, self._processes, self._device == "cpu"
        )

    def _check_nodes(self) -> None:
        """Ask every node whether it can do runs.

        Raises:
            CseError: One cannot.
        """
        from cse_cli.jobs.relay import ask_node

        ask = self._ray.remote(ask_node)
        asked = [
            ask.options(num_cpus=0, max_retries=0, scheduling_strategy=self._on_node(node["NodeID"])).remote(
                self._setting
            )
            for node in self._nodes()
        ]
        try:
            answers = self._ray.get(asked, timeout=_CHECK_SECONDS)
        except self._ray.exceptions.GetTimeoutError:
            raise MissingError(
                f"not all of the cluster's {len(asked)} nodes answered within {_CHECK_SECONDS:.0f} s",
                "`ray status` shows them",
            ) from None
        except self._ray.exceptions.RayError as error:
            what = f"a node of the cluster cannot run cse: {_first_line(error)}"
            raise MissingError(what, "install the same cse on all nodes, for the same Python") from None
        for _, refusal in answers:
            if refusal is not None:
                raise refusal

    def _start_channel(self) -> None:
        from cse_cli.jobs.relay import Channel, relay

        here = self._on_node(self._ray.get_runtime_context().get_node_id())
        options = {"num_cpus": 0, "scheduling_strategy": here, "max_concurrency": 10_000}
        self._channel = self._ray.remote(Channel).options(**options).remote()
        self._news = self._channel.wait_for_news.remote()
        on_gpus = self._device == "cuda"
        needs = {"num_gpus": self._each, "num_cpus": 0} if on_gpus else {"num_cpus": self._each}
        self._relay = self._ray.remote(max_calls=int(on_gpus))(
            relay
        )  # after a GPU run the process is new: memory is returned
        self._options = {**needs, "max_retries": 0, "runtime_env": {"env_vars": _TASK_ENVIRONMENT}}

    @staticmethod
    def _on_node(node_id: str) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        return NodeAffinitySchedulingStrategy(node_id, soft=False)

    def _nodes(self) -> list[dict[str, Any]]:
        return [node for node in self._ray.nodes() if node["Alive"]]

    @property
    def slots(self) -> int:
        """As many as were asked for, also where they wait for nodes that come; else what there is room for."""
        return self._workers or max(1, self._room())

    def _room(self) -> int:
        """Return how many runs the nodes have room for, asked now and then."""
        now = time.monotonic()
        if now - self._asked > _SLOTS_SECONDS:
            self._asked = now
            self._known_room = sum(
                int(node["Resources"].get(self._resource, 0) // self._each) for node in self._nodes()
            )
        return self._known_room

    @property
    def one_by_one(self) -> bool:
        """A cluster may grow."""
        return self._workers == 1

    def submit(self, job: Job, observer: Observer) -> Future[Result]:
        """Queue a job."""
        if self._warning:
            observer.warned(self._warning)
            self._warning = ""
        return super().submit(job, observer)

    def wait(self) -> None:
        """Start tasks for queued jobs and hear those at work, until one has ended or the cluster has grown."""
        self._ended = False
        room = self.slots
        while (self._queue or self._tasks) and not self._ended and self.slots <= room:
            self._start_tasks()
            self._hear_all()
            self._give_up_silent()

    def close(self, *, cancel: bool) -> None:
        """End the runs and leave the cluster. A second Ctrl-C while they record their end leaves at once."""
        self.cancel_queued()
        try:
            if cancel:
                for task in self._tasks:
                    self._ray.cancel(task)
            until = time.monotonic() + LEAVE_SECONDS
            while self._tasks and time.monotonic() < until:
                self._hear_all(leaving=True)
        finally:
            for attempt in self._tasks.values():
                attempt.submission.future.cancel()
            for task in self._tasks:
                self._ray.cancel(task, force=True)
            self._disconnect()

    def _start_tasks(self) -> None:
        while self._queue and len(self._tasks) < self.slots and time.monotonic() >= self._not_before:
            submission = self._queue.popleft()
            self._started += 1
            job = pickle.dumps(replace(submission.job, device=self._device))
            task = self._relay.options(name=submission.job.name, **self._options).remote(
                self._channel, self._started, job, self._setting
            )
            self._tasks[task] = _Attempt(submission, self._started)

    def _hear_all(self, *, leaving: bool = False) -> None:
        """Take what runs tell, for a short while; notice those that have ended."""
        with defer_signals():  # Ray makes exit code 1 of any that is raised within its calls
            self._ray.wait([self._news, *self._tasks], timeout=_POLL_SECONDS)
            tasks = list(self._tasks)
            ended = self._ray.wait(tasks, num_returns=len(tasks), timeout=0)[0] if tasks else []
            told = self._take()
            ends = [(task, self._end_of(task)) for task in ended]
        for number, message in told:
            self._hear(number, message)
        for task, end in ends:  # after what they have told
            self._end(self._tasks.pop(task), end, leaving=leaving)

    def _take(self) -> list[tuple[int, Any]]:
        try:
            told: list[tuple[int, Any]] = self._ray.get(self._channel.take.remote())
        except self._ray.exceptions.RayError as error:
            raise RunFailedError(
                f"the cluster is lost: {_first_line(error)}", "run it again: runs go on from their last checkpoints"
            ) from None
        if self._ray.wait([self._news], timeout=0)[0]:
            self._news = self._channel.wait_for_news.remote()
        return told

    def _hear(self, number: int, message: Any) -> None:
        from cse_cli.jobs.relay import Began

        attempt = next((one for one in self._tasks.values() if one.number == number), None)
        if attempt is None:
            return
        if isinstance(message, Began):
            attempt.began, attempt.submission.heard = True, time.monotonic()
            return
        answer = attempt.submission.hear(message)
        if message.asks:
            self._channel.answer.remote(number, answer)

    def _give_up_silent(self) -> None:
        """End what has told nothing for too long; by force, where its Ray process hangs as well."""
        now = time.monotonic()
        for task, attempt in self._tasks.items():
            silent = now - attempt.submission.heard if attempt.began else 0.0
            if silent > self._patience and not attempt.given_up:
                attempt.given_up = f"told nothing for {self._patience:,.0f} s and was killed"
                self._ray.cancel(task)
            elif silent > self._patience + 2 * LEAVE_SECONDS:
                self._ray.cancel(task, force=True)

    def _end_of(self, task: Any) -> Any:
        """Return what a task gave back: a `Result`, `Failed` or `Lost`."""
        from cse_cli.jobs.relay import Lost

        known = self._ray.exceptions
        try:
            return self._ray.get(task)
        except known.TaskCancelledError:
            return Lost("was cancelled")
        except known.OutOfMemoryError:
            why = "was ended by Ray: the memory of its node ran out"
        except known.NodeDiedError:
            why = "was lost with its node"
        except known.WorkerCrashedError:
            why = "was lost with its node, or with Ray's process there"
        except known.RayError as error:
            why = f"was lost: {_first_line(error)}"
        self._not_before = time.monotonic() + _SETTLE_SECONDS
        return Lost(why)

    def _end(self, attempt: _Attempt, end: Any, *, leaving: bool) -> None:
        submission = attempt.submission
        if isinstance(end, Failed):
            self.settle(submission, end.error)
        elif isinstance(end, Result):
            self.settle(submission, end)
        elif leaving:
            submission.future.cancel()
        else:
            self.retry(submission, attempt.given_up or end.why)

    def _disconnect(self) -> None:
        self._tasks.clear()
        self._ray.shutdown()
        if self._local is not None:
            self._local.shutdown()
        with suppress(OSError):
            self._marker.unlink(missing_ok=True)


def _threads() -> int | None:
    """Return the number of threads that is set by hand."""
    given = os.environ.get(THREADS_VARIABLE, "")
    return int(given) if given.isdecimal() and int(given) else None


def _import_ray(address: str) -> Any:
    """Return the module Ray, which reads these variables when it is imported."""
    for name, value in (_QUIET | (_ON_THIS_MACHINE if address == LOCAL else {})).items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ModuleNotFoundError:
        raise CseError("--on needs Ray, which is not installed", "pip install 'cse-registry[ray]'") from None
    return ray


class _LocalCluster:
    """Two nodes on this machine, in the care of another process (`cse_cli.jobs.local_cluster`).

    Raises:
        MissingError: They did not start.
    """

    def __init__(self, workers: int | None, processes: int) -> None:
        cpus = -(-(workers or schedulable_cores()) // 2) * processes * (_threads() or 1)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "cse_cli.jobs.local_cluster", str(cpus)],
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
            raise MissingError("--on local-cluster: Ray's nodes did not start", "`ray start --head --block` says why")

    def shutdown(self) -> None:
        """End the nodes."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(LEAVE_SECONDS)
        self._process.kill()


def _connect(ray: Any, address: str) -> None:
    """Make this process a driver.

    Raises:
        CseError: Nothing answers, it is no Ray cluster, or its versions differ from those here.
    """
    if address != "auto":
        _reach(address)
    failed: list[BaseException] = []

    def connect() -> None:
        try:
            ray.init(address=address, log_to_driver=False, logging_level="critical")
        except BaseException as error:
            failed.append(error)

    thread = Thread(target=connect, daemon=True)  # Ray's code in C++ cannot be interrupted
    with _stderr_closed():
        thread.start()
        thread.join(CONNECT_SECONDS)
    if thread.is_alive():
        raise MissingError(f"--on {address}: no Ray cluster answers there within {CONNECT_SECONDS:.0f} s", _HOW)
    for error in failed:
        raise _explained(address, error) from None
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # Ray's code in C++ has put handlers below Python's: three seconds after SIGTERM they abort the process.
        signal.signal(number, signal.getsignal(number))


@contextmanager
def _stderr_closed() -> Iterator[None]:
    """Let nothing be written to stderr: Ray's code in C++ knows no other place, and says little that helps."""
    sys.stderr.flush()
    before, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, 2)
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)
        os.close(null)


_HOW = "start one with `ray start --head`, name its HOST:PORT, or try --on local-cluster"


def _reach(address: str) -> None:
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        raise CseError(f"--on {address}: not an address of a Ray cluster", "use auto, HOST:PORT or ray://HOST:PORT")
    try:
        socket.create_connection((host.strip("[]"), int(port)), REACH_SECONDS).close()
    except OSError as error:
        raise MissingError(f"--on {address}: nothing answers there ({error.strerror or error})", _HOW) from None


def _explained(address: str, error: BaseException) -> CseError:
    text = str(error)
    if "ray[client]" in text:
        return CseError(f"--on {address} needs Ray's client", "pip install 'cse-registry[ray]'")
    if "ersion mismatch" in text:
        here = f"Python {sys.version.split()[0]}"
        return MissingError(f"--on {address}: {text.strip()}", f"use the cluster's versions here; this is {here}")
    return MissingError(f"--on {address}: {_first_line(error)}", _HOW)


def _first_line(error: BaseException) -> str:
    return next((line for line in str(error).strip().split("\n") if line), type(error).__name__)
