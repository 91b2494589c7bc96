"""What one training step knows: the state behind `registry.types.Step`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from registry.distributed import all_devices, world_size
from registry.errors import CseError, suggestion
from registry.tokens import Embedded, Encoded
from registry.types import Batch


class Formula(Protocol):
    """What a step computes: losses by label, and their weighted sum."""

    def __call__(self, step: StepState) -> dict[str, Tensor]:
        """Return label → loss."""

    def objective(self, losses: Mapping[str, Tensor], step: StepState) -> Tensor:
        """Return Σ weight · loss."""


@dataclass(frozen=True)
class RandomState:
    """Where the random streams of a forward pass stand.

    Args:
        shared: The step's own generator.
        cpu: torch's generator.
        cuda: That of each CUDA device.
    """

    shared: Tensor
    cpu: Tensor
    cuda: list[Tensor]

    @staticmethod
    def now(generator: torch.Generator) -> RandomState:
        """Return the present state."""
        cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
        return RandomState(generator.get_state(), torch.get_rng_state(), cuda)

    def restore(self, generator: torch.Generator) -> None:
        """Go back to it."""
        generator.set_state(self.shared)
        torch.set_rng_state(self.cpu)
        if self.cuda:
            torch.cuda.set_rng_state_all(self.cuda)


class StepState:
    """One step of one method on one batch; filled while the method's forward pass goes on.

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
        """Return (N, D): the view's sentence vectors from every device, detached."""
        if view not in self._sentences:
            self._sentences[view] = all_devices(self.views[view].sentence.detach())
        return self._sentences[view]

    def gradient(self, view: str) -> Tensor:
        """Return (B, L, W): ∂loss/∂token vectors at the unperturbed point, with this step's own dropout masks.

        The loss is that of the whole batch, however many devices share it.

        Runs the formula once more in a probe whose own gradients are zero, with the random state put back afterwards;
        parameters' gradients are untouched. One forward and backward pass, shared by all views of the step.
        """
        if view not in self.batch:
            raise CseError(f"unknown view '{view}'.{suggestion(view, self.batch)}", f"one of {', '.join(self.batch)}")
        if self._gradients is None:
            self._gradients = self._probe()
        return self._gradients[view]

    def _probe(self) -> dict[str, Tensor]:
        now = RandomState.now(self.generator)
        with torch.enable_grad():
            # From the step's beginning: an augmenter before this one may have drawn, and must draw the same again.
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
    """A step that only asks what the gradient would be: its own perturbations are zero."""

    def gradient(self, view: str) -> Tensor:
        """Return zeros: (B, L, 0) of a view that is not embedded yet."""
        if view not in self.unperturbed:
            return torch.zeros(*self.batch[view].ids.shape, 0)
        return torch.zeros_like(self.unperturbed[view])
