"""What every head keeps: its width, finite values, gradient to input and weights, views beside each other."""

from __future__ import annotations

import torch

from registry.core import Entry
from registry.testing.materials import Materials, draw, require
from registry.types import Head

ROWS = 6


def check_head(entry: Entry[Head], materials: Materials) -> None:
    """Check a head behind the encoder of `materials`, for one view and for two views below each other."""
    head: Head = materials.build(entry)
    width = materials.encoder.dim
    out = head.fit(width, materials.encoder)
    for groups in ((), (("anchor", ROWS // 2), ("positive", ROWS // 2))):
        pooled = draw(1, ROWS, width).requires_grad_()
        made = head(pooled, groups)
        require(entry, made.shape == (ROWS, out), "returns (B, the width that `fit` announces)")
        require(entry, bool(torch.isfinite(made).all()), "returns finite values")
        trained = [p for p in head.parameters() if p.requires_grad]
        found = torch.autograd.grad((made @ torch.linspace(-1, 1, out)).square().sum(), [pooled, *trained])
        require(entry, all(bool(g.isfinite().all()) and bool(g.any()) for g in found[:1]), "sends gradient through")
        require(entry, all(bool(g.isfinite().all()) for g in found), "has finite gradients")
    _check_evaluation(entry, head, width)


def _check_evaluation(entry: Entry[Head], head: Head, width: int) -> None:
    head.eval()
    pooled = draw(2, ROWS, width)
    require(entry, torch.equal(head(pooled, ()), head(pooled, ())), "draws nothing in eval mode")
    dense = head.dense()
    if dense is not None:
        weight, bias, activation = dense
        plain = pooled @ weight.T + bias
        same = torch.allclose(plain.tanh() if activation == "Tanh" else plain, head(pooled, ()), atol=1e-6)
        require(entry, same, "computes what `dense` says")
