"""What every queue keeps: its bound, detached rows, its state, and the same contents on every device."""

from __future__ import annotations

import copy
from typing import Any

import torch

from registry.core import Entry
from registry.testing.materials import Materials, OneStep, WidthOnly, draw, require
from registry.types import Negatives, Queue

DIM, LENGTH = 6, 7
SIZES = (3, 3, 2, 3, 1)
"""Rows a step: no divisor of the length, and short batches."""


def check_queue(entry: Entry[Queue], materials: Materials) -> None:
    """Check a queue while it fills, when it overflows, and across a checkpoint."""
    short = {"length": LENGTH} if "length" in entry.parameters.model_fields else {}
    queue, twin = (_bound(entry, materials, seed, short) for seed in (0, 1))
    _check_served(entry, queue.negatives(), short)
    for step, size in enumerate(SIZES):
        for each in (queue, twin):
            each.observe(_step(step, size))
        before = queue.negatives()
        copied = before.vectors.clone()
        for each in (queue, twin):
            each.after_step(_step(step, size))
        require(entry, torch.equal(before.vectors, copied), "leaves alone what it served: the step's graph holds it")
        _check_served(entry, queue.negatives(), short)
        require(entry, len(queue.negatives().vectors) > 0, "serves what it has before it is full")
    require(entry, _same(queue, twin), "holds the same whatever the global random state: devices must agree")
    _check_checkpoint(entry, queue, _bound(entry, materials, 2, short))


def _bound(entry: Entry[Queue], materials: Materials, seed: int, values: dict[str, Any]) -> Queue:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        queue: Queue = materials.build(entry, values)
        queue.bind(WidthOnly(DIM))
    return queue


def _check_served(entry: Entry[Queue], held: Negatives, values: dict[str, Any]) -> None:
    count = len(held.vectors)
    require(entry, held.vectors.shape == (count, DIM), "serves vectors (K, D), D the encoder's")
    require(entry, held.log_weights.shape == (count,), "serves one log-weight an entry")
    require(entry, count <= values.get("length", count), "never holds more than `length`")
    detached = not held.vectors.requires_grad and not held.log_weights.requires_grad
    require(entry, detached, "serves detached entries")
    weights = held.log_weights
    valid = bool(torch.isfinite(held.vectors).all()) and not bool((weights.isnan() | (weights == torch.inf)).any())
    require(entry, valid, "serves finite vectors, and log-weights that are finite or −inf")


def _check_checkpoint(entry: Entry[Queue], queue: Queue, fresh: Queue) -> None:
    """Check that what is kept survives; a queue without `length` keeps nothing and makes its entries each step."""
    fresh.load_state_dict(copy.deepcopy(queue.state_dict()))
    require(entry, queue.length is None or _same(queue, fresh), "survives state_dict")
    for each in (queue, fresh):
        each.observe(_step(50, 2))
        each.after_step(_step(50, 2))
    require(entry, _same(queue, fresh), "goes on from a checkpoint as if there had been none")


def _step(index: int, rows: int) -> OneStep:
    return OneStep(draw(index, rows, DIM).requires_grad_(), index)


def _same(left: Queue, right: Queue) -> bool:
    a, b = left.negatives(), right.negatives()
    return torch.equal(a.vectors, b.vectors) and torch.equal(a.log_weights, b.log_weights)
