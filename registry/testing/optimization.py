"""Contracts of optimizers and schedules.

- Optimizers decrease a quadratic function, keep as many values as they declare, and continue from their state.
- Schedules return finite learning rates that are not negative, and depend only on their arguments.
"""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor

from registry.core import Entry
from registry.testing.materials import Materials, draw, require
from registry.types import Optimizer, Schedule

RATE, STEPS, WARMUP = 1e-3, 10, 2


def check_optimizer(entry: Entry[Optimizer], materials: Materials) -> None:
    """Check an optimizer on the squared distance from 0."""
    component: Optimizer = materials.build(entry)
    weight = torch.nn.Parameter(draw(1, 4, 3))
    made = component.build([{"params": [weight], "weight_decay": 0.0}], RATE)
    require(entry, [group["lr"] for group in made.param_groups] == [RATE], "has the given learning rate")
    values = [_step(made, weight) for _ in range(3)]
    require(entry, values[-1] < values[0], "decreases a quadratic function")
    kept = [value for value in made.state[weight].values() if isinstance(value, Tensor) and value.shape == weight.shape]
    require(entry, len(kept) == component.copies, f"keeps `copies` = {component.copies} values for each weight")
    other = torch.nn.Parameter(weight.detach().clone())
    resumed = component.build([{"params": [other], "weight_decay": 0.0}], RATE)
    resumed.load_state_dict(copy.deepcopy(made.state_dict()))
    _step(made, weight)
    _step(resumed, other)
    require(entry, torch.equal(weight, other), "continues from its state")


def _step(optimizer: torch.optim.Optimizer, weight: Tensor) -> float:
    optimizer.zero_grad()
    loss = weight.square().sum()
    torch.autograd.backward(loss)
    optimizer.step()
    return float(loss.detach())


def check_schedule(entry: Entry[Schedule], materials: Materials) -> None:
    """Check the learning rates of a schedule after its warm-up."""
    component: Schedule = materials.build(entry)
    rates = [component.rate(RATE, step, STEPS, WARMUP) for step in range(WARMUP, STEPS)]
    require(entry, all(math.isfinite(rate) and rate >= 0 for rate in rates), "returns finite rates from 0")
    again = [component.rate(RATE, step, STEPS, WARMUP) for step in range(WARMUP, STEPS)]
    require(entry, rates == again, "depends only on its arguments")
