"""Whether the processes of one training still hold the same method."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from cse_cli.method import Method
from cse_cli.ranks import from_all
from registry.distributed import world_size
from registry.errors import RunFailedError

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def demand_alike(method: Method, step: int) -> None:
    """Check that weights, momentum copies and the queue are the same on every process, to the last bit.

    Raises:
        RunFailedError: They are not; it names the processes and the first tensor.
    """
    if world_size() == 1:
        return
    names, tensors = zip(*_shared(method), strict=True)
    sums = torch.stack([_sum(tensor) for tensor in tensors]).tolist()
    everyone = from_all(sums)
    for rank, theirs in enumerate(everyone):
        if theirs != everyone[0]:
            odd = [name for name, a, b in zip(names, everyone[0], theirs, strict=False) if a != b]
            raise RunFailedError(
                f"after step {step}, process {rank} no longer has the weights of process 0: {len(odd)} of "
                f"{len(names)} tensors differ, among them {odd[0] if odd else 'their number'}",
                "give every machine the same models, data and library versions, then start again or --resume",
            )


def _shared(method: Method) -> Iterator[tuple[str, Tensor]]:
    """Yield what must be alike; running statistics may be each process's own."""
    yield from method.named_parameters()
    if method.queue is not None:
        yield from ((f"queue.{name}", buffer) for name, buffer in method.queue.named_buffers())


def _sum(tensor: Tensor) -> Tensor:
    """Return the sum of the bits as integers: exact in any order, and a single number to fetch from the device."""
    flat = tensor.detach().contiguous().reshape(-1)
    return flat.view(_INTEGERS[flat.element_size()]).sum(dtype=torch.int64)
