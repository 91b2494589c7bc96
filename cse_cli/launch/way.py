"""How runs use the devices of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from cse_cli.devices import worker_devices
from cse_cli.job import Job
from cse_cli.processes.place import place
from registry.errors import CseError


@dataclass(frozen=True)
class Way:
    """What is done at once.

    Args:
        processes: That share each run.
        places: Devices with a run of its own each; empty where one run follows another.
    """

    processes: int = 1
    places: tuple[str, ...] = ()


def way(jobs: Sequence[Job], device: str, processes: int | None, workers: int | None) -> Way:
    """Return how to do jobs: one on all CUDA devices together, several on a device each, on the CPU one after another.

    Args:
        jobs: In the order asked for.
        device: As `cse_cli.devices.choose` takes it.
        processes: How many share each run; None leaves it to the devices.
        workers: How many runs at once; None leaves it to the devices.

    Raises:
        CseError: The numbers cannot be had.
    """
    if processes is not None and workers is not None:
        raise CseError(
            "--processes and --workers exclude each other",
            "--processes 2 does each run in two processes, --workers 2 does two runs at once",
        )
    if place() is not None:
        if processes is not None or workers is not None:
            option = "--workers" if processes is None else "--processes"
            raise CseError(f"{option}: torchrun has started the processes of this run", f"leave out {option}")
        return Way()
    if processes is not None:
        _check(jobs, device, processes)
        return Way(processes)
    if len(jobs) == 1:
        return Way(_shares(jobs[0], cuda_devices(device)))
    places = worker_devices("auto" if device == "cuda" else device, workers)[: len(jobs)]
    return Way(places=tuple(places) if len(places) > 1 else ())


def cuda_devices(device: str) -> int:
    """Return how many CUDA devices a run may take; 0 for one on the CPU."""
    if device not in ("auto", "cuda"):
        return int(device != "cpu")
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def _shares(job: Job, found: int) -> int:
    """Return the most processes, up to one a device, that share a batch evenly."""
    size = job.loaded.recipe.train.batch_size
    return max(count for count in range(1, max(1, found) + 1) if size % count == 0)


def _check(jobs: Sequence[Job], device: str, processes: int) -> None:
    found = cuda_devices(device)
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
