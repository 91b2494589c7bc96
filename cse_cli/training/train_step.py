"""One training step: batch → losses → backward → clipped update → hooks of the components."""

from __future__ import annotations

import inspect
import resource
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from cse_cli.core.devices import Compute
from cse_cli.core.results import Speed
from cse_cli.data.batches import Batches, Feed
from cse_cli.recipe.schema import Train
from cse_cli.training.method import Method, StepState
from cse_cli.training.optimizer import LearningRate, compile_blocks, make_optimizer, set_learning_rate
from registry.accelerators import is_accelerator
from registry.distributed import world_size
from registry.encoders.lookup import rows_added

Part = Literal["data", "forward", "backward", "optimizer", "evaluation", "other"]
PARTS: tuple[Part, ...] = ("data", "forward", "backward", "optimizer", "evaluation", "other")
STEP: tuple[Part, ...] = ("data", "forward", "backward", "optimizer")
"""Parts of a step. "other" is the loop around it: metrics, health, checkpoints."""
PENDING = 256
"""Maximum number of pending events."""


class Stopwatch:
    """Time of one training in parts, and the tokens that the encoders of this process read over all views.

    Each `mark` assigns the time since the previous mark to a part. On a GPU, a mark is an event in the stream of the
    kernels. Only `read` waits for it. The intervals between events include the time in which the GPU waits for the CPU.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.seconds: dict[str, float] = dict.fromkeys(PARTS, 0.0)
        self.tokens = self.places = 0
        """Numbers of tokens without and with padding."""
        self._before = (0, 0.0)
        self._last: Any = None
        self._events: list[tuple[Part, Any, Any]] = []
        forget_peak(device)

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

    def recent(self) -> dict[str, float]:
        """Return the throughput metrics since the last call, without evaluation."""
        before, since = self._before
        self._before = now, seconds = self.tokens, self._step_seconds()
        took = seconds - since
        if took <= 0:
            return {}
        return {
            "speed/tokens_per_second": (now - before) * world_size() / took,
            "speed/peak_memory_gb": peak_memory(self.device) / 1e9,
        }

    def speed(self) -> Speed:
        """Return the throughput of the whole training."""
        seconds = self._step_seconds()
        return Speed(
            seconds=self.read(),
            tokens_per_second=self.tokens * world_size() / seconds if seconds else None,
            padding=1 - self.tokens / self.places if self.places else None,
            peak_memory=peak_memory(self.device),
        )

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {"seconds": self.read(), "work": {"tokens": self.tokens, "places": self.places}}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Load the state of a checkpoint."""
        self.seconds = {part: float(state["seconds"].get(part, 0.0)) for part in PARTS}
        self.tokens, self.places = state["work"]["tokens"], state["work"]["places"]
        self._before = (self.tokens, self._step_seconds())

    def _step_seconds(self) -> float:
        parts = self.read()
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


Look = Callable[[Tensor, Mapping[str, Tensor], StepState], None]
"""Receiver of the objective, the unweighted losses by label and the state of a step."""


@dataclass(frozen=True)
class StepOutput:
    """Output of one step. Its tensors are still on the device.

    `norm` is that of the gradient before clipping.
    """

    step: StepState
    loss: Tensor
    losses: Mapping[str, Tensor]
    norm: Tensor
    learning_rate: float


class TrainStep:
    """One step of a training: batch, losses, backward pass, clipped update, hooks of the components.

    The next step depends on the method and on `state()`.

    Augmenters and queues share a generator with this seed. `warn` receives warnings, such as a failed compilation.
    """

    def __init__(
        self,
        method: Method,
        batches: Batches,
        settings: Train,
        compute: Compute,
        seed: int,
        total: int,
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.method = method
        self.batches = batches
        self.settings = settings
        self.compute = compute
        self.total = total
        self.optimizer = make_optimizer(method, settings)
        self.learning_rate = LearningRate(settings, total)
        self.scaler = torch.amp.GradScaler(compute.device.type, enabled=compute.precision == "fp16")
        self.generator = torch.Generator().manual_seed(seed)
        self.forward = parallel(method)
        self.watch = Stopwatch(compute.device)
        self.feed = Feed(batches.batch, total, compute.device)
        self.compiled = compile_blocks(method, settings, compute, (total, batches.max_length), warn)

    def take(self, done: int, look: Look | None = None) -> StepOutput:
        """Take the step after `done` others. `look` receives the objective and the losses before the update."""
        rate = self.learning_rate(done)
        set_learning_rate(self.optimizer, rate)
        (given, tokens, places), watch = self.feed.take(done), self.watch
        watch.tokens += tokens
        watch.places += places
        batch = {view: of_view.to(self.compute.device) for view, of_view in given.items()}
        watch.mark("data")
        if self.compiled is not None:
            self.compiled.begin_step()
        step = StepState(self.method, batch, done, self.total, self.generator)
        with self.compute.autocast():
            losses = self.forward(step)
        loss = self.method.objective(losses, step)
        if look is not None:
            look(loss, losses, step)
        watch.mark("forward")
        with rows_added():
            torch.autograd.backward(self.scaler.scale(loss))
        watch.mark("backward")
        norm = self._update()
        for _, component in self.method.components():
            component.after_step(step)
        watch.mark("optimizer")
        return StepOutput(step, loss.detach(), {k: v.detach() for k, v in losses.items()}, norm, rate)

    def _update(self) -> Tensor:
        self.scaler.unscale_(self.optimizer)
        weights = [p for group in self.optimizer.param_groups for p in group["params"]]
        norm = torch.nn.utils.clip_grad_norm_(weights, self.settings.clip_norm or float("inf"))
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        return norm

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "generator": self.generator.get_state(),
            "watch": self.watch.state(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Load the state of a checkpoint."""
        self.optimizer.load_state_dict(state["optimizer"])
        self.scaler.load_state_dict(state["scaler"])
        self.generator.set_state(state["generator"])
        self.watch.load_state(state["watch"])

    def close(self) -> None:
        """End the thread that prepares batches."""
        self.feed.close()


def parallel(method: Method) -> Callable[[StepState], dict[str, Tensor]]:
    """Return the method, wrapped if several processes train together: the backward pass then averages the gradients.

    Probes call the method directly. Each component handles its own buffers. Weights without a gradient, which differ by
    method, are found at every step.
    """
    if world_size() == 1:
        return method
    known = inspect.signature(DistributedDataParallel).parameters
    buffers = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"  # newer torch, older
    options: dict[str, Any] = {"find_unused_parameters": True, "gradient_as_bucket_view": True, buffers: False}
    return DistributedDataParallel(method, **options)
