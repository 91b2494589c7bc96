"""Signs that training goes wrong: values that are not finite, sentence vectors that collapse."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from registry.types import Encoder, Queue

PATIENCE = 3
"""Checks in a row that must look collapsed before the alarm."""


def mean_cosine(vectors: Tensor) -> float:
    """Return the mean cosine between different rows of (B, D): 1 when all sentences share one vector."""
    unit = F.normalize(vectors.detach().float(), dim=-1)
    rows = unit.shape[0]
    return float(((unit.sum(dim=0) ** 2).sum() - rows) / (rows * (rows - 1)))


def agreement(views: Mapping[str, Tensor]) -> dict[str, float]:
    """Return, for each view but the first, its mean cosine to the same sentences in the first: 1 when they agree.

    Args:
        views: Name → (N, D) sentence vectors.
    """
    first, *others = views.items()
    return {
        f"health/cosine_to_{first[0]}.{name}": float(
            F.cosine_similarity(first[1].detach().float(), view.detach().float()).mean()
        )
        for name, view in others
        if view.shape == first[1].shape
    }


def effective_rank(vectors: Tensor) -> float:
    """Return exp(entropy of the normalised singular values) of (B, D): the directions really used.

    Source: Roy and Vetterli 2007, "The effective rank", definition 1.
    """
    # On the host: a GPU takes longer to decompose so small a matrix than all its other work of a step.
    values = torch.linalg.svdvals(vectors.detach().float().cpu())
    shares = values / values.sum().clamp_min(1e-12)
    return float(torch.exp(-(shares * shares.clamp_min(1e-12).log()).sum()))


def traceable_distance(encoder: Encoder, queue: Queue, batch_size: int) -> float | None:
    """Return how many steps back the queue's oldest entries and the weights that made them reach.

    1/(1 − η) + K/N: the steps that the view's encoder averages over, 0 without momentum, and the batches a full queue
    holds. None where nothing is kept, or where a decay of 1 never lets the encoder move.

    Source: MoCoSE (2022, eq. 4), with η the decay at the start of training.

    Args:
        encoder: That of the queue's view.
        queue: Holds K entries at most.
        batch_size: N.
    """
    if queue.length is None or not math.isfinite(encoder.memory):
        return None
    return encoder.memory + queue.length / batch_size


def describe_views(views: Mapping[str, Tensor]) -> str:
    """Return one line a view: finiteness, norm and spread of its (N, D) sentence vectors."""
    lines = []
    for name, view in views.items():
        vectors = view.detach().float()
        finite = float(torch.isfinite(vectors).float().mean())
        lines.append(
            f"  view {name}: {finite:.0%} finite, norm mean {vectors.norm(dim=-1).mean():.4g}, "
            f"values {vectors.min():.4g} … {vectors.max():.4g}"
        )
    return "\n".join(lines)


@dataclass
class CollapseAlarm:
    """Warns once when sentence vectors have collapsed: nearly all are equal.

    Args:
        cosine_limit: Mean cosine above which a check counts as collapsed; so does an effective rank below 2.
    """

    cosine_limit: float
    strikes: int = 0
    raised: bool = False

    def check(self, vectors: Tensor) -> tuple[dict[str, float], str | None]:
        """Return the indicators of (B, D) sentence vectors, and a warning the first time they stay bad."""
        cosine, rank = mean_cosine(vectors), effective_rank(vectors)
        bad = cosine > self.cosine_limit or rank < min(2.0, vectors.shape[0] - 1)
        self.strikes = self.strikes + 1 if bad else 0
        warning = None
        if self.strikes >= PATIENCE and not self.raised:
            self.raised = True
            warning = (
                f"collapse: mean cosine between different sentences {cosine:.3f}, effective rank {rank:.1f} "
                f"of {min(vectors.shape)}; try a lower learning rate, a higher temperature or other views"
            )
        return {"health/mean_cosine": cosine, "health/effective_rank": rank}, warning
