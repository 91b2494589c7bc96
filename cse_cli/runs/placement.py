"""Where runs compute: one run on all devices together, several on a device each, or one after another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from cse_cli.core.devices import worker_devices
from cse_cli.core.processes import place
from cse_cli.runs.request import RunRequest
from cse_cli.training.build import Job
from registry.errors import CseError


@dataclass(frozen=True)
class Placement:
    """How jobs share the devices of this machine.

    Args:
        processes: That share each run.
        devices: With a run of its own each; empty where one run follows another.
    """

    processes: int = 1
    devices: tuple[str, ...] = ()


def choose_placement(jobs: Sequence[Job], request: RunRequest) -> Placement:
    """Return where jobs run: one on all CUDA devices, several on a device each, on the CPU one after another.

    Args:
        jobs: In the order asked for.
        request: Its `processes` and `workers`, where given, decide.

    Raises:
        CseError: The processes or workers asked for are not possible.
    """
    device, processes, workers = request.device, request.processes, request.workers
    if processes is not None and workers is not None:
        raise CseError(
            "--processes and --workers exclude each other",
            "--processes 2 does each run in two processes, --workers 2 does two runs at once",
        )
    if place() is not None:
        if processes is not None or workers is not None:
            option = "--workers" if processes is None else "--processes"
            raise CseError(f"{option}: torchrun has started the processes of this run", f"leave out {option}")
        return Placement()
    if processes is not None:
        _check_processes(jobs, device, processes)
        return Placement(processes)
    if len(jobs) == 1:  # as many processes as share the batch evenly
        size = jobs[0].loaded.recipe.train.batch_size
        most = max(1, _cuda_devices(device))
        return Placement(max(count for count in range(1, most + 1) if size % count == 0))
    devices = worker_devices("auto" if device == "cuda" else device, workers)[: len(jobs)]
    return Placement(devices=tuple(devices) if len(devices) > 1 else ())


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
    for job in jobs:
        size = job.loaded.recipe.train.batch_size
        if size % processes:
            even = [count for count in range(1, size + 1) if size % count == 0]
            near = min(even, key=lambda count: abs(count - processes))
            raise CseError(
                f"--processes: {processes} processes cannot share {job.loaded.name}'s train.batch_size = {size} evenly",
                f"use --processes {near}: the batch is that of all processes together",
            )
