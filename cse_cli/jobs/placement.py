"""Decide where runs are executed: in processes that share each run, one per device, one by one, or on a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cse_cli.core.devices import worker_devices
from cse_cli.core.processes import torchrun_rank
from cse_cli.jobs.job import Job
from cse_cli.jobs.request import STALL_SECONDS, RunRequest
from registry.accelerators import ACCELERATORS, device_count
from registry.errors import CseError


@dataclass(frozen=True)
class Placement:
    """Placement of jobs on processes, devices or a cluster.

    Args:
        processes: Number of processes that share each run.
        devices: Devices that execute one run each. Empty if one run follows the other.
        cluster: Address of a cluster, as `--cluster` takes it, or None for this machine.
        workers: Number of parallel runs on the cluster, and of processes that make columns. Default: one per device.
        device: Device of the runs on the cluster.
        stall_timeout: Seconds without an event after which a run is restarted.
    """

    processes: int = 1
    devices: tuple[str, ...] = ()
    cluster: str | None = None
    workers: int | None = None
    device: str = "auto"
    stall_timeout: float = STALL_SECONDS

    def describe(self) -> str:
        """Return where jobs run, in one line."""
        if self.cluster is not None:
            runs = "one run per free device" if self.workers is None else f"{self.workers} runs in parallel"
            each = f", {self.processes} processes each" if self.processes > 1 else ""
            return f"on cluster {self.cluster}: {runs}{each}"
        if self.devices:
            return f"{len(self.devices)} runs in parallel: {', '.join(self.devices)}"
        return "one run after the other" + (f", {self.processes} processes each" if self.processes > 1 else "")


def choose_placement(jobs: Sequence[Job], request: RunRequest) -> Placement:
    """Return where jobs run: a single run on all accelerators, several runs on one device each.

    The options `--processes`, `--workers` and `--cluster` take precedence.
    """
    device, processes, workers = request.device, request.processes, request.workers
    if torchrun_rank() is not None:
        options = {"--processes": processes, "--workers": workers, "--cluster": request.cluster}
        if given := [name for name, value in options.items() if value is not None]:
            raise CseError(
                f"{given[0]} cannot be combined with torchrun, which has started the processes",
                f"omit {given[0]}",
                code="jobs.option_under_torchrun",
            )
        return Placement()
    if request.cluster is not None:
        _check_divisible(jobs, processes or 1)
        return Placement(processes or 1, (), request.cluster, workers, device, request.stall_timeout)
    if processes is not None and workers is not None:
        raise CseError(
            "--processes cannot be combined with --workers",
            "use --processes 2 for two processes per run, or --workers 2 for two runs in parallel",
            code="jobs.exclusive_options",
        )
    if processes is not None:
        _check_processes(jobs, device, processes)
        return Placement(processes, device=device)
    if len(jobs) == 1:  # the largest number of processes that divides the batch
        size = jobs[0].loaded.recipe.train.batch_size
        most = max(1, _devices(device))
        return Placement(
            max(count for count in range(1, most + 1) if size % count == 0), workers=workers, device=device
        )
    return place_runs(len(jobs), request)


def place_runs(count: int, request: RunRequest) -> Placement:
    """Return where runs of one process each run: those of a study, or the trials of a search."""
    if request.cluster is not None:
        return Placement(1, (), request.cluster, request.workers, request.device, request.stall_timeout)
    device = "auto" if request.device in ACCELERATORS else request.device
    devices = tuple(worker_devices(device, request.workers)[:count])
    return Placement(1, devices if len(devices) > 1 else (), None, request.workers, device, request.stall_timeout)


def _devices(device: str) -> int:
    """Return the number of accelerators that a run may use."""
    return device_count() if device in ("auto", *ACCELERATORS) else int(device != "cpu")


def _check_processes(jobs: Sequence[Job], device: str, processes: int) -> None:
    found = _devices(device)
    if found and processes > found:
        raise CseError(
            f"--processes {processes}: each process needs its own device, {found} available",
            f"use --processes {found}" + ("" if device in ("auto", *ACCELERATORS) else " or --device auto"),
            code="jobs.too_few_devices",
        )
    _check_divisible(jobs, processes)


def _check_divisible(jobs: Sequence[Job], processes: int) -> None:
    for job in jobs:
        size = job.loaded.recipe.train.batch_size
        if size % processes:
            divisors = [count for count in range(1, size + 1) if size % count == 0]
            near = min(divisors, key=lambda count: abs(count - processes))
            raise CseError(
                f"--processes {processes}: cannot divide train.batch_size = {size} of {job.loaded.name} evenly",
                f"use --processes {near}",
                code="jobs.indivisible_batch",
            )
