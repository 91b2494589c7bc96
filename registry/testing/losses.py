"""What every loss keeps: a finite scalar, gradient into every view, no dependence on the order of rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from registry.core import Entry
from registry.testing.materials import Materials, draw, require
from registry.tokens import Encoded, Tokens
from registry.types import Loss, Negatives

ROWS, LENGTH, ENTRIES, DIM = 6, 5, 4, 8

Views = Mapping[str, Encoded]


def check_loss(entry: Entry[Loss], materials: Materials) -> None:
    """Check a loss with and without a queue, with and without its optional inputs."""
    loss = materials.build(entry)
    dim = materials.encoder.dim if entry.references else DIM
    required = [i.name for i in entry.inputs if i.kind != "negatives" and not i.optional]
    optional = [i.name for i in entry.inputs if i.kind != "negatives" and i.optional]
    for names in {tuple(required), (*required, *optional)}:
        views = {name: _view(seed, dim) for seed, name in enumerate(names)}
        for entries in (0, ENTRIES):
            _check_value(entry, loss, views, _negatives(entries, dim))
        collapsed = {name: replace(view, sentence=torch.ones(ROWS, dim)) for name, view in views.items()}
        _check_value(entry, loss, collapsed, _negatives(0, dim), reach=False)


def _check_value(entry: Entry[Loss], loss: Loss, views: Views, negatives: Negatives, reach: bool = True) -> None:
    leaves = {name: _leaves(view) for name, view in views.items()}
    value = _call(entry, loss, leaves, negatives)
    what = f"with {', '.join(views)} and {len(negatives.vectors)} queue entries"
    require(entry, value.shape == () and bool(torch.isfinite(value)), f"returns a finite scalar {what}")
    tensors = [t for view in leaves.values() for t in (view.sentence, view.embeddings, view.hidden)]
    found = torch.autograd.grad(value, tensors, allow_unused=True)
    gradients = [torch.zeros(1) if g is None else g for g in found]
    require(entry, all(bool(torch.isfinite(g).all()) for g in gradients), f"has finite gradients {what}")
    for index, name in enumerate(leaves):
        reached = any(bool(g.any()) for g in gradients[3 * index : 3 * index + 3])
        if name in loss.steering:
            require(entry, not reached, f"sends no gradient into '{name}', which only steers, {what}")
        else:
            require(entry, reached or not reach, f"sends gradient into '{name}' {what}")
    loss.eval()
    permuted = {name: _rows(view, [3, 0, 5, 1, 4, 2]) for name, view in leaves.items()}
    here, there = (_call(entry, loss, chosen, negatives) for chosen in (leaves, permuted))
    loss.train()
    require(entry, torch.allclose(here, there, rtol=1e-4, atol=1e-5), f"does not depend on the order of rows {what}")


def _call(entry: Entry[Loss], loss: Loss, views: Views, negatives: Negatives) -> Tensor:
    given: dict[str, Any] = {}
    for wanted in entry.inputs:
        if wanted.kind == "negatives":
            given[wanted.name] = negatives
        elif wanted.name in views:
            given[wanted.name] = views[wanted.name] if wanted.kind == "encoded" else views[wanted.name].sentence
    value: Tensor = loss(**given)
    return value


def _view(seed: int, dim: int) -> Encoded:
    mask = torch.ones(ROWS, LENGTH, dtype=torch.int64)
    mask[1, 3:] = 0
    positions = torch.arange(LENGTH).expand(ROWS, LENGTH)
    ids = 5 + draw(seed, ROWS, LENGTH).abs().long()
    hidden = (positions == 2) & (mask == 1)  # as an augmenter hides tokens
    targets = torch.where(hidden, 6, -100)
    tokens = Tokens(ids, mask, torch.zeros_like(mask), positions, targets=targets)
    vectors = draw(seed + 100, ROWS, LENGTH, dim)
    return Encoded(draw(seed + 200, ROWS, dim), vectors, vectors + draw(seed + 300, ROWS, LENGTH, dim), tokens)


def _leaves(view: Encoded) -> Encoded:
    sentence, embeddings, hidden = (t.clone().requires_grad_() for t in (view.sentence, view.embeddings, view.hidden))
    return Encoded(sentence, embeddings, hidden, view.tokens)


def _rows(view: Encoded, order: list[int]) -> Encoded:
    t = view.tokens
    targets = None if t.targets is None else t.targets[order]
    tokens = replace(
        t, ids=t.ids[order], mask=t.mask[order], types=t.types[order], positions=t.positions[order], targets=targets
    )
    return Encoded(view.sentence[order], view.embeddings[order], view.hidden[order], tokens)


def _negatives(entries: int, dim: int) -> Negatives:
    weights = torch.linspace(0.5, 1.0, entries)
    weights[:1] = 0.0  # an entry that is switched off
    return Negatives(torch.nn.functional.normalize(draw(7, entries, dim), dim=-1), weights.log())
