"""IFCL's hippocampus queue: a queue whose entries fade as they grow old."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from registry import QUEUES, Tune
from registry.queues.rolling import RollingQueue
from registry.types import ViewName


@QUEUES.register("hippocampus")
class Hippocampus(RollingQueue):
    """Serve the latest sentence vectors of a view as negatives that are forgotten with age.

    pₘ = 1 − λ·ageₘ, where age counts the steps since the entry was stored: 1 for the previous batch, 2 for the one
    before. An entry whose weight is not positive is switched off (−inf). For full batches of N this is the paper's
    pₘ = 1 − λ·⌈m/N⌉, m = 1…M from the newest; an age for each row keeps it right after short batches and for lengths
    that are no multiple of N. Stored detached, with unit length, in single precision, on every device the same.

    Shapes: negatives (K, D) with K ≤ length rows, log-weights log p (K,).

    Source: IFCL (Xiao et al. 2023, section 3.2, eq. 4 and 5; λ and length of its English model).
    Doubtful: whether m counts from the newest entry (Figure 3, the default) or the oldest (`order`, A10); with which
    entries training starts (`initial`, A11).

    Args:
        view: The view whose vectors are stored; the anchor in IFCL (A12).
        length: Most entries kept.
        forgetting_rate: λ: the weight an entry loses at each step.
        order: The end of the queue that keeps the largest weight; "oldest_first" mirrors the ages.
        initial: "random" starts with `length` random unit vectors, stored as one batch before the first step.
    """

    def __init__(
        self,
        view: ViewName,
        length: Annotated[int, Field(gt=0), Tune(64, 4096, log=True)] = 416,
        forgetting_rate: Annotated[float, Field(ge=0), Tune(1e-4, 0.1, log=True)] = 0.002,
        order: Literal["newest_first", "oldest_first"] = "newest_first",
        initial: Literal["empty", "random"] = "empty",
    ) -> None:
        super().__init__(view, length=length, initial=length if initial == "random" else 0)
        self.forgetting_rate = forgetting_rate
        self.order = order

    def log_weights(self, ages: Tensor) -> Tensor:
        """Return log p of entries of these ages; −inf where p is not positive."""
        if self.order == "oldest_first" and len(ages):
            ages = ages.max() + 1 - ages
        weights = 1 - self.forgetting_rate * ages
        # λ·age = 1 may miss 1 by a rounding of single precision: such an entry is off, not faint.
        return torch.where(weights > 1e-6, weights.clamp(min=1e-6).log(), -torch.inf)
