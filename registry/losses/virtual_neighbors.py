"""VaSCL's second loss: the hardest perturbation of an embedding within its neighborhood is its positive."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from registry import LOSSES
from registry.distributed import all_devices, world_size
from registry.errors import CseError
from registry.losses.contrast import cosine_matrix
from registry.types import Encoder, Loss, Pooled, Tune


@LOSSES.register("virtual_neighbors")
class VirtualNeighbors(Loss):
    """Distinguish an embedding from its nearest neighbors after the perturbation that makes this hardest.

    ℓ(a, b)ᵢ = −log( e^{s(aᵢ,bᵢ)/τ} / ( e^{s(aᵢ,bᵢ)/τ} + Σ_{j∈N(i)} e^{s(aᵢ,bⱼ)/τ} ) ),
    the loss is the mean over i of (ℓ(f(e), f(e′)) + ℓ(f(e′), f(e))) / 2, with e the embeddings before the heads f, s
    the cosine, N(i) the k rows j ≠ i of the batch with the largest inner products eᵢ·eⱼ, and e′ = e + ε·g/‖g‖, where g
    is the gradient of ℓ(f(e), f(e + ε·d)) with respect to a random d of length 1, for each sentence.

    Shapes: anchor (N, D′) before the heads; result a scalar.

    Source: VaSCL (Zhang et al. 2022, eq. 3 to 6) and its code (`learners/`). Doubtful and settled in methods/vascl.md:
    the code indexes a matrix without its diagonal (VA4, no switch: the same neighbors); d is sampled in a cube and then
    scaled to length 1 (VA5 → `start`); the gradient reaches only the heads (VA6 → `detached`). k ≥ N is an error: a
    sentence has N − 1 others in its batch.

    Args:
        encoder: Encoder of the view, whose heads are f.
        neighbors: Number k of neighbors.
        epsilon: Length ε of the perturbation, in the first step and in the result.
        temperature: Divisor τ of the cosines.
        detached: Whether e is a constant, so that the loss trains only the heads.
        start: Distribution of d: "normal", which prefers no direction, or "uniform" in a cube.

    Raises:
        CseError: If the batch has at most k sentences.

    Example:
        [losses.virtual_neighbors]
        neighbors = 16
        epsilon = 1.0
    """

    def __init__(
        self,
        encoder: Encoder,
        neighbors: Annotated[int, Field(gt=0), Tune(4, 64, log=True)] = 16,
        epsilon: Annotated[float, Field(ge=0), Tune(1.0, 30.0)] = 15.0,
        temperature: Annotated[float, Field(gt=0), Tune(0.01, 0.5, log=True)] = 0.05,
        detached: bool = True,
        start: Literal["normal", "uniform"] = "normal",
    ) -> None:
        super().__init__()
        self._encoder = (encoder,)  # in a tuple: not a sub-module
        self.neighbors, self.epsilon, self.temperature = neighbors, epsilon, temperature
        self.detached, self.start = detached, start

    def forward(self, anchor: Pooled) -> Tensor:
        """Return the loss of the batch."""
        if self.neighbors >= len(anchor):
            raise CseError(
                f"virtual_neighbors: neighbors = {self.neighbors} requires a larger batch than {len(anchor)} sentences",
                f"set neighbors to at most {len(anchor) - 1}, or increase train.batch_size",
                code="losses.batch_too_small",
            )
        fixed = anchor.detach()
        itself = torch.eye(len(fixed), dtype=torch.bool, device=fixed.device)
        near = (fixed @ fixed.T).masked_fill(itself, -torch.inf).topk(self.neighbors, dim=1).indices
        e = fixed if self.detached else anchor
        projected = self._projected(e)
        moved = self._projected(e + self.epsilon * self._hardest(fixed, near))
        return (self._contrast(projected, moved, near) + self._contrast(moved, projected, near)) / 2

    def _hardest(self, e: Tensor, near: Tensor) -> Tensor:
        """Return (N, D′) unit vectors: the direction in which each sentence's loss increases fastest."""
        rows = len(e) // world_size()
        draw = torch.randn if self.start == "normal" else _in_cube
        first = F.normalize(all_devices(draw(rows, e.shape[1], dtype=e.dtype, device=e.device)), dim=1)
        with torch.enable_grad():
            first.requires_grad_()
            moved = self._projected(e + self.epsilon * first)
            value = self._contrast(self._projected(e).detach(), moved, near)
            (gradient,) = torch.autograd.grad(value, first)
        return F.normalize(gradient, dim=1, eps=torch.finfo(gradient.dtype).tiny)

    def _projected(self, vectors: Tensor) -> Tensor:
        return self._encoder[0].project(vectors)

    def _contrast(self, rows: Tensor, columns: Tensor, near: Tensor) -> Tensor:
        """Return the mean over i of ℓ(rows, columns)ᵢ, with `near` (N, k) the columns of the neighbors."""
        logits = cosine_matrix(rows, columns) / self.temperature
        chosen = torch.cat([logits.diagonal().unsqueeze(1), logits.gather(1, near)], dim=1)
        return F.cross_entropy(chosen, torch.zeros(len(chosen), dtype=torch.int64, device=chosen.device))


def _in_cube(*shape: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.rand(*shape, dtype=dtype, device=device) - 0.5
