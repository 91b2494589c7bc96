"""Seconds of individual steps, on a CPU or a GPU, without synchronizing after each step."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import pairwise

import torch


@dataclass(frozen=True)
class Took:
    """Times of steps, with one value for each step.

    Args:
        wall: Wall seconds. On a GPU, between the ends of two steps on the device.
        cpu: Processor seconds of this process, for all threads.
    """

    wall: tuple[float, ...]
    cpu: tuple[float, ...]

    def after(self, warm: int) -> Took:
        """Return the times without the first `warm` steps."""
        return Took(self.wall[warm:], self.cpu[warm:])


class Clock:
    """Clock that marks the end of each step. The first mark is the start.

    Args:
        device: Device of the steps.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._wall: list[float] = []
        self._cpu: list[float] = []
        self._events: list[torch.cuda.Event] = []

    def mark(self) -> None:
        """Mark the end of a step."""
        if self.device.type == "cuda":
            event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            event.record()
            self._events.append(event)
        self._wall.append(time.perf_counter())
        self._cpu.append(time.process_time())

    def took(self) -> Took:
        """Wait for the device and return the times of the steps."""
        wall = _differences(self._wall)
        if self._events:
            torch.cuda.synchronize(self.device)
            pairs = pairwise(self._events)
            wall = tuple(before.elapsed_time(after) / 1000 for before, after in pairs)
        return Took(wall, _differences(self._cpu))


def _differences(marks: list[float]) -> tuple[float, ...]:
    return tuple(after - before for before, after in pairwise(marks))
