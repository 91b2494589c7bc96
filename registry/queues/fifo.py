"""First in, first out: MoCo's queue, as MoCoSE uses it for sentences."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from registry import QUEUES, Tune
from registry.queues.rolling import RollingQueue
from registry.types import ViewName


@QUEUES.register("fifo")
class Fifo(RollingQueue):
    """Serve the latest sentence vectors of a view as negatives, all with weight 1.

    The vectors of a step enter after the optimiser's step, in batch order; beyond `length` the oldest row goes first,
    so half a batch may stay. Stored detached, with unit length, in single precision, on every device the same.

    Shapes: negatives (K, D) with K ≤ length rows, zero log-weights (K,).

    Source: MoCoSE (2022, section 3.3 and Algorithm 1), MoCo (He et al. 2020).
    Doubtful: MoCoSE's code starts with twice the initial entries the paper says and for three steps exceeds `length`;
    here the queue starts with `initial`, grows to `length` and never beyond (methods/mocose.md M5).

    Args:
        view: The view whose vectors are stored.
        length: Most entries kept.
        initial: Random unit vectors that the queue starts with and that leave first; MoCoSE uses 128.
    """

    def __init__(
        self,
        view: ViewName,
        length: Annotated[int, Field(gt=0), Tune(64, 4096, log=True)] = 512,
        initial: Annotated[int, Field(ge=0)] = 0,
    ) -> None:
        super().__init__(view, length, initial)
