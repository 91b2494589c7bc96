"""Executor of runs on a Ray cluster: one Ray task per attempt of a job, with the observers in the driver.

A task relays (`cse_cli.ray.relay`) the events of a child process as in `LocalExecutor`. A run in several processes is
one task with as many GPUs, because Ray takes all resources of a task from one node. Ray does not repeat tasks. `retry`
does, from the last checkpoint.
"""

from __future__ import annotations

import os
import pickle
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from cse_cli._version import __version__
from cse_cli.core.events import Event
from cse_cli.core.paths import home
from cse_cli.core.results import Result
from cse_cli.core.threads import THREADS_VARIABLE, schedulable_cores
from cse_cli.jobs.child import LEAVE_SECONDS, Failed
from cse_cli.jobs.executor import PoolExecutor, Submission, stalled
from cse_cli.jobs.placement import Placement
from cse_cli.ray.connection import LOCAL, LocalCluster, connect, first_line, import_ray
from cse_cli.runs.signals import defer_signals
from registry.errors import CseError, MissingError, RunFailedError

_CHECK_SECONDS = 60.0
"""Longest wait for the check of the nodes, each of which starts a process first."""
_SETTLE_SECONDS = 5.0
"""Time without new tasks after a node was lost, in which its processes end if they still run."""
_ROOM_SECONDS = 5.0
"""Time between two queries of the size of the cluster."""
_POLL_SECONDS = 0.5
_TASK_ENVIRONMENT = {"RAY_kill_child_processes_on_worker_exit": "false"}
"""A run whose driver has died records its end and exits. Ray would kill it immediately."""
_PASSED_ON = ("CSE_", "MLFLOW_", "HF_")


@dataclass(eq=False)
class _Attempt:
    """Ray task that executes a job.

    Args:
        number: ID of the attempt in the channel.
        has_started: Whether its process has started. Until then it waits for a slot.
        canceled_because: Why it was canceled, if it reported no progress.
    """

    submission: Submission
    number: int
    has_started: bool = False
    canceled_because: str = ""


class RayExecutor(PoolExecutor):
    """Runs jobs on the nodes of a Ray cluster. The device "auto" means GPUs if the cluster has any."""

    def __init__(self, placement: Placement) -> None:
        super().__init__()
        address = placement.cluster or "auto"
        if placement.device not in ("auto", "cpu", "cuda"):
            raise CseError(
                f"--device {placement.device}: Ray chooses the devices of a cluster",
                "use auto, cpu or cuda",
                code="ray.device_of_cluster",
            )
        self._processes, self._workers = placement.processes, placement.workers
        self._stall_timeout = placement.stall_timeout
        self._tasks: dict[Any, _Attempt] = {}
        self._started = 0
        self._not_before = 0.0
        self._asked_at, self._known_room = float("-inf"), 0
        self._marker = home() / "cluster" / uuid4().hex
        self._ray = import_ray(address)
        self._local: LocalCluster | None = None
        try:
            if address == LOCAL:
                runs_per_node = -(-(self._workers or schedulable_cores()) // 2)  # on two nodes
                self._local = LocalCluster(runs_per_node * self._processes * (_threads() or 1))
            connect(self._ray, address if self._local is None else self._local.address)
            self._open(placement.device)
        except BaseException:
            self._disconnect()
            raise

    def _open(self, device: str) -> None:
        """Find the resources of the cluster, check its nodes, and start the channel."""
        has_gpus = any(node["Resources"].get("GPU") for node in self._nodes())
        if device == "cuda" and not has_gpus:
            raise MissingError("--device cuda: no node of the cluster has a GPU", "use --device cpu", code="ray.no_gpu")
        on_gpus = has_gpus and device != "cpu"
        self._device = "cuda" if on_gpus else "cpu"
        threads = _threads() or (None if on_gpus else 1)
        self._resource, self._each = ("GPU", self._processes) if on_gpus else ("CPU", self._processes * (threads or 1))
        self._setting = self._make_setting(threads)
        self._check_nodes()
        self._start_channel()
        if self._room() == 0:
            raise MissingError(
                f"no node of the cluster has enough resources for a run: {self._each} {self._resource} needed",
                "add nodes, or lower --processes" + ("" if on_gpus else f" or {THREADS_VARIABLE}"),
                code="ray.too_few_resources",
            )

    def _make_setting(self, threads: int | None) -> Any:
        from cse_cli.ray.relay import Setting

        self._marker.parent.mkdir(parents=True, exist_ok=True)
        self._marker.touch()
        passed_on = {name: value for name, value in os.environ.items() if name.startswith(_PASSED_ON)}
        passed_on["CSE_HOME"] = str(home())
        return Setting(__version__, passed_on, threads, Path.cwd(), self._marker, self._processes)

    def _check_nodes(self) -> None:
        """Check whether every node can execute runs."""
        from cse_cli.ray.relay import check_node

        check = self._ray.remote(check_node)
        asked = []
        for node in self._nodes():
            options = {"num_cpus": 0, "max_retries": 0, "scheduling_strategy": self._on_node(node["NodeID"])}
            asked.append(check.options(**options).remote(self._setting))
        try:
            refusals = self._ray.get(asked, timeout=_CHECK_SECONDS)
        except self._ray.exceptions.GetTimeoutError:
            message = f"some of the {len(asked)} nodes of the cluster did not respond within {_CHECK_SECONDS:.0f} s"
            raise MissingError(message, "list them with `ray status`", code="ray.node_not_responding") from None
        except self._ray.exceptions.RayError as error:
            message = f"a node of the cluster cannot run cse: {first_line(error)}"
            action = "install the same cse and the same Python on all nodes"
            raise MissingError(message, action, code="ray.node_not_usable") from None
        for refusal in refusals:
            if refusal is not None:
                raise refusal

    def _start_channel(self) -> None:
        from cse_cli.ray.relay import Channel, relay

        here = self._on_node(self._ray.get_runtime_context().get_node_id())
        options = {"num_cpus": 0, "scheduling_strategy": here, "max_concurrency": 10_000}
        self._channel = self._ray.remote(Channel).options(**options).remote()
        self._has_events = self._channel.wait.remote()
        needs = {"num_gpus": self._each, "num_cpus": 0} if self._resource == "GPU" else {"num_cpus": self._each}
        self._relay = self._ray.remote(relay).options(
            **needs, max_retries=0, runtime_env={"env_vars": _TASK_ENVIRONMENT}
        )

    @staticmethod
    def _on_node(node_id: str) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        return NodeAffinitySchedulingStrategy(node_id, soft=False)

    def _nodes(self) -> list[dict[str, Any]]:
        return [node for node in self._ray.nodes() if node["Alive"]]

    @property
    def slots(self) -> int:
        """The requested number of runs, even if some wait for new nodes. Default: as many as fit."""
        return self._workers or max(1, self._room())

    def _room(self) -> int:
        """Return the number of runs that fit on the nodes, which is queried every few seconds."""
        now = time.monotonic()
        if now - self._asked_at > _ROOM_SECONDS:
            self._asked_at = now
            resources = [node["Resources"].get(self._resource, 0) for node in self._nodes()]
            self._known_room = sum(int(number // self._each) for number in resources)
        return self._known_room

    @property
    def one_by_one(self) -> bool:
        """Whether one worker was requested. Otherwise the cluster may grow."""
        return self._workers == 1

    def wait(self) -> None:
        """Start tasks of queued jobs and receive events until a job is settled or the cluster has grown."""
        self._has_settled = False
        slots = self.slots
        while (self._queue or self._tasks) and not self._has_settled and self.slots <= slots:
            self._start_tasks()
            self._receive_all()
            self._cancel_stalled()

    def close(self, *, cancel: bool) -> None:
        """End the runs and leave the cluster. A second Ctrl-C, while runs record their end, leaves immediately."""
        self.cancel_queued()
        try:
            if cancel:
                for task in self._tasks:
                    self._ray.cancel(task)
            until = time.monotonic() + LEAVE_SECONDS
            while self._tasks and time.monotonic() < until:
                self._receive_all(closing=True)
        finally:
            for task, attempt in self._tasks.items():
                attempt.submission.future.cancel()
                self._ray.cancel(task, force=True)
            self._disconnect()

    def _start_tasks(self) -> None:
        while self._queue and len(self._tasks) < self.slots and time.monotonic() >= self._not_before:
            submission = self._queue.popleft()
            self._started += 1
            job = pickle.dumps(replace(submission.job, device=self._device))
            task = self._relay.remote(self._channel, self._started, job, self._setting)
            self._tasks[task] = _Attempt(submission, self._started)

    def _receive_all(self, *, closing: bool = False) -> None:
        """Receive the events of all runs for a short time, and find tasks that have ended."""
        with defer_signals():  # a signal inside a call of Ray would become exit code 1
            self._ray.wait([self._has_events, *self._tasks], timeout=_POLL_SECONDS)
            tasks = list(self._tasks)
            ended = self._ray.wait(tasks, num_returns=len(tasks), timeout=0)[0] if tasks else []
            events = self._take_events()
            ends = [(task, self._end_of(task)) for task in ended]
        for number, event in events:
            self._receive(number, event)
        for task, end in ends:  # after their events
            self._end(self._tasks.pop(task), end, closing=closing)

    def _take_events(self) -> list[tuple[int, Event]]:
        try:
            events: list[tuple[int, Event]] = self._ray.get(self._channel.take.remote())
        except self._ray.exceptions.RayError as error:
            raise RunFailedError(
                f"the connection to the cluster was lost: {first_line(error)}",
                "run the same command again to resume from the last checkpoints",
                code="ray.connection_lost",
            ) from None
        if self._ray.wait([self._has_events], timeout=0)[0]:
            self._has_events = self._channel.wait.remote()
        return events

    def _receive(self, number: int, event: Event) -> None:
        from cse_cli.ray.relay import ChildStarted

        attempt = next((one for one in self._tasks.values() if one.number == number), None)
        if attempt is None:
            return
        if isinstance(event, ChildStarted):
            attempt.has_started, attempt.submission.last_event_at = True, time.monotonic()
            return
        reply = attempt.submission.receive(event)
        if event.needs_reply:
            self._channel.reply.remote(number, reply)

    def _cancel_stalled(self) -> None:
        """Cancel runs without progress. If the Ray process of a run hangs too, kill it."""
        now = time.monotonic()
        for task, attempt in self._tasks.items():
            silence = now - attempt.submission.last_event_at if attempt.has_started else 0.0
            if silence > self._stall_timeout and not attempt.canceled_because:
                attempt.canceled_because = stalled(self._stall_timeout)
                self._ray.cancel(task)
            elif silence > self._stall_timeout + 2 * LEAVE_SECONDS:
                self._ray.cancel(task, force=True)

    def _end_of(self, task: Any) -> Any:
        """Return the end of a task: a `Result`, `Failed` or `Lost`."""
        from cse_cli.ray.relay import Lost

        known = self._ray.exceptions
        try:
            return self._ray.get(task)
        except known.TaskCanceledError:
            return Lost("was canceled")
        except known.OutOfMemoryError:
            reason = "was killed by Ray: its node is out of memory"
        except (known.NodeDiedError, known.WorkerCrashedError):
            reason = "was lost with its node or with the Ray process of its node"
        except known.RayError as error:
            reason = f"was lost: {first_line(error)}"
        self._not_before = time.monotonic() + _SETTLE_SECONDS
        return Lost(reason)

    def _end(self, attempt: _Attempt, end: Any, *, closing: bool) -> None:
        submission = attempt.submission
        if isinstance(end, Failed):
            self.settle(submission, end.error)
        elif isinstance(end, Result):
            self.settle(submission, end)
        elif closing:
            submission.future.cancel()
        else:
            self.retry(submission, attempt.canceled_because or end.reason)

    def _disconnect(self) -> None:
        self._tasks.clear()
        self._ray.shutdown()
        if self._local is not None:
            self._local.shutdown()
        with suppress(OSError):
            self._marker.unlink(missing_ok=True)


def _threads() -> int | None:
    """Return the number of threads that the user has set."""
    given = os.environ.get(THREADS_VARIABLE, "")
    return int(given) if given.isdecimal() and int(given) else None
