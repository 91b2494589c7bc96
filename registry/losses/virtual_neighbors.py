"""VaSCL's second loss: the hardest perturbation of an embedding within its neighborhood is its positive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from registry import LOSSES
from registry.distributed import all_devices, world_size
from registry.errors import CseError
from registry.losses.contrast import cosine_matrix, cosine_rows
from registry.types import Encoder, Loss, Pooled, Tune


@LOSSES.register("virtual_neighbors")
class VirtualNeighbors(Loss):
    """Distinguish an embedding from its nearest neighbors after the perturbation that makes this hardest.

    ℓ(a, b; B)ᵢ = −log( e^{s(aᵢ,bᵢ)/τ} / ( e^{s(aᵢ,bᵢ)/τ} + Σ_{c∈B} Σ_{j∈N(i)} e^{s(aᵢ,cⱼ)/τ} ) ),
    with e the embeddings before the heads f, p = f(e), p′ = f(e′), s the cosine and N(i) the k rows j ≠ i of the batch
    with the largest inner products eᵢ·eⱼ. The loss is the mean over i of (ℓ(p, p′; {p, p′}) + ℓ(p′, p; {p, p′})) / 2:
    each sentence has 2k negatives. e′ = e + ε·g/(‖g‖ + 10⁻⁸), where g is the gradient of the mean of
    ℓ(f(e + ε·d), p; {p}) with respect to d, a random vector of length 1 for each sentence.

    Shapes: anchor (N, D′) before the heads; result a scalar.

    Source: VaSCL (Zhang et al. 2022) and its code (amazon-science/sentence-representations @93aae2e, directory VaSCL:
    `learners/contrastive_utils.py:30-81`, `learners/vat_utils.py:50-74`). Doubtful and settled in methods/vascl.md: the
    code indexes a matrix without its diagonal (VA4, no switch: the same neighbors); d is sampled in a cube and then
    scaled to length 1 (VA5 → `start`); only the heads are trained, and only by the perturbed side (VA6 → `detached`).
    k ≥ N is an error: a sentence has N − 1 others in its batch.

    Args:
        encoder: Encoder of the view, whose heads are f.
        neighbors: Number k of neighbors.
        epsilon: Length ε of the perturbation, in the first step and in the result.
        temperature: Divisor τ of the cosines.
        detached: Whether e and p are constants, so that the loss trains only the heads, by p′.
        start: Distribution of d: "uniform" in a cube, or "normal", which prefers no direction.

    Raises:
        CseError: If the batch has at most k sentences.

    Example:
        [losses.virtual_neighbors]
        neighbors = 16
        epsilon = 1.0

        >>> import torch
        >>> from registry import ENCODERS, LOSSES
        >>> encoder = ENCODERS["transformer"].build({"model": "mini_en", "pooling": "mean"})
        >>> values = {"neighbors": 2, "epsilon": 0.0, "temperature": 1.0}
        >>> loss = LOSSES["virtual_neighbors"].build(values, {"online": encoder})
        >>> round(loss(torch.eye(4, encoder.dim)).item(), 4)
        0.9048
    """

    def __init__(
        self,
        encoder: Encoder,
        neighbors: Annotated[int, Field(gt=0), Tune(4, 64, log=True)] = 16,
        epsilon: Annotated[float, Field(ge=0), Tune(1.0, 30.0)] = 15.0,
        temperature: Annotated[float, Field(gt=0), Tune(0.01, 0.5, log=True)] = 0.05,
        detached: bool = True,
        start: Literal["uniform", "normal"] = "uniform",
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
        clean = self._projected(e)
        moved = self._projected(e + self.epsilon * self._hardest(fixed, clean.detach(), near))
        clean = clean.detach() if self.detached else clean
        both = (clean, moved)
        return (self._contrast(clean, moved, both, near) + self._contrast(moved, clean, both, near)) / 2

    def _hardest(self, e: Tensor, clean: Tensor, near: Tensor) -> Tensor:
        """Return (N, D′) directions of length 1 in which each sentence's loss increases fastest."""
        rows = len(e) // world_size()
        draw = torch.randn if self.start == "normal" else torch.rand
        start = draw(rows, e.shape[1], dtype=e.dtype, device=e.device)
        first = F.normalize(all_devices(start if self.start == "normal" else start - 0.5), dim=1)
        with torch.enable_grad():
            first.requires_grad_()
            moved = self._projected(e + self.epsilon * first)
            (gradient,) = torch.autograd.grad(self._contrast(moved, clean, (clean,), near), first)
        direction: Tensor = gradient / (gradient.norm(dim=1, keepdim=True) + 1e-8)
        return direction

    def _projected(self, vectors: Tensor) -> Tensor:
        return self._encoder[0].project(vectors)

    def _contrast(self, rows: Tensor, positives: Tensor, others: Sequence[Tensor], near: Tensor) -> Tensor:
        """Return the mean over the rows of ℓ, with `near` (N, k) their neighbors in each of `others`."""
        logits = [cosine_rows(rows, positives).unsqueeze(1)]
        logits += [cosine_matrix(rows, other).gather(1, near) for other in others]
        chosen = torch.cat(logits, dim=1) / self.temperature
        return F.cross_entropy(chosen, torch.zeros(len(chosen), dtype=torch.int64, device=chosen.device))
