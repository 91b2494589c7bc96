"""Where runs are executed: one on all devices together, several on a device each, in a row, or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from cse_cli.core.devices import worker_devices
from cse_cli.core.processes import place
from cse_cli.jobs.executor import PATIENCE_SECONDS, Executor, LocalExecutor, SerialExecutor
from cse_cli.jobs.request import RunRequest
from cse_cli.training.build import Job
from registry.errors import CseError


@dataclass(frozen=True)
class Placement:
    """Where jobs run.

    Args:
        processes: That share each run.
        devices: With a run of its own each; empty where one run follows another.
        cluster: Address of a Ray cluster, as `--on` takes it.
        workers: How many runs at once on the cluster; None is as many as it has devices for.
        device: What runs compute on there.
        patience: Seconds without a word after which a run's process is killed.
    """

    processes: int = 1
    devices: tuple[str, ...] = ()
    cluster: str | None = None
    workers: int | None = None
    device: str = "auto"
    patience: float = PATIENCE_SECONDS

    def open(self) -> Executor:
        """Return the executor, its processes not started yet.

        Raises:
            CseError: The cluster does not answer.
        """
        if self.cluster is not None:
            from cse_cli.jobs.cluster import RayExecutor  # Ray is an extra

            return RayExecutor(self.cluster, self.device, self.processes, self.workers, self.patience)
        return LocalExecutor(self.devices, self.patience) if self.devices else SerialExecutor(self.processes)

    def describe(self) -> str:
        """Return where jobs go, in one line."""
        if self.cluster is not None:
            at_once = "as many at once as it has devices for" if self.workers is None else f"{self.workers} at once"
            each = f", {self.processes} processes each" if self.processes > 1 else ""
            return f"on the Ray cluster {self.cluster}: {at_once}{each}"
        if self.devices:
            return f"{len(self.devices)} at once, each in a process of its own: {', '.join(self.devices)}"
        return "one after another" + (f", each in {self.processes} processes" if self.processes > 1 else "")


def choose_placement(jobs: Sequence[Job], request: RunRequest) -> Placement:
    """Return where jobs run: one on all CUDA devices, several on a device each, on the CPU one after another.

    Args:
        jobs: In the order asked for.
        request: Its `processes`, `workers` and `on`, where given, decide.

    Raises:
        CseError: What was asked for is not possible.
    """
    device, processes, workers = request.device, request.processes, request.workers
    if place() is not None:
        options = {"--processes": processes, "--workers": workers, "--on": request.on}
        if given := [name for name, value in options.items() if value is not None]:
            raise CseError(f"{given[0]}: torchrun has started the processes of this run", f"leave out {given[0]}")
        return Placement()
    if request.on is not None:
        _check_even(jobs, processes or 1)
        return Placement(processes or 1, (), request.on, workers, device, request.patience)
    if processes is not None and workers is not None:
        raise CseError(
            "--processes and --workers exclude each other",
            "--processes 2 does each run in two processes, --workers 2 does two runs at once",
        )
    if processes is not None:
        _check_processes(jobs, device, processes)
        return Placement(processes)
    if len(jobs) == 1:  # as many processes as share the batch evenly
        size = jobs[0].loaded.recipe.train.batch_size
        most = max(1, _cuda_devices(device))
        return Placement(max(count for count in range(1, most + 1) if size % count == 0))
    return place_runs(len(jobs), request)


def place_runs(count: int, request: RunRequest) -> Placement:
    """Return where so many runs go, one process each: those of a study, or the trials of a search."""
    if request.on is not None:
        return Placement(1, (), request.on, request.workers, request.device, request.patience)
    device = "auto" if request.device == "cuda" else request.device
    devices = tuple(worker_devices(device, request.workers)[:count])
    return Placement(devices=devices if len(devices) > 1 else (), patience=request.patience)


def _cuda_devices(device: str) -> int:
    """Return how many CUDA devices a run may take; 0 for one on the CPU."""
    if device not in ("auto", "cuda"):
        return int(device != "cpu")
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def _check_processes(jobs: Sequence[Job], device: str, processes: int) -> None:
    found = _cuda_devices(device)
    if found and processes > found:
        raise CseError(
            f"--processes: {processes} processes need a CUDA device each, and {found} may be used here",
            f"use --processes {found}" + ("" if device in ("auto", "cuda") else " or --device cuda"),
        )
    _check_even(jobs, processes)


def _check_even(jobs: Sequence[Job], processes: int) -> None:
    for job in jobs:
        size = job.loaded.recipe.train.batch_size
        if size % processes:
            even = [count for count in range(1, size + 1) if size % count == 0]
            near = min(even, key=lambda count: abs(count - processes))
            raise CseError(
                f"--processes: {processes} processes cannot share {job.loaded.name}'s train.batch_size = {size} evenly",
                f"use --processes {near}: the batch is that of all processes together",
            )
