"""Regularizer that keeps an encoder's weights close to their initial values."""

from __future__ import annotations

import torch
from torch import Tensor

from registry import LOSSES
from registry.errors import CseError
from registry.types import Encoder, Head, Loss


@LOSSES.register("stay_near")
class StayNear(Loss):
    """Keep every trained weight tensor of an encoder close to its initial value.

    ℓ = Σ_p ‖θ_p − θ_p⁰‖² over the encoder's trained tensors p, except those of its heads, which start from random
    values. At the start the value and the gradient are 0. The loss reads no view.

    Shapes: a scalar.

    Source: SG-OPT (Kim, Yoo and Lee 2021, section 3.1) and its code (galsang/SG-BERT @23d5ebe, `loss.py:277-281`); the
    same as `L2-SP` (Li et al. 2018).

    Args:
        encoder: Encoder with the regularized weights.

    Raises:
        CseError: If all trained weights of the encoder belong to its heads.

    Example:
        [losses.stay_near]
        weight = 0.1
        encoder = "online"

        >>> from registry import ENCODERS, LOSSES
        >>> encoder = ENCODERS["transformer"].build({"model": "mini_en"})
        >>> loss = LOSSES["stay_near"].build({}, {"online": encoder})
        >>> loss().item()
        0.0
        >>> encoder.backbone.embeddings.LayerNorm.bias.data[:3] += 1.0
        >>> round(loss().item(), 4)
        3.0
    """

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        heads = [module for module in encoder.modules() if isinstance(module, Head)]
        of_heads = {id(parameter) for head in heads for parameter in head.parameters()}
        trained = {name: p for name, p in encoder.named_parameters() if p.requires_grad and id(p) not in of_heads}
        if not trained:
            raise CseError(
                "stay_near: the encoder has no trained weights except those of its heads",
                "set `encoder` to a trained encoder, or remove the loss",
                code="losses.no_trained_weights",
            )
        self._encoder = (encoder,)  # in a tuple: not a sub-module
        self._names = tuple(trained)  # not the weights themselves: a move to another device may replace them
        for place, parameter in enumerate(trained.values()):
            # Not persistent: a resumed run starts from the same weights before it loads its own.
            self.register_buffer(f"start_{place}", parameter.detach().clone(), persistent=False)

    def forward(self) -> Tensor:
        """Return the distance."""
        now = [self._encoder[0].get_parameter(name) for name in self._names]
        starts = [self.get_buffer(f"start_{place}") for place in range(len(now))]
        squares = [(moved - start).square().sum() for moved, start in zip(now, starts, strict=True)]
        return torch.stack(squares).sum()
