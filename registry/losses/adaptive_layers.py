"""2D Matryoshka (Li et al. 2024): another loss at every layer of the encoder."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from registry import LOSSES
from registry.loss_wrapper import LossWrapper
from registry.types import Loss


@LOSSES.register("adaptive_layers")
class AdaptiveLayers(LossWrapper):
    """Compute another loss on the pooled states of every layer, and align each layer with the last one.

    ℓ = c·ℓ'(h_K) + (1/(K−1))·Σ_k w_k·ℓ'(h_k) + λ·τ·Σ_k KL( softmax(h_K/τ) ‖ softmax(h_k/τ) ), k = 1…K−1,
    with h_k the embedding after pooling and heads from block k of K, and the KL divergence over the dimensions, the
    mean over all sentences of all views, without gradient of h_K. With a loss `matryoshka` as ℓ', it is 2D Matryoshka.
    Views of a teacher or another reference use their last layer, and so do the entries of a queue.

    Shapes: inputs (N, D) as those of ℓ'; result a scalar.

    Source: 2DMSE (Li et al. 2024) in the form of sentence-transformers' `AdaptiveLayerLoss` with all layers. The paper
    samples one lower layer and one width per step (methods/matryoshka.md MY3).

    Args:
        of: Name of a loss in the recipe, such as a `matryoshka`.
        last_weight: Weight c of the last layer.
        lower_weight: Factor of all weights w_k.
        layer_weighting: Weights w_k of lower layers: "uniform" is 1, "log" 1/(1 + ln k), "linear" 1/k.
        alignment_weight: Weight λ of the divergence.
        temperature: Divisor τ of the embeddings in the divergence.

    Examples:
        >>> import torch
        >>> from registry.losses.adaptive_layers import AdaptiveLayers
        >>> from registry.losses.alignment import Alignment
        >>> last = {"anchor": torch.tensor([[3.0, 4.0]]), "positive": torch.tensor([[2.0, 0.0]])}  # ℓ' = 0.8
        >>> first = {"anchor": torch.tensor([[3.0, 0.0]]), "positive": torch.tensor([[0.0, 2.0]])}  # ℓ' = 2
        >>> loss = AdaptiveLayers(Alignment(), lower_weight=0.5, alignment_weight=0.0)
        >>> round(loss(layers=[first], **last).item(), 4)
        1.8
    """

    reads_layers = True

    def __init__(
        self,
        of: Loss,
        last_weight: float = 1.0,
        lower_weight: float = 1.0,
        layer_weighting: Literal["uniform", "log", "linear"] = "uniform",
        alignment_weight: float = 1.0,
        temperature: Annotated[float, Field(gt=0)] = 0.3,
    ) -> None:
        super().__init__(of)
        self.reads_layers = True
        self.last_weight, self.lower_weight, self.layer_weighting = last_weight, lower_weight, layer_weighting
        self.alignment_weight, self.temperature = alignment_weight, temperature

    def forward(self, layers: Sequence[Mapping[str, Any]], **inputs: Any) -> Tensor:
        """Return the weighted sum over all layers. `layers` contains the inputs of the lower ones, from the first."""
        loss: Tensor = self.last_weight * self.of(**inputs)
        target = (self._vectors(inputs) / self.temperature).softmax(dim=-1).detach()
        for number, layer in enumerate(layers, 1):
            lower = {name: inputs[name] if name in self.steering else value for name, value in layer.items()}
            weight = {"uniform": 1.0, "linear": 1 / number, "log": 1 / (1 + math.log(number))}[self.layer_weighting]
            loss = loss + self.lower_weight * weight / len(layers) * self.of(**lower)
            found = (self._vectors(lower) / self.temperature).log_softmax(dim=-1)
            divergence = F.kl_div(found, target, reduction="batchmean")
            loss = loss + self.alignment_weight * self.temperature * divergence
        return loss

    def _vectors(self, inputs: Mapping[str, Any]) -> Tensor:
        """Return the embeddings of all views that the encoder learns from, one below the other."""
        views = [value for name, value in inputs.items() if name not in self.steering]
        flat = [each for view in views for each in (view if isinstance(view, tuple) else (view,))]
        return torch.cat([each for each in flat if isinstance(each, Tensor) and each.dim() == 2])
