"""First-in, first-out queue of negatives, as in MoCo and MoCoSE."""

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
    """Return the latest embeddings of a view as negatives with weight 1.

    The embeddings of a step are appended after the optimizer's step, in batch order. Beyond `length` the oldest row is
    removed first, so half of a batch can remain. They are stored detached, with unit length, in single precision, and
    equal on every device. `part` selects some of the stored entries by age.

    Shapes: negatives (K, D) with K ≤ length rows, zero log-weights (K,).

    Source: MoCoSE (2022, section 3.3 and Algorithm 1; Table 8 for the oldest half of a queue twice as long, its
    notebook for the other parts), MoCo (He et al. 2020).
    Doubtful: MoCoSE's code starts with twice the initial entries of the paper and exceeds `length` for three steps;
    this queue starts with `initial` entries and never exceeds `length` (methods/mocose.md M5).

    Args:
        initial: Number of random unit vectors at the start, which are removed first. MoCoSE uses 128.
        part: Entries to return: "all", the "oldest", the "newest", those in the "middle" by age, or the same number
            from both "ends".
        served: Maximum number of returned entries if `part` is not "all". Default: half of `length`.

    Example:
        [queue]
        name = "fifo"
        view = "positive"
        length = 512
    """

    def __init__(
        self,
        view: ViewName,
        part: Literal["all", "oldest", "newest", "middle", "ends"] = "all",
        served: Annotated[int, Field(gt=0), Tune(32, 2048, log=True)] | None = None,
        **rolling: Any,
    ) -> None:
        super().__init__(view, **rolling)
        if served is not None and part == "all":
            raise CseError(
                f'queue: served = {served} has no effect with part = "all"',
                'omit served, or set part = "oldest" or "newest"',
                code="queues.served_without_part",
            )
        if served is not None and served > self.length:
            raise CseError(
                f"queue: served = {served} exceeds length = {self.length}",
                f"set served to at most {self.length}",
                code="queues.served_exceeds_length",
            )
        self.part = part
        self.served = self.length if part == "all" else served or max(1, self.length // 2)

    def chosen(self, rows: Tensor) -> Tensor:
        """Return the selected rows of (K, …) in the same order, from the oldest to the newest."""
        held = len(rows)
        count = min(self.served, held)
        if self.part == "ends":
            newest = count // 2
            return cat([rows[: count - newest], rows[held - newest :]])
        start = {"newest": held - count, "middle": (held - count) // 2}.get(self.part, 0)
        return rows[start : start + count]
