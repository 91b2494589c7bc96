"""The forward pass whose gradients are averaged over processes while they are still being computed."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from cse_cli.method import Method
from cse_cli.step import StepState
from registry.distributed import world_size

Forward = Callable[[StepState], dict[str, Tensor]]


def parallel(method: Method) -> Forward:
    """Return what a training step calls instead of the method; on one process the method itself.

    Probes go on calling the bare method: their gradients are not the parameters'. Buffers are each component's own
    affair, and weights without a gradient, which differ by method, are looked for at every step.
    """
    if world_size() == 1:
        return method
    options: dict[str, Any] = {"find_unused_parameters": True, "gradient_as_bucket_view": True, _buffers_left(): False}
    return DistributedDataParallel(method, **options)


def _buffers_left() -> str:
    """Return the option that says not to copy buffers at every step, which newer torch versions call otherwise."""
    options = inspect.signature(DistributedDataParallel).parameters
    return "forward_sync_buffers" if "forward_sync_buffers" in options else "broadcast_buffers"
