"""AdamW and its schedule, as the SimCSE chassis sets them (docs/methods/simcse.md §6), and what is compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import torch
from torch import nn

from cse_cli.core.devices import Compute
from cse_cli.recipe.schema import Train
from registry.encoders.compiled import CompiledBlocks, prepare


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


AUTO_STEPS = 500
"""Steps from which "auto" compiles: it costs about a minute."""


class Compiled:
    """What is compiled in one training.

    The first step runs as it is, and counts: where a single pass through blocks makes up a step, its kernels become one
    CUDA graph. Several passes (a momentum encoder, a probe for an adversarial step, gradient caching) are compiled
    without: a graph's outputs lie in memory that its next run takes again, whoever still reads them.

    Args:
        blocks: Not active yet.
        graphs: Whether there can be CUDA graphs.
    """

    def __init__(self, blocks: Sequence[CompiledBlocks], *, graphs: bool) -> None:
        self.blocks = blocks
        self._graphs = graphs
        self._active = False

    def begin_step(self) -> None:
        """Give up what earlier steps left in graphs' memory; from the second step on, compile."""
        passes = sum(each.passes for each in self.blocks)
        if not self._active and passes:
            self._active = True
            for each in self.blocks:
                each.active, each.graphs = True, self._graphs and passes == 1
        if any(each.graphs for each in self.blocks):
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]


def compile_blocks(
    method: nn.Module, settings: Train, compute: Compute, shape: tuple[int, int], warn: Callable[[str], None]
) -> Compiled | None:
    """Return what a training compiles; None where it compiles nothing.

    "auto" compiles on a GPU, for a training that is long enough. Never on a CPU: there the blocks skip padding, which
    saves more than fused kernels do.

    Args:
        method: Whose encoders' blocks are meant.
        settings: `compile` is "on", "off", "auto" or None, which is "off".
        compute: Device and precision.
        shape: Steps of the whole training, and tokens that sentences are cut to.
        warn: Called with the reason where nothing is compiled after all.
    """
    steps, length = shape
    on_gpu = compute.device.type == "cuda"
    if not (settings.compile == "on" or (settings.compile == "auto" and on_gpu and steps >= AUTO_STEPS)):
        return None
    blocks = prepare(method, length, cache(warn))  # each text once
    if not blocks and settings.compile == "on":
        warn("train.compile = 'on', but no encoder has blocks that could be compiled")
    return Compiled(blocks, graphs=on_gpu and settings.rows_at_once is None) if blocks else None
