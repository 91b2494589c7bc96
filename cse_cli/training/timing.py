"""Where the time of a training goes, and what that makes of the device it runs on."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch

from cse_cli.devices import Compute
from cse_cli.method import Method
from cse_cli.results import Speed
from cse_cli.training.hardware import forget_peak_memory, peak_flops, peak_memory
from registry.distributed import world_size
from registry.encoders.cost import Cost, cost_of

Part = Literal["data", "forward", "backward", "optimiser", "evaluation", "other"]
PARTS: tuple[Part, ...] = ("data", "forward", "backward", "optimiser", "evaluation", "other")
STEP: tuple[Part, ...] = ("data", "forward", "backward", "optimiser")
"""What makes up a step; "other" is the loop around it: records, health, checkpoints."""
PENDING = 256
"""Events kept at most while nobody reads."""


class Clock:
    """Divides time into parts: what passed since the last `mark` belongs to the part it names.

    On a GPU a mark is an event on the stream that kernels are queued on, and nobody waits for it before `read`. The
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


@dataclass(frozen=True)
class Size:
    """What one view of a batch holds.

    Args:
        places: Rows times the length they are padded to.
        tokens: Real ones among them.
        squares: Σ over rows of the square of their tokens: what attention grows with.
    """

    places: int
    tokens: int
    squares: int

    @staticmethod
    def of(mask: torch.Tensor) -> Size:
        """Return that of a mask (B, L), on the CPU."""
        lengths = mask.sum(dim=1)
        return Size(mask.numel(), int(lengths.sum()), int((lengths * lengths).sum()))


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
        self._earlier = (Work(), 0.0)
        forget_peak_memory(compute.device)

    def count(self, sizes: Mapping[str, Size]) -> None:
        """Add one step's batch."""
        self.work.steps += 1
        for view, size in sizes.items():
            self.work.tokens += size.tokens
            self.work.places += size.places
            if (cost := self._costs[view]) is not None:
                self.work.flops += model_flops(cost, size)

    def lately(self) -> dict[str, float]:
        """Return what a record keeps of the time since the last call; steps alone, without evaluation."""
        seconds = self._step_seconds()
        before, since = self._earlier
        self._earlier = (Work(**asdict(self.work)), seconds)
        took = seconds - since
        if took <= 0:
            return {}
        tokens, flops = self.work.tokens - before.tokens, self.work.flops - before.flops
        found = {"speed/tokens_per_second": tokens * world_size() / took, "speed/peak_memory_gb": self.memory / 1e9}
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
            peak_memory=self.memory,
        )

    @property
    def memory(self) -> int:
        """Bytes at the highest point: what torch held of the GPU, or this process of the machine."""
        return peak_memory(self._compute.device)

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps."""
        return {"seconds": self.clock.read(), "work": asdict(self.work)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`."""
        self.clock.seconds = {part: float(state["seconds"].get(part, 0.0)) for part in PARTS}
        self.work = Work(**state["work"])
        self._earlier = (Work(**state["work"]), self._step_seconds())

    def _step_seconds(self) -> float:
        parts = self.clock.read()
        return sum(parts[part] for part in STEP)
