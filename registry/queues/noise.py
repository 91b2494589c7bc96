"""DCLR's noise: negatives generated for each step in regions with few sentences."""

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
    """Return random vectors, moved to where they disturb the batch most, as negatives with weight 1.

    z ~ N(0, I), then `steps` times z ← z + ρ·g/‖g‖, where g is the gradient, with respect to z, of
    mean over i of −log( e^{s(hᵢ,h⁺ᵢ)/τ} / ( Σⱼ e^{s(hᵢ,h⁺ⱼ)/τ} + Σₖ e^{s(hᵢ,zₖ)/τ} ) ),
    with s the cosine and h, h⁺ the batch's embeddings, detached. ‖g‖ is the norm per vector, and a vector without
    gradient does not move. The random numbers come from the step's generator, which all devices share. The vectors have
    unit length, are detached, and are not stored over steps.

    Shapes: negatives (⌊times·N⌋, D), at least one row, or (count, D); zero log-weights.

    Source: DCLR (Zhou et al. 2022; `simcse/models.py`, cl_vat_forward), methods/dclr.md; GS-InfoNCE (Wu et al. 2022;
    `gsInfoNCE/models.py`), which moves no vector (`steps = 0`) and samples a fixed `count`, methods/gs_infonce.md.
    Doubtful: the code puts a vector that becomes NaN, where g = 0, at the origin, with cosine 0; this implementation
    does not move it (N5). Moves of 10⁻³ hardly rotate a vector of norm √D: at D = 768 four moves rotate it by less than
    0.01° (N6).

    Args:
        view: View of the anchors.
        positive: View of the positives.
        times: Number of noise vectors per sentence of the batch, on all devices together.
        steps: Number of moves along the gradient. 0 keeps the sampled vectors.
        rate: Length ρ of a move.
        temperature: Divisor τ of the cosines in the objective.
        count: Number of noise vectors per step, independent of the batch size. Default: determined by `times`.

    Example:
        [queue]
        name = "noise"
        times = 1.0
        steps = 4
        rate = 1e-3
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
        """Store the width of the encoder's embeddings."""
        self.served = torch.zeros(0, encoder.dim)

    def observe(self, step: Step) -> None:
        """Sample the noise of this step and move it."""
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
        """Return the noise of this step, empty before the first step."""
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
    """Return rows of length 1, or zeros without gradient. Scaling first keeps squares of tiny values above 0."""
    largest = gradient.abs().amax(dim=-1, keepdim=True)
    return F.normalize(torch.where(largest > 0, gradient / largest, 0.0), dim=-1, eps=1e-8)
