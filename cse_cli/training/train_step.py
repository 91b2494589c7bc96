"""One training step: batch → losses → backward → clipped update → hooks of the components."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from cse_cli.core.devices import Compute
from cse_cli.data.batches import Batches, Feed
from cse_cli.recipe.schema import Train
from cse_cli.training.method import Method
from cse_cli.training.optimizer import LearningRate, compile_blocks, make_optimizer, set_learning_rate
from cse_cli.training.step import StepState
from cse_cli.training.timing import Stopwatch
from registry.distributed import world_size
from registry.encoders.lookup import rows_added

Look = Callable[[Tensor, Mapping[str, Tensor], StepState], None]
"""Receiver of the objective, the unweighted losses by label and the state of a step."""


@dataclass(frozen=True)
class StepOutput:
    """Output of one step. Its tensors are still on the device.

    Args:
        step: State of the step, with its views.
        loss: Value of the objective.
        losses: Label → unweighted loss.
        norm: Norm of the gradient before clipping.
        learning_rate: Learning rate of the update.
    """

    step: StepState
    loss: Tensor
    losses: Mapping[str, Tensor]
    norm: Tensor
    learning_rate: float


class TrainStep:
    """One step of a training: batch, losses, backward pass, clipped update, hooks of the components.

    The next step depends on the method and on `state()`.

    Args:
        method: Method, on its device.
        batches: Training batches of this process.
        settings: Optimizer, schedule and clipping.
        compute: Device and precision.
        seed: Seed of the generator that augmenters and queues share.
        total: Number of steps of the training.
        warn: Receives warnings, such as a failed compilation.
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
        ready, clock = self.feed.take(done), self.watch.clock
        self.watch.count(ready.sizes)
        batch = {view: tokens.to(self.compute.device) for view, tokens in ready.batch.items()}
        clock.mark("data")
        if self.compiled is not None:
            self.compiled.begin_step()
        step = StepState(self.method, batch, done, self.total, self.generator)
        with self.compute.autocast():
            losses = self.forward(step)
        loss = self.method.objective(losses, step)
        if look is not None:
            look(loss, losses, step)
        clock.mark("forward")
        with rows_added():
            torch.autograd.backward(self.scaler.scale(loss))
        clock.mark("backward")
        norm = self._update()
        for _, component in self.method.components():
            component.after_step(step)
        clock.mark("optimizer")
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
        if "watch" in state:
            self.watch.load_state(state["watch"])

    def close(self) -> None:
        """End the thread that prepares batches."""
        self.feed.close()


def parallel(method: Method) -> Callable[[StepState], dict[str, Tensor]]:
    """Return the module that computes a training step: the method, wrapped if several processes train together.

    The wrapper averages the gradients over the processes during the backward pass. Probes call the method directly.
    Each component handles its own buffers. Weights without a gradient, which differ by method, are found at every step.
    """
    if world_size() == 1:
        return method
    known = inspect.signature(DistributedDataParallel).parameters
    buffers = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"  # newer torch, older
    options: dict[str, Any] = {"find_unused_parameters": True, "gradient_as_bucket_view": True, buffers: False}
    return DistributedDataParallel(method, **options)
