"""`cse run` in processes of its own, several for one run: started, looked into, ended, and none left behind."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from cse_cli.core.results import Result
from cse_cli.runs.index import all_runs
from tests.support.forked import Forked
from tests.support.records import points

CSE = ["cse_cli"]
TORCHRUN = ["torch.distributed.run"]
ENVIRONMENT = {"TORCH_CPP_LOG_LEVEL": "ERROR"}


@contextmanager
def running(*command: object, folder: Path, **environment: str) -> Iterator[Forked]:
    """Start a command; whatever it has started is gone after the block, also when the test fails."""
    process = Forked(command, folder, **ENVIRONMENT, **environment)
    known: dict[int, psutil.Process] = {}
    try:
        yield process
    finally:
        known |= {each.pid: each for each in below(process)}
        for each in known.values():
            with_mercy(each.kill)
        process.kill()
        process.communicate()


def with_mercy(act: Callable[[], object]) -> None:
    with suppress(psutil.NoSuchProcess):
        act()


def below(process: Forked) -> list[psutil.Process]:
    """Return the processes that one has started, and those that these have."""
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def ranks(process: Forked) -> dict[int, psutil.Process]:
    """Return rank → process of those that train together."""
    found = {}
    for each in below(process):
        try:
            environment = each.environ()
            if "RANK" in environment and not any(parent in found.values() for parent in each.parents()):
                found.setdefault(int(environment["RANK"]), each)
        except (psutil.NoSuchProcess, psutil.AccessDenied, OSError):
            continue
    return found


def until(holds: Callable[[], bool], *processes: Forked, seconds: float = 150) -> None:
    """Wait for something; fail with what the processes said if it does not come."""
    last = time.monotonic() + seconds
    while time.monotonic() < last and all(process.poll() is None for process in processes):
        if holds():
            return
        time.sleep(0.2)
    if holds():
        return
    told = []
    for process in processes:
        os.killpg(process.pid, signal.SIGKILL)
        told.append(process.communicate()[1])
    raise AssertionError("\n".join(told))


def running_steps() -> list[int]:
    """Return the last recorded step of every running run."""
    recorded = [points(run.run_id, "train/loss") for run in all_runs() if run.state == "RUNNING"]
    return [one[-1][0] if one else 0 for one in recorded]


def step() -> int:
    """Return the last recorded step of the running run."""
    return max(running_steps(), default=0)


def results(out: str) -> list[Result]:
    """Return what `--json` printed; fails if stdout holds anything else."""
    document = json.loads(out)
    assert set(document) == {"schema_version", "results"}
    assert document["schema_version"] == 1
    return [Result.model_validate(one) for one in document["results"]]


def ended(process: Forked, seconds: float = 200) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=seconds)
    return process.returncode, out, err


def runs(process: psutil.Process, program: str) -> bool:
    """Tell whether a process's command names a program; one that has just ended has no command."""
    try:
        return program in " ".join(process.cmdline())
    except psutil.Error:
        return False


def gone(processes: Iterator[psutil.Process] | list[psutil.Process], seconds: float = 24) -> bool:
    """Tell whether all of them have ended, and not been killed for that: `end_with_parent` does so after 25 seconds.

    15 were too few on two cores with 19 processes ready to run.
    """
    return not psutil.wait_procs(list(processes), timeout=seconds)[1]
