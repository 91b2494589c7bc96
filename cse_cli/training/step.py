"""State of one training step: the implementation of `registry.types.Step`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from registry.accelerators import random_states, set_random_states
from registry.distributed import all_devices, world_size
from registry.errors import CseError, suggestion
from registry.tokens import Embedded, Encoded
from registry.types import Batch


class Formula(Protocol):
    """Losses of a step by label, and their weighted sum."""

    def __call__(self, step: StepState) -> dict[str, Tensor]:
        """Return label → loss."""

    def objective(self, losses: Mapping[str, Tensor], step: StepState) -> Tensor:
        """Return Σ weight · loss."""


@dataclass(frozen=True)
class RandomState:
    """State of the random generators of a forward pass.

    Args:
        shared: State of the step's generator.
        cpu: State of torch's generator.
        accelerators: State of the generator of each accelerator.
    """

    shared: Tensor
    cpu: Tensor
    accelerators: list[Tensor]

    @staticmethod
    def now(generator: torch.Generator) -> RandomState:
        """Return the current state."""
        return RandomState(generator.get_state(), torch.get_rng_state(), random_states())

    def restore(self, generator: torch.Generator) -> None:
        """Restore the generators to this state."""
        generator.set_state(self.shared)
        torch.set_rng_state(self.cpu)
        set_random_states(self.accelerators)


class StepState:
    """One step of one method on one batch. The forward pass fills it.

    Args:
        method: The formula being computed.
        batch: View name → tokens, on the method's device.
        index: Steps done before this one.
        total: Steps of the whole training.
        generator: Random stream for augmenters and queues, equal on every device.
    """

    def __init__(self, method: Formula, batch: Batch, index: int, total: int, generator: torch.Generator) -> None:
        self.method = method
        self.batch = batch
        self.index = index
        self.total = total
        self.generator = generator
        self.embedded: dict[str, Embedded] = {}
        self.views: dict[str, Encoded] = {}
        self.unperturbed: dict[str, Tensor] = {}
        self._began = RandomState.now(generator)
        self._gradients: dict[str, Tensor] | None = None
        self._sentences: dict[str, Tensor] = {}

    def sentences(self, view: str) -> Tensor:
        """Return (N, D): the view's sentence embeddings from every device, detached."""
        if view not in self._sentences:
            self._sentences[view] = all_devices(self.views[view].sentence.detach())
        return self._sentences[view]

    def gradient(self, view: str) -> Tensor:
        """Return (B, L, W): ∂loss/∂token embeddings at the unperturbed point, with the dropout masks of this step.

        The loss is the loss of the whole batch over all devices. The method runs once more as a probe whose own
        perturbations are zero: one forward and backward pass for all views of the step. The random state is restored
        afterwards, and the gradients of the parameters do not change.
        """
        if view not in self.batch:
            raise CseError(
                f"unknown view '{view}'.{suggestion(view, self.batch)}",
                f"use one of {', '.join(self.batch)}",
                code="training.unknown_view",
            )
        if self._gradients is None:
            self._gradients = self._probe()
        return self._gradients[view]

    def _probe(self) -> dict[str, Tensor]:
        now = RandomState.now(self.generator)
        with torch.enable_grad():
            # From the start of the step: an earlier augmenter may have sampled, and must sample the same values again.
            self._began.restore(self.generator)
            probe = ProbeState(self.method, self.batch, self.index, self.total, self.generator)
            loss = self.method.objective(self.method(probe), probe)
            names = list(probe.unperturbed)
            found = torch.autograd.grad(loss, [probe.unperturbed[name] for name in names], allow_unused=True)
        now.restore(self.generator)
        return {
            name: torch.zeros_like(probe.unperturbed[name]) if gradient is None else gradient.detach() / world_size()
            for name, gradient in zip(names, found, strict=True)
        }


class ProbeState(StepState):
    """Step that only computes the gradient. Its own perturbations are zero."""

    def gradient(self, view: str) -> Tensor:
        """Return zeros, with shape (B, L, 0) for a view that is not embedded yet."""
        if view not in self.unperturbed:
            return torch.zeros(*self.batch[view].ids.shape, 0)
        return torch.zeros_like(self.unperturbed[view])
