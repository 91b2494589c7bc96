"""Optimizer, learning-rate schedule and compilation. The default is AdamW as in SimCSE."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import torch
from torch import nn

from cse_cli.core.devices import Compute
from cse_cli.recipe.schema import Train, build_part
from registry.encoders.compiled import CompiledBlocks, prepare
from registry.types import Head, Optimizer, Schedule


def make_optimizer(method: nn.Module, settings: Train) -> torch.optim.Optimizer:
    """Return the optimizer of all trainable weights. Biases and norms have no weight decay."""
    heads = {id(p) for part in method.modules() if isinstance(part, Head) for p in part.parameters()}
    faster = 1.0 if settings.head_learning_rate is None else settings.head_learning_rate / settings.learning_rate
    groups: dict[tuple[bool, bool], list[nn.Parameter]] = {}
    for p in method.parameters():
        if p.requires_grad:
            groups.setdefault((id(p) in heads and faster != 1.0, p.ndim < 2), []).append(p)
    made = [
        {"params": groups[head, spared], "weight_decay": 0.0 if spared else settings.weight_decay,
         "factor": faster if head else 1.0}
        for head, spared in sorted(groups)
    ]  # fmt: skip
    optimizer: Optimizer = build_part(settings, "optimizer")
    return optimizer.build(made, settings.learning_rate)


class LearningRate:
    """Learning rate of each step: linear warm-up, then the schedule."""

    def __init__(self, settings: Train, total: int) -> None:
        self.peak, self.warmup, self.total = settings.learning_rate, settings.warmup_steps, total
        self.schedule: Schedule = build_part(settings, "schedule")

    def __call__(self, step: int) -> float:
        """Return the learning rate after a number of finished steps."""
        if step < self.warmup:
            return self.peak * step / self.warmup
        return self.schedule.rate(self.peak, step, self.total, self.warmup)


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of every group, times the factor of the group."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get("factor", 1.0)


AUTO_STEPS = 500
"""Smallest number of steps for which "auto" compiles. Compilation takes about a minute."""


class Compiled:
    """Compiled blocks of one training.

    The first step runs without compilation and counts the passes. If a step is a single pass, its kernels become one
    CUDA graph. Several passes (a momentum encoder, a probe for an adversarial step, gradient caching) are compiled
    without graphs, because a graph overwrites its outputs in the next pass.
    """

    def __init__(self, blocks: Sequence[CompiledBlocks], *, graphs: bool) -> None:
        self.blocks = blocks
        self._graphs = graphs
        self._active = False

    def begin_step(self) -> None:
        """Release the memory of the previous graphs, and compile from the second step."""
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
    """Return the compiled blocks of a training of `shape`: number of steps, tokens per sentence. None: no compilation.

    "auto" compiles long trainings on a GPU. On a CPU the blocks skip padding, which saves more than fused kernels.
    """
    steps, length = shape
    on_gpu = compute.device.type == "cuda"
    if not (settings.compile == "on" or (settings.compile == "auto" and on_gpu and steps >= AUTO_STEPS)):
        return None
    blocks = prepare(method, length, cache(warn))  # the same warning only once
    if not blocks and settings.compile == "on":
        warn("train.compile = 'on' has no effect: no encoder has blocks that can be compiled")
    return Compiled(blocks, graphs=on_gpu and settings.mini_batch_size is None) if blocks else None
