"""Ray clusters on the loopback device, and runs on them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from cse_cli.core.paths import home

LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}

_NODES = """
import sys
from ray.cluster_utils import Cluster
gpus = int(sys.argv[1])
head, *others = [{"num_cpus": int(cpus), "num_gpus": gpus} for cpus in sys.argv[2:]]
cluster = Cluster(initialize_head=True, head_node_args={**head, "include_dashboard": False})
added = [cluster.add_node(**other) for other in others]
print(cluster.address, *(node.all_processes["raylet"][0].process.pid for node in added), flush=True)
for line in sys.stdin:
    cluster.add_node(num_cpus=int(line))
cluster.shutdown()
"""


class Nodes:
    """A cluster in the care of a process; what it started is gone after the block of `nodes`.

    Args:
        process: That has started the nodes.
        address: Of the cluster.
        raylets: Process of each node but the head.
    """

    def __init__(self, process: subprocess.Popen[str], address: str, raylets: list[psutil.Process]) -> None:
        self.process, self.address, self.raylets = process, address, raylets

    def add(self, cpus: int) -> None:
        """Add a node."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{cpus}\n")
        self.process.stdin.flush()

    def kill(self, number: int) -> None:
        """End a node and all that runs on it, as a power cut would."""
        raylet = self.raylets[number]
        everything = [raylet, *raylet.children(recursive=True)]
        for one in everything:
            with suppress(psutil.NoSuchProcess):
                one.send_signal(signal.SIGSTOP)  # so that none hears of another's end
        for one in everything:
            with suppress(psutil.NoSuchProcess):
                one.kill()


@contextmanager
def nodes(*cpus: int, folder: Path, gpus: int = 0) -> Iterator[Nodes]:
    """Start a cluster: a head, and a node for each further number of CPUs; each with GPUs that Ray only counts."""
    ray = TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True)  # a path short enough for its sockets
    process = subprocess.Popen(
        [sys.executable, "-c", _NODES, *map(str, (gpus, *cpus))],
        env={**os.environ, **LOOPBACK, "RAY_TMPDIR": ray.name},
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    known: list[psutil.Process] = []
    try:
        assert process.stdout is not None
        address, *pids = process.stdout.readline().split()
        yield Nodes(process, address, [psutil.Process(int(pid)) for pid in pids])
    finally:
        with suppress(psutil.NoSuchProcess):
            known = psutil.Process(process.pid).children(recursive=True)
        assert process.stdin is not None
        process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(20)
        process.kill()
        for one in known:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        ray.cleanup()


def running_workers() -> list[psutil.Process]:
    """Return the processes that do runs for this test's state directory, on whatever node."""
    found = []
    for one in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if "cse_cli.jobs.worker" in one.cmdline() and one.environ().get("CSE_HOME") == str(home()):
                found.append(one)
    return found


def none_left(seconds: float) -> list[psutil.Process]:
    """Return the runs that are still at work after so many seconds."""
    until = time.monotonic() + seconds
    while (left := running_workers()) and time.monotonic() < until:
        time.sleep(0.2)
    return left
