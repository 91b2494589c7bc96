"""The process group: joined before a run, left after it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore  # torch.distributed has it, but not for a type checker
from torch.distributed.rendezvous import rendezvous

from cse_cli.processes import lost
from cse_cli.processes.place import Place
from registry.errors import CseError

START_SECONDS = 600.0
"""How long processes wait for each other at the start: machines of a cluster do not start at once."""


@contextmanager
def joined(here: Place, device: str) -> Iterator[None]:
    """Be one of several processes that train together while the block lasts; a single one joins nothing.

    After a failure the group is not left in order, since that may wait for processes that are gone: end the process.

    Args:
        here: Which of them.
        device: As `cse_cli.devices.choose` takes it.

    Raises:
        CseError: There is no device for this process, or another one is gone.
    """
    if here.world == 1:
        yield
        return
    device_id = own_device(here, device)
    if device_id is not None:
        torch.cuda.set_device(device_id)
    with lost.explained():
        store, _, _ = next(rendezvous("env://", timeout=timedelta(seconds=START_SECONDS)))
        lost.enter(store, here)
        dist.init_process_group(
            "gloo" if device_id is None else "cpu:gloo,cuda:nccl",
            store=PrefixStore("cse/group", store),
            rank=here.rank,
            world_size=here.world,
            device_id=device_id,
        )
        yield
        dist.barrier()  # nobody leaves while another still talks to it
    dist.destroy_process_group()


def own_device(here: Place, device: str) -> torch.device | None:
    """Return the CUDA device of a process among several; None where they compute on the CPU.

    Raises:
        CseError: All are to share one device, or there are too few.
    """
    if device == "cpu" or (device == "auto" and not torch.cuda.is_available()):
        return None
    if device not in ("auto", "cuda"):
        raise CseError(
            f"--device: '{device}' is one device, and {here.world} processes need one each", "use --device cuda"
        )
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if here.local >= found:
        raise CseError(
            f"process {here.local} of this machine has no CUDA device of its own: {found} found",
            f"start {found} here, or use --device cpu" if found else "use --device cpu",
        )
    return torch.device("cuda", here.local)


def is_first_refused(here: Place, device: str) -> bool:
    """Whether no process of this machine before this one is without a device: one message is enough."""
    for local in range(here.local):
        try:
            own_device(replace(here, local=local), device)
        except CseError:
            return False
    return True
