"""DCLR's noise: negatives made for each step where few sentences lie."""

from __future__ import annotations

from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from registry import QUEUES, Tune
from registry.tokens import copy_to_device
from registry.types import Encoder, Negatives, Queue, Step, ViewName


@QUEUES.register("noise")
class Noise(Queue):
    """Serve random vectors, moved to where they disturb the batch most, as negatives of weight 1.

    z ~ N(0, I), then `steps` times z ← z + ρ·g/‖g‖, where g is the gradient, with respect to z, of
    mean over i of −log( e^{s(hᵢ,h⁺ᵢ)/τ} / ( Σⱼ e^{s(hᵢ,h⁺ⱼ)/τ} + Σₖ e^{s(hᵢ,zₖ)/τ} ) ),
    with s the cosine and h, h⁺ the batch's vectors, detached; ‖g‖ is taken for each vector by itself, and a vector
    without a gradient stays. The draw is the step's, from the generator that all devices share. Served with unit
    length, detached; nothing is kept over steps.

    Shapes: negatives (⌊times·N⌋, D), at least one row, or (count, D); zero log-weights.

    Source: DCLR (Zhou et al. 2022; `simcse/models.py`, cl_vat_forward), methods/dclr.md; GS-InfoNCE (Wu et al. 2022;
    `gsInfoNCE/models.py`), which moves nothing (`steps = 0`) and draws a fixed `count`, methods/gs_infonce.md.
    Doubtful: the code puts a vector that becomes NaN, where g = 0, at the origin, where its cosine counts as 0; here it
    stays where it was drawn (N5). Moves of 10⁻³ hardly turn a vector of norm √D: at D = 768 four of them do so by less
    than 0.01° (N6).

    Args:
        view: The anchors.
        positive: The view that holds their positives.
        times: Noise vectors for each sentence of the batch, on all devices together.
        steps: Moves up the gradient; 0 leaves the noise as drawn.
        rate: ρ, the length of a move.
        temperature: τ of the objective climbed.
        count: Noise vectors of a step, whatever the size of the batch; `times` decides if left out.
    """

    def __init__(
        self,
        view: ViewName = "anchor",
        positive: ViewName = "positive",
        times: Annotated[float, Field(gt=0), Tune(0.5, 5.0)] = 1.0,
        steps: Annotated[int, Field(ge=0), Tune(0, 16)] = 4,
        rate: Annotated[float, Field(gt=0), Tune(1e-4, 10.0, log=True)] = 1e-3,
        temperature: Annotated[float, Field(gt=0), Tune(0.01, 0.5, log=True)] = 0.05,
        count: Annotated[int, Field(gt=0), Tune(16, 1024, log=True)] | None = None,
    ) -> None:
        super().__init__()
        self.view, self.positive, self.times, self.steps = view, positive, times, steps
        self.rate, self.temperature, self.count = rate, temperature, count
        self.served = torch.zeros(0, 0)

    def bind(self, encoder: Encoder) -> None:
        """Take the width of the encoder's sentence vectors."""
        self.served = torch.zeros(0, encoder.dim)

    def observe(self, step: Step) -> None:
        """Draw this step's noise and move it."""
        views = (step.sentences(view).float() for view in (self.view, self.positive))
        anchors, positives = (F.normalize(vectors, dim=-1, eps=1e-8) for vectors in views)
        count = self.count or max(1, int(self.times * len(anchors)))
        drawn = torch.randn(count, anchors.shape[1], generator=step.generator, device=step.generator.device)
        noise = copy_to_device(drawn, anchors.device)
        with torch.autocast(anchors.device.type, enabled=False):
            for _ in range(self.steps):
                noise = noise + self.rate * _direction(self._gradient(noise, anchors, positives))
            self.served = F.normalize(noise, dim=-1, eps=1e-8)

    def negatives(self) -> Negatives:
        """Return the step's noise; none before the first step."""
        return Negatives(self.served, self.served.new_zeros(len(self.served)))

    def _gradient(self, noise: Tensor, anchors: Tensor, positives: Tensor) -> Tensor:
        """Return (K, D) ∂(mean InfoNCE)/∂noise."""
        with torch.enable_grad():
            noise = noise.detach().requires_grad_()
            columns = torch.cat([positives, F.normalize(noise, dim=-1, eps=1e-8)])
            labels = torch.arange(len(anchors), device=anchors.device)
            loss = F.cross_entropy(anchors @ columns.T / self.temperature, labels)
            (gradient,) = torch.autograd.grad(loss, noise)
        return gradient


def _direction(gradient: Tensor) -> Tensor:
    """Return rows of length 1, rows of zeros where there is no gradient; squares of tiny values would vanish."""
    largest = gradient.abs().amax(dim=-1, keepdim=True)
    return F.normalize(torch.where(largest > 0, gradient / largest, 0.0), dim=-1, eps=1e-8)
