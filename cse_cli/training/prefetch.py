"""Batches made ready before they are asked for; which ones there are is a function of seed and step alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from cse_cli.training.timing import Size
from registry.types import Batch, Tokens

AHEAD = 2
"""Batches made in advance: one being copied, one being made."""


@dataclass(frozen=True)
class Ready:
    """One step's batch.

    Args:
        batch: View → tokens, on the CPU; in pinned memory where they go to a GPU.
        sizes: View → what it holds.
        place: Where the data goes on after it, for a checkpoint.
    """

    batch: Batch
    sizes: Mapping[str, Size]
    place: Any = None


def _nowhere() -> None:
    """Nothing is kept of the data beside the step."""


class Feed:
    """Gives batches by step, and makes the next ones in a thread where that pays.

    On a GPU it does: the host only queues kernels there, and copies from pinned memory do not make it wait. On a CPU a
    thread takes time from the step itself, and there is little to gain: of a SimCSE step with mini_en (64 sentences,
    computed by one thread) batches are 0.5 of 263 ms, of an ESimCSE step, which repeats words and tokenises anew, 3 of
    332 ms; made ahead, the two took 265 and 342 ms of processor time. So there they are made when they are asked for.

    Args:
        make: Step → its batch; called in one thread only.
        total: Steps of the whole training: none beyond is made.
        device: Where the batches go.
        ahead: Whether to make the next ones in a thread; None is where it pays.
        place: Says where the data goes on; called after `make`, in the same thread.
    """

    def __init__(
        self,
        make: Callable[[int], Batch],
        total: int,
        device: torch.device,
        ahead: bool | None = None,
        place: Callable[[], Any] = _nowhere,
    ) -> None:
        self._make = make
        self._place = place
        self._total = total
        self._device = device
        threaded = device.type == "cuda" if ahead is None else ahead
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="batches") if threaded else None
        self._coming: dict[int, Future[Ready]] = {}

    def take(self, step: int) -> Ready:
        """Return a step's batch, and have the next ones made. What fails in the thread fails here, at its step."""
        if self._thread is None:
            return self._ready(step)
        if step not in self._coming:  # the first one, or after a jump
            self._forget()
            self._ask(step)
        asked = self._coming.pop(step)
        for later in range(step + 1, min(step + AHEAD + 1, self._total)):
            self._ask(later)
        return asked.result()

    def close(self) -> None:
        """End the thread, once it has finished the batch in hand."""
        self._forget()
        if self._thread is not None:
            self._thread.shutdown(wait=True, cancel_futures=True)

    def _ask(self, step: int) -> None:
        if self._thread is not None and step not in self._coming:
            self._coming[step] = self._thread.submit(self._ready, step)

    def _forget(self) -> None:
        for asked in self._coming.values():
            asked.cancel()
        self._coming.clear()

    def _ready(self, step: int) -> Ready:
        batch, place = self._make(step), self._place()
        sizes = {view: Size.of(tokens.mask) for view, tokens in batch.items()}
        if self._device.type == "cuda":
            if self._device.index is not None:
                torch.cuda.set_device(self._device)  # a thread begins with the first one
            batch = {view: each_tensor(tokens, Tensor.pin_memory) for view, tokens in batch.items()}
        return Ready(batch, sizes, place)


def each_tensor(tokens: Tokens, act: Callable[[Tensor], Tensor]) -> Tokens:
    """Return tokens with `act` applied to all their tensors, those of other columns included."""
    named = {each.name: getattr(tokens, each.name) for each in fields(tokens)}
    changed: dict[str, Any] = {name: act(value) for name, value in named.items() if isinstance(value, Tensor)}
    side = {column: each_tensor(other, act) for column, other in tokens.side.items()}
    return replace(tokens, **changed, side=side)
