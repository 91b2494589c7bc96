"""One optimiser step: batch → losses → backward → clipped update → components' hooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cse_cli.data.batches import Batches
from cse_cli.data.stream import Stream
from cse_cli.devices import Compute
from cse_cli.method import Method
from cse_cli.recipe.schema import Train
from cse_cli.step import StepState
from cse_cli.training.compiling import compile_blocks
from cse_cli.training.optimiser import learning_rate, make_optimizer, set_learning_rate
from cse_cli.training.parallel import parallel
from cse_cli.training.prefetch import Feed
from cse_cli.training.timing import Stopwatch


@dataclass(frozen=True)
class Taken:
    """A step that was taken; its numbers are still on the device.

    Args:
        step: Its views and what they became.
        loss: The objective.
        losses: Label → loss, unweighted.
        norm: Length of the gradient before clipping.
        learning_rate: Of the update.
    """

    step: StepState
    loss: Tensor
    losses: Mapping[str, Tensor]
    norm: Tensor
    learning_rate: float


def _nobody(_: str) -> None:
    """Nobody listens."""


class Stepper:
    """Takes the steps of one training; what the next one depends on, beside the method, is its `state`.

    Args:
        method: On its device already.
        batches: Training batches of this process.
        settings: Optimiser, schedule, clipping.
        compute: Device and precision.
        seed: Of the stream that augmenters and queues draw from.
        total: Steps of the whole training.
        told: Hears what a person should know, such as that nothing could be compiled.
    """

    def __init__(
        self,
        method: Method,
        batches: Batches | Stream,
        settings: Train,
        compute: Compute,
        seed: int,
        total: int,
        told: Callable[[str], None] = _nobody,
    ) -> None:
        self.method = method
        self.batches = batches
        self.settings = settings
        self.compute = compute
        self.total = total
        self.optimizer = make_optimizer(method, settings)
        self.scaler = torch.amp.GradScaler(compute.device.type, enabled=compute.precision == "fp16")
        self.generator = torch.Generator().manual_seed(seed)
        self.forward = parallel(method)
        self.watch = Stopwatch(method, compute)
        self.feed = Feed(batches.batch, total, compute.device, place=batches.state)
        self.place = batches.state()
        self.compiled = compile_blocks(method, settings, compute, (total, batches.max_length), told)

    def take(self, done: int, look: Callable[[Tensor, StepState], None] | None = None) -> Taken:
        """Take the step after `done` others; `look` sees the objective before anything is changed by it."""
        rate = learning_rate(self.settings, done, self.total)
        set_learning_rate(self.optimizer, rate)
        ready, clock = self.feed.take(done), self.watch.clock
        self.place = ready.place
        self.watch.count(ready.sizes)
        batch = {view: tokens.to(self.compute.device) for view, tokens in ready.batch.items()}
        clock.mark("data")
        if self.compiled is not None:
            self.compiled.begin_step()
        step = StepState(self.method, batch, done, self.total, self.generator)
        with self.compute.autocast():
            losses = self.forward(step)
        loss = self.method.objective(losses)
        if look is not None:
            look(loss, step)
        clock.mark("forward")
        torch.autograd.backward(self.scaler.scale(loss))
        clock.mark("backward")
        norm = self._update()
        for _, component in self.method.components():
            component.after_step(step)
        clock.mark("optimiser")
        return Taken(step, loss.detach(), {k: v.detach() for k, v in losses.items()}, norm, rate)

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps of it."""
        return {
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "generator": self.generator.get_state(),
            "watch": self.watch.state(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Put `state` back."""
        self.optimizer.load_state_dict(state["optimizer"])
        self.scaler.load_state_dict(state["scaler"])
        self.generator.set_state(state["generator"])
        if "watch" in state:
            self.watch.load_state(state["watch"])

    def load_places(self, done: int, places: Sequence[Any]) -> None:
        """Go on after `done` steps where the data of all processes stood, by rank."""
        self.batches.load_state(done, places)
        self.place = self.batches.state()

    def close(self) -> None:
        """End what runs beside the steps."""
        self.feed.close()

    def _update(self) -> Tensor:
        self.scaler.unscale_(self.optimizer)
        weights = [p for group in self.optimizer.param_groups for p in group["params"]]
        norm = torch.nn.utils.clip_grad_norm_(weights, self.settings.clip_norm or float("inf"))
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        return norm
