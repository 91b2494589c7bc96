"""Layers as one would compute them on paper, number by number."""

from collections.abc import Sequence

import torch
from torch import nn

from registry.testing.materials import WidthOnly


def fit_head(cls, width, seed=0, **values):
    """Return a head that keeps its width."""
    torch.manual_seed(seed)
    head = cls(**values)
    assert head.fit(width, WidthOnly(width)) == width
    return head


def linear(layer: nn.Linear, row: Sequence[float]) -> list[float]:
    """Return W x + b of one row."""
    biases = [0.0] * layer.out_features if layer.bias is None else layer.bias.tolist()
    rows = zip(layer.weight.tolist(), biases, strict=True)
    return [bias + sum(w * x for w, x in zip(weights, row, strict=True)) for weights, bias in rows]
