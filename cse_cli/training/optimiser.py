"""AdamW and its schedule, as the SimCSE chassis sets them (docs/methods/simcse.md §6)."""

from __future__ import annotations

import torch
from torch import nn

from cse_cli.recipe.schema import Train


def make_optimizer(method: nn.Module, settings: Train) -> torch.optim.AdamW:
    """Return AdamW over all trainable weights; biases and norms are not decayed."""
    trainable = [p for p in method.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trainable if p.ndim >= 2], "weight_decay": settings.weight_decay},
        {"params": [p for p in trainable if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW([g for g in groups if g["params"]], lr=settings.learning_rate, fused=True)


def learning_rate(settings: Train, step: int, total: int) -> float:
    """Return the rate of the step after `step` done ones: a linear rise over the warm-up, then decay to 0.

    Args:
        settings: Peak, warm-up and kind of schedule.
        step: Steps done.
        total: Steps of the whole training.
    """
    if step < settings.warmup_steps:
        return settings.learning_rate * step / settings.warmup_steps
    if settings.schedule == "constant":
        return settings.learning_rate
    return settings.learning_rate * (total - step) / max(1, total - settings.warmup_steps)


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Give every group the same rate."""
    for group in optimizer.param_groups:
        group["lr"] = rate
