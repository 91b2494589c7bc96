"""Where the time of a training goes, and how much of what its device could do at most, and of its memory, it takes."""

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
from cse_cli.data.batches import Size
from cse_cli.training.method import Method
from registry.distributed import world_size
from registry.encoders.transformer import Cost, cost_of

Part = Literal["data", "forward", "backward", "optimiser", "evaluation", "other"]
PARTS: tuple[Part, ...] = ("data", "forward", "backward", "optimiser", "evaluation", "other")
STEP: tuple[Part, ...] = ("data", "forward", "backward", "optimiser")
"""What makes up a step; "other" is the loop around it: records, health, checkpoints."""
PENDING = 256
"""Events kept at most between two calls of `read`."""


class Clock:
    """Divides time into parts: what passed since the last `mark` belongs to the part it names.

    On a GPU a mark is an event on the stream that kernels are queued on, and nothing waits for it before `read`. The
    distances between events cover all time, that in which the GPU waits for the host included.

    Args:
        device: Where the work is done.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.seconds: dict[str, float] = dict.fromkeys(PARTS, 0.0)
        self._last: Any = None
        self._events: list[tuple[Part, Any, Any]] = []

    def start(self) -> None:
        """Leave out what passed since the last mark."""
        self._last = self._now()

    def mark(self, part: Part) -> None:
        """Say what was done since the last mark."""
        last, now = self._last, self._now()
        self._last = now
        if last is None:
            return
        if self.device.type != "cuda":
            self.seconds[part] += now - last
            return
        self._events.append((part, last, now))
        if len(self._events) >= PENDING and self._events[0][2].query():
            self._collect([event for event in self._events if event[2].query()])

    def read(self) -> dict[str, float]:
        """Return part → seconds so far; on a GPU, wait for the last mark."""
        if self._events:
            self._events[-1][2].synchronize()
            self._collect(self._events)
        return dict(self.seconds)

    def _now(self) -> Any:
        if self.device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self.device))
        return event

    def _collect(self, done: list[tuple[Part, Any, Any]]) -> None:
        """Add up events that have passed; they are the first ones, for a stream keeps its order."""
        for part, began, ended in done:
            self.seconds[part] += began.elapsed_time(ended) / 1000
        self._events = self._events[len(done) :]


@dataclass
class Work:
    """What was computed, on this process.

    Args:
        steps: Taken.
        tokens: Read by encoders, over all views: padding not counted.
        places: The same with padding, as batches come.
        flops: Of the model, see `model_flops`.
    """

    steps: int = 0
    tokens: int = 0
    places: int = 0
    flops: float = 0.0


def model_flops(cost: Cost, size: Size) -> float:
    """Return the floating-point operations that a view of a batch takes in an encoder's blocks.

    Forward 2·N a token for N weights, and 4·layers·width·n² a sentence of n tokens for the products QKᵀ and its weights
    times V; backward twice the same where the encoder is trained. So 6·N·Σn + 12·layers·width·Σn², as PaLM counts
    (Chowdhery et al. 2022, appendix B). Not counted, though it takes time: padding, the embedding layer, heads, losses,
    optimiser, what gradient caching computes again, and passes that an augmenter or a queue asks for. Blocks that are
    not trained are counted forward only. What is not computed though counted, where only the first token's last state
    is asked for, is a part of the last block: the measure is of the model, not of how it is computed.
    """
    forward = 2.0 * cost.weights * size.tokens + 4.0 * cost.attention * size.squares
    return forward * (3 if cost.trained else 1)


class Stopwatch:
    """Time and work of one training.

    Args:
        method: Whose views are encoded.
        compute: Device and precision.
    """

    def __init__(self, method: Method, compute: Compute) -> None:
        self.clock = Clock(compute.device)
        self.work = Work()
        self._compute = compute
        self._costs = {name: cost_of(method.encoder(view.encoder)) for name, view in method.views.items()}
        self._peak = peak_flops(compute)
        self._before = (Work(), 0.0)
        if compute.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(compute.device)

    def count(self, sizes: Mapping[str, Size]) -> None:
        """Add one step's batch."""
        self.work.steps += 1
        for view, size in sizes.items():
            self.work.tokens += size.tokens
            self.work.places += size.places
            if (cost := self._costs[view]) is not None:
                self.work.flops += model_flops(cost, size)

    def recent(self) -> dict[str, float]:
        """Return what a record keeps of the time since the last call; steps alone, without evaluation."""
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
            found["speed/model_flop_utilisation"] = flops / took / self._peak
        return found

    def speed(self) -> Speed:
        """Return the whole training's."""
        parts, seconds = self.clock.read(), self._step_seconds()
        known = self._peak is not None and self.work.flops > 0 and seconds > 0
        return Speed(
            seconds=parts,
            tokens_per_second=self.work.tokens * world_size() / seconds if seconds else None,
            padding=1 - self.work.tokens / self.work.places if self.work.places else None,
            model_flops=self.work.flops * world_size(),
            model_flop_utilisation=self.work.flops / seconds / self._peak if known and self._peak else None,
            peak_memory=peak_memory(self._compute.device),
        )

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps."""
        return {"seconds": self.clock.read(), "work": asdict(self.work)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`."""
        self.clock.seconds = {part: float(state["seconds"].get(part, 0.0)) for part in PARTS}
        self.work = Work(**state["work"])
        self._before = (Work(**state["work"]), self._step_seconds())

    def _step_seconds(self) -> float:
        parts = self.clock.read()
        return sum(parts[part] for part in STEP)


# Dense figures in 10¹² operations a second, from NVIDIA data sheets of the H200, H100, A100, L40S, V100 and T4, halved
# where they are "with sparsity", and its Ada white paper for the RTX 4090. Half precision on tensor cores, with sums in
# fp32; fp32 without them, for torch multiplies fp32 exactly unless told otherwise. The first pattern that fits counts.
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
    """Return the floating-point operations a second of a device in a precision; None where that is not known."""
    if compute.device.type != "cuda":
        return None
    return known_peak(torch.cuda.get_device_name(compute.device), compute.precision)


def known_peak(name: str, precision: str) -> float | None:
    """Return the same for the name that the driver gives a GPU."""
    for pattern, peaks in _PEAKS:
        if re.search(rf"\b{pattern}", name):
            return peaks[precision] * 1e12 if precision in peaks else None
    return None


def peak_memory(device: torch.device) -> int:
    """Return bytes at the highest point: those of torch's tensors on a GPU, else those of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        with Path("/proc/self/status").open(encoding="ascii") as lines:
            return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024
    except (OSError, StopIteration):  # no Linux; elsewhere this counts the process that started it too
        largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return largest if sys.platform == "darwin" else largest * 1024
