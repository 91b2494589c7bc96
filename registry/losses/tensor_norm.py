"""TNCSE's constraint of norms: two encoders give the copies of a sentence vectors of the same length and direction."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from registry import LOSSES
from registry.losses.contrast import cosine_rows
from registry.tokens import at_least_single
from registry.types import Loss, Pooled, Sentences


@LOSSES.register("tensor_norm")
class TensorNorm(Loss):
    """Move the vectors of two encoders together, more if their cosine is small.

    ℓᵢ = −log s(hᵢ,h⁺ᵢ) · ‖pᵢ − p⁺ᵢ‖ / ( 2·(‖pᵢ‖ + ‖p⁺ᵢ‖) ),
    where h, h⁺ are the embeddings of two copies of a sentence by two encoders before the training heads, p, p⁺ those
    after the heads, and s the cosine. A negative cosine is replaced by the constant `floor`. The result is the mean
    over i.

    Shapes: anchor, positive (N, D′) before the heads, anchor_head, positive_head (N, D) after them; result a scalar.

    Source: TNCSE (Zong et al. 2025, its loss of the tensors' norms) and its code (tianyuzong/TNCSE @8051805,
    `model_dual.py:102-118`). Doubtful and settled in methods/tncse.md: the order of the two divisions (TN3).

    Args:
        floor: Number in place of a negative cosine.

    Examples:
        >>> import torch
        >>> from registry.losses.tensor_norm import TensorNorm
        >>> h, turned = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.6, 0.8]])
        >>> round(TensorNorm()(h, turned, anchor_head=h, positive_head=3 * h).item(), 4)
        0.1277
    """

    def __init__(self, floor: Annotated[float, Field(gt=0, le=1)] = 1e-4) -> None:
        super().__init__()
        self.floor = floor

    def forward(self, anchor: Pooled, positive: Pooled, anchor_head: Sentences, positive_head: Sentences) -> Tensor:
        """Return the loss of the batch."""
        cosines = cosine_rows(anchor, positive)
        cosines = torch.where(cosines < 0, self.floor, cosines)
        ours, theirs = at_least_single(anchor_head), at_least_single(positive_head)
        distances = torch.linalg.vector_norm(ours - theirs, dim=1)
        lengths = torch.linalg.vector_norm(ours, dim=1) + torch.linalg.vector_norm(theirs, dim=1)
        losses: Tensor = -cosines.log() * distances / lengths / 2
        return losses.mean()
