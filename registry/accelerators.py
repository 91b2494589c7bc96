"""Accelerators of this machine, and their random generators."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

ACCELERATORS = ("cuda", "mps", "xpu")


def accelerator() -> str | None:
    """Return the kind of this machine's accelerators, one of `ACCELERATORS`, or None without one."""
    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return found.type if found is not None and found.type in ACCELERATORS else None


def device_count() -> int:
    """Return the number of this machine's accelerators."""
    return 0 if accelerator() is None else torch.accelerator.device_count()


def is_accelerator(device: torch.device) -> bool:
    """Return whether a device is an accelerator."""
    return device.type in ACCELERATORS


def empty_cache() -> None:
    """Free the memory that torch keeps on the accelerator."""
    if (kind := accelerator()) is not None:
        torch.get_device_module(kind).empty_cache()


def random_states() -> list[Tensor]:
    """Return the state of the random generator of each accelerator."""
    if (kind := accelerator()) is None:
        return []
    module = torch.get_device_module(kind)
    if kind == "mps":  # a machine has one, and torch.mps takes no number
        return [module.get_rng_state()]
    return [module.get_rng_state(number) for number in range(device_count())]


def set_random_states(states: Sequence[Tensor]) -> None:
    """Restore the random generators of the accelerators, as far as they exist."""
    if states and (kind := accelerator()) is not None:
        module = torch.get_device_module(kind)
        for number, state in enumerate(states[: device_count()]):
            module.set_rng_state(state, *(() if kind == "mps" else (number,)))


@contextmanager
def kept_randomness(device: torch.device) -> Iterator[None]:
    """Restore torch's random generators of the CPU and of a device after the block."""
    if device.type != "mps":
        with torch.random.fork_rng(devices=[device] if is_accelerator(device) else []):
            yield
        return
    states = random_states()  # fork_rng gives torch.mps the number of a device, which it does not take
    with torch.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            set_random_states(states)
