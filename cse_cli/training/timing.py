"""Time, throughput, model FLOP utilization and peak memory of a training."""

from __future__ import annotations

import re
import resource
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from cse_cli.core.devices import Compute
from cse_cli.core.results import Speed
from cse_cli.core.threads import CoreUse, schedulable_cores
from cse_cli.data.batches import Size
from cse_cli.training.method import Method
from registry.accelerators import is_accelerator
from registry.distributed import world_size
from registry.encoders.cost import Cost, cost_of

Part = Literal["data", "forward", "backward", "optimizer", "evaluation", "other"]
PARTS: tuple[Part, ...] = ("data", "forward", "backward", "optimizer", "evaluation", "other")
STEP: tuple[Part, ...] = ("data", "forward", "backward", "optimizer")
"""Parts of a step. "other" is the loop around it: metrics, health, checkpoints."""
PENDING = 256
"""Maximum number of pending events."""
SHORTAGE_SECONDS = 10.0
"""Minimum time over which the use of the cores is measured."""
ENOUGH = 0.75
"""Share of a thread's time on a core from which a run has enough. On an idle machine, two threads have 0.85."""
FULL = 0.9
"""Share of the cores from which none of them is free."""


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


@dataclass
class Work:
    """Work of this process.

    Args:
        steps: Number of steps.
        tokens: Number of tokens that encoders read, over all views, without padding.
        places: Number of tokens with padding.
        flops: Model FLOPs as in `model_flops`.
    """

    steps: int = 0
    tokens: int = 0
    places: int = 0
    flops: float = 0.0


def model_flops(cost: Cost, size: Size) -> float:
    """Return the floating-point operations of an encoder's blocks for one view of a batch.

    Forward: 2·N per token for N weights, and 4·layers·width·n² per sentence of n tokens for attention. Backward: twice
    as much if the encoder is trained. Together 6·N·Σn + 12·layers·width·Σn². Source: PaLM (Chowdhery et al. 2022,
    appendix B).

    Not counted: padding, the embedding layer, heads, losses, the optimizer, recomputation, and additional passes of
    augmenters or queues. The value describes the model, not its implementation: a block counts fully even if only the
    first token of its output is computed.
    """
    forward = 2.0 * cost.weights * size.tokens + 4.0 * cost.attention * size.squares
    return forward * (3 if cost.trained else 1)


class Stopwatch:
    """Time and work of one training.

    Args:
        method: Method whose views are encoded.
        compute: Device and precision.
    """

    def __init__(self, method: Method, compute: Compute) -> None:
        self.clock = Clock(compute.device)
        self.work = Work()
        self._compute = compute
        self._costs = {name: cost_of(method.encoder(view.encoder)) for name, view in method.views.items()}
        self._peak = peak_flops(compute)
        self._before = (Work(), 0.0)
        forget_peak(compute.device)
        self._use = CoreUse() if compute.device.type == "cpu" else None

    def count(self, sizes: Mapping[str, Size]) -> None:
        """Add the batch of one step."""
        self.work.steps += 1
        for view, size in sizes.items():
            self.work.tokens += size.tokens
            self.work.places += size.places
            if (cost := self._costs[view]) is not None:
                self.work.flops += model_flops(cost, size)

    def recent(self) -> dict[str, float]:
        """Return the throughput metrics since the last call, without evaluation."""
        seconds = self._step_seconds()
        before, since = self._before
        self._before = (Work(**asdict(self.work)), seconds)
        took = seconds - since
        if took <= 0:
            return {}
        tokens, flops = self.work.tokens - before.tokens, self.work.flops - before.flops
        found = {
            "speed/tokens_per_second": tokens * world_size() / took,
            "speed/peak_memory_gb": peak_memory(self._compute.device) / 1e9,
        }
        if self._peak is not None and flops:
            found["speed/model_flop_utilization"] = flops / took / self._peak
        return found

    def shortage(self) -> str | None:
        """Return a warning, once, if other processes use the cores that the threads of this process need.

        A process that waits for data, or computes with fewer threads than it has, leaves cores free.
        """
        if self._use is None or self._use.seconds < SHORTAGE_SECONDS:
            return None
        threads, cores = torch.get_num_threads(), schedulable_cores()
        own, others = self._use.read()
        if own >= ENOUGH * threads or own + others < FULL * cores:
            return None
        self._use = None
        needed = "1 core" if threads == 1 else f"{threads} cores"
        return f"this run gets {own:.1f} of {needed}: other processes are busy → stop them, or use fewer --workers"

    def speed(self) -> Speed:
        """Return the throughput of the whole training."""
        parts, seconds = self.clock.read(), self._step_seconds()
        known = self._peak is not None and self.work.flops > 0 and seconds > 0
        return Speed(
            seconds=parts,
            tokens_per_second=self.work.tokens * world_size() / seconds if seconds else None,
            padding=1 - self.work.tokens / self.work.places if self.work.places else None,
            model_flops=self.work.flops * world_size(),
            model_flop_utilization=self.work.flops / seconds / self._peak if known and self._peak else None,
            peak_memory=peak_memory(self._compute.device),
        )

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {"seconds": self.clock.read(), "work": asdict(self.work)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Load the state of a checkpoint."""
        self.clock.seconds = {part: float(state["seconds"].get(part, 0.0)) for part in PARTS}
        self.work = Work(**state["work"])
        self._before = (Work(**state["work"]), self._step_seconds())

    def _step_seconds(self) -> float:
        parts = self.clock.read()
        return sum(parts[part] for part in STEP)


# Dense TFLOP/s from NVIDIA's data sheets (H200, H100, A100, L40S, V100, T4), halved if given "with sparsity", and from
# its Ada white paper (RTX 4090). Half precision uses tensor cores with fp32 sums. fp32 does not, as is torch's default.
# The first matching pattern counts.
_PEAKS: tuple[tuple[str, dict[str, float]], ...] = (
    (r"H100 PCIe", {"bf16": 756, "fp16": 756, "fp32": 51}),
    (r"H[12]00 NVL", {"bf16": 835, "fp16": 835, "fp32": 60}),
    (r"H[12]00\b(?!.*MIG)", {"bf16": 989, "fp16": 989, "fp32": 67}),
    (r"A100\b(?!.*MIG)", {"bf16": 312, "fp16": 312, "fp32": 19.5}),
    (r"L40S\b", {"bf16": 362, "fp16": 362, "fp32": 91.6}),
    (r"RTX 4090$", {"bf16": 165.2, "fp16": 165.2, "fp32": 82.6}),
    (r"V100-SXM", {"fp16": 125, "fp32": 15.7}),
    (r"V100-PCIE", {"fp16": 112, "fp32": 14}),
    (r"T4$", {"fp16": 65, "fp32": 8.1}),
)


def peak_flops(compute: Compute) -> float | None:
    """Return the peak FLOP/s of a device in a precision, or None if unknown."""
    if compute.device.type != "cuda":
        return None
    return known_peak(torch.cuda.get_device_name(compute.device), compute.precision)


def known_peak(name: str, precision: str) -> float | None:
    """Return the peak FLOP/s of a GPU by the name that its driver reports, or None if unknown."""
    for pattern, peaks in _PEAKS:
        if re.search(rf"\b{pattern}", name):
            return peaks[precision] * 1e12 if precision in peaks else None
    return None


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
