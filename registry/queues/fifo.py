"""A plain first-in, first-out queue of negatives, as MoCo and MoCoSE use it for sentences."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field
from torch import Tensor, cat

from registry import QUEUES, Tune
from registry.errors import CseError
from registry.queues.rolling import RollingQueue
from registry.types import ViewName


@QUEUES.register("fifo")
class Fifo(RollingQueue):
    """Serve the latest sentence vectors of a view as negatives, all with weight 1.

    The vectors of a step enter after the optimiser's step, in batch order; beyond `length` the oldest row goes first,
    so half a batch may stay. Stored detached, with unit length, in single precision, on every device the same. `part`
    serves some of them by age; while the queue fills, of those it has.

    Shapes: negatives (K, D) with K ≤ length rows, zero log-weights (K,).

    Source: MoCoSE (2022, section 3.3 and Algorithm 1; Table 8 for the oldest half of a queue twice as long, its
    notebook for the other parts), MoCo (He et al. 2020).
    Doubtful: MoCoSE's code starts with twice the initial entries the paper says and for three steps exceeds `length`;
    here the queue starts with `initial`, grows to `length` and never beyond (methods/mocose.md M5).

    Args:
        initial: Random unit vectors that the queue starts with and that leave first; MoCoSE uses 128.
        part: Which entries are served: "all", the "oldest", the "newest", those in the "middle" of the row by age, or
            from both "ends" of it alike.
        served: Most entries served where `part` is not "all"; half the length if left out.
    """

    def __init__(
        self,
        view: ViewName,
        part: Literal["all", "oldest", "newest", "middle", "ends"] = "all",
        served: Annotated[int, Field(gt=0), Tune(32, 2048, log=True)] | None = None,
        **rolling: Any,
    ) -> None:
        super().__init__(view, **rolling)
        if served is not None and (part == "all" or served > self.length):
            why = 'part = "all" serves every entry' if part == "all" else f"length = {self.length}"
            raise CseError(f"queue: served = {served}, but {why}", "choose a part, and serve at most `length` entries")
        self.part = part
        self.served = self.length if part == "all" else served or max(1, self.length // 2)

    def chosen(self, rows: Tensor) -> Tensor:
        """Return the rows served, of (K, …) ordered from the oldest to the newest."""
        held = len(rows)
        count = min(self.served, held)
        if self.part == "ends":
            newest = count // 2
            return cat([rows[: count - newest], rows[held - newest :]])
        start = {"newest": held - count, "middle": (held - count) // 2}.get(self.part, 0)
        return rows[start : start + count]
