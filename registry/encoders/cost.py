"""Computational cost of an encoder's blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from registry.encoders import families
from registry.encoders.transformer import TransformerEncoder
from registry.types import Encoder


@dataclass(frozen=True)
class Cost:
    """Cost of one pass through the blocks.

    Args:
        weights: Number of weights in the matrices that multiply each token vector.
        attention: Layers times width, the factor of the squared sentence length.
        trained: Whether the gradient of the weights is computed.
    """

    weights: int
    attention: int
    trained: bool = True


def cost_of(encoder: Encoder) -> Cost | None:
    """Return the cost of the first transformer in an encoder, or None if the encoder has no transformer."""
    for module in encoder.modules():
        if isinstance(module, TransformerEncoder):
            return _blocks(module.backbone)
    return None


def _blocks(backbone: Any) -> Cost:
    """Return the cost of the blocks. ALBERT runs the same blocks several times."""
    layers = int(backbone.config.num_hidden_layers)
    groups = getattr(getattr(backbone, "encoder", None), "albert_layer_groups", None)
    blocks = list(families.blocks(backbone)) if groups is None else [b for g in groups for b in g.albert_layers]
    matrices = [part.weight.numel() for block in blocks for part in block.modules() if isinstance(part, nn.Linear)]
    passes = layers * (1 if groups is None else len(blocks) // len(groups))
    trained = any(weight.requires_grad for block in blocks for weight in block.parameters())
    return Cost(sum(matrices) * passes // len(blocks), passes * int(backbone.config.hidden_size), trained)
