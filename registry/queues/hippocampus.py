"""IFCL's hippocampus queue: the weight of its entries decreases with age."""

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
    """Return the latest embeddings of a view as negatives that are forgotten with age.

    pₘ = 1 − λ·ageₘ,
    where age is the number of steps since the entry was stored: 1 for the previous batch, 2 for the one before. An
    entry with a weight of 0 or less is excluded (−inf). For full batches of N this is the paper's pₘ = 1 − λ·⌈m/N⌉, m =
    1…M from the newest. An age for each row also handles short batches and lengths that are not multiples of N. Entries
    are stored detached, with unit length, in single precision, and equal on every device.

    Shapes: negatives (K, D) with K ≤ length rows, log-weights log p (K,).

    Source: IFCL (Xiao et al. 2023, section 3.2, eq. 4 and 5; λ and length of its English model).
    Doubtful: whether m counts from the newest entry (Figure 3, the default) or the oldest (`order`, A10); the initial
    entries (`initial`, A11).

    Args:
        view: View whose embeddings are stored, the anchor in IFCL (A12).
        length: Maximum number of entries.
        forgetting_rate: Decrease λ of an entry's weight per step.
        order: End of the queue with the largest weight. "oldest_first" reverses the ages.
        initial: "empty", or "random" for `length` random unit vectors, stored as one batch before the first step.

    Example:
        [queue]
        name = "hippocampus"
        view = "anchor"
        length = 416
        forgetting_rate = 0.002
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
        """Return log p of entries of these ages, −inf if p is not positive."""
        if self.order == "oldest_first" and len(ages):
            ages = ages.max() + 1 - ages
        weights = 1 - self.forgetting_rate * ages
        # λ·age = 1 may round to slightly less than 1 in single precision. Such an entry is excluded.
        return torch.where(weights > 1e-6, weights.clamp(min=1e-6).log(), -torch.inf)
