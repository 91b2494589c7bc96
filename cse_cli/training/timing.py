"""Time, throughput and peak memory of a training."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch

from cse_cli.core.results import Speed
from cse_cli.data.batches import Size
from registry.accelerators import is_accelerator
from registry.distributed import world_size

Part = Literal["data", "forward", "backward", "optimizer", "evaluation", "other"]
PARTS: tuple[Part, ...] = ("data", "forward", "backward", "optimizer", "evaluation", "other")
STEP: tuple[Part, ...] = ("data", "forward", "backward", "optimizer")
"""Parts of a step. "other" is the loop around it: metrics, health, checkpoints."""
PENDING = 256
"""Maximum number of pending events."""


class Clock:
    """Clock that divides time into parts. Each `mark` assigns the time since the previous mark to a part.

    On a GPU, a mark is an event in the stream of the kernels. Only `read` waits for it. The intervals between events
    include the time in which the GPU waits for the CPU.

    Args:
        device: Device of the work.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.seconds: dict[str, float] = dict.fromkeys(PARTS, 0.0)
        self._last: Any = None
        self._events: list[tuple[Part, Any, Any]] = []

    def start(self) -> None:
        """Ignore the time since the last mark."""
        self._last = self._now()

    def mark(self, part: Part) -> None:
        """Assign the time since the last mark to a part."""
        last, now = self._last, self._now()
        self._last = now
        if last is None:
            return
        if not is_accelerator(self.device):
            self.seconds[part] += now - last
            return
        self._events.append((part, last, now))
        if len(self._events) >= PENDING and self._events[0][2].query():
            self._collect([event for event in self._events if event[2].query()])

    def read(self) -> dict[str, float]:
        """Return part → seconds so far. On a GPU, wait for the last mark."""
        if self._events:
            self._events[-1][2].synchronize()
            self._collect(self._events)
        return dict(self.seconds)

    def _now(self) -> Any:
        if not is_accelerator(self.device):
            return time.perf_counter()
        event = torch.Event(self.device, enable_timing=True)
        event.record(torch.accelerator.current_stream(self.device))
        return event

    def _collect(self, done: list[tuple[Part, Any, Any]]) -> None:
        """Add the times of finished events. These are the first ones, because a stream keeps its order."""
        for part, began, ended in done:
            self.seconds[part] += began.elapsed_time(ended) / 1000
        self._events = self._events[len(done) :]


class Stopwatch:
    """Time of one training, and the tokens that the encoders of this process read over all views.

    Args:
        device: Device of the training.
    """

    def __init__(self, device: torch.device) -> None:
        self.clock = Clock(device)
        self.tokens = 0
        self.places = 0
        """Number of tokens with padding."""
        self._before = (0, 0.0)
        forget_peak(device)

    def count(self, sizes: Mapping[str, Size]) -> None:
        """Add the batch of one step."""
        for size in sizes.values():
            self.tokens += size.tokens
            self.places += size.places

    def recent(self) -> dict[str, float]:
        """Return the throughput metrics since the last call, without evaluation."""
        before, since = self._before
        self._before = now, seconds = self.tokens, self._step_seconds()
        took = seconds - since
        if took <= 0:
            return {}
        return {
            "speed/tokens_per_second": (now - before) * world_size() / took,
            "speed/peak_memory_gb": peak_memory(self.clock.device) / 1e9,
        }

    def speed(self) -> Speed:
        """Return the throughput of the whole training."""
        seconds = self._step_seconds()
        return Speed(
            seconds=self.clock.read(),
            tokens_per_second=self.tokens * world_size() / seconds if seconds else None,
            padding=1 - self.tokens / self.places if self.places else None,
            peak_memory=peak_memory(self.clock.device),
        )

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {"seconds": self.clock.read(), "work": {"tokens": self.tokens, "places": self.places}}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Load the state of a checkpoint."""
        self.clock.seconds = {part: float(state["seconds"].get(part, 0.0)) for part in PARTS}
        self.tokens, self.places = state["work"]["tokens"], state["work"]["places"]
        self._before = (self.tokens, self._step_seconds())

    def _step_seconds(self) -> float:
        parts = self.clock.read()
        return sum(parts[part] for part in STEP)


_WITH_MEMORY = ("cuda", "xpu")


def forget_peak(device: torch.device) -> None:
    """Set the peak memory of a GPU to its current memory."""
    if device.type in _WITH_MEMORY:
        torch.get_device_module(device).reset_peak_memory_stats(device)


def peak_memory(device: torch.device) -> int:
    """Return the peak memory in bytes: of torch's tensors on a GPU with its own memory, else of this process."""
    if device.type in _WITH_MEMORY:
        return int(torch.get_device_module(device).max_memory_allocated(device))
    try:
        with Path("/proc/self/status").open(encoding="ascii") as lines:
            return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024
    except (OSError, StopIteration):  # not Linux
        largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return largest if sys.platform == "darwin" else largest * 1024
