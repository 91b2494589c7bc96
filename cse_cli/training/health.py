"""Signs of a failing training: values that are not finite, and embeddings that collapse."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from registry.errors import RunFailedError
from registry.types import Encoder, Queue

PATIENCE = 3
"""Number of failed checks in a row before the alarm."""


def mean_cosine(vectors: Tensor) -> float:
    """Return the mean cosine between different rows of (B, D). It is 1 if all embeddings are equal."""
    unit = F.normalize(vectors.detach().float(), dim=-1)
    rows = unit.shape[0]
    return float(((unit.sum(dim=0) ** 2).sum() - rows) / (rows * (rows - 1)))


def agreement(views: Mapping[str, Tensor]) -> dict[str, float]:
    """Return the mean cosine of each later view to the first view of the same sentences."""
    first, *others = views.items()
    return {
        f"health/cosine_to_{first[0]}.{name}": float(
            F.cosine_similarity(first[1].detach().float(), view.detach().float()).mean()
        )
        for name, view in others
        if view.shape == first[1].shape
    }


def effective_rank(vectors: Tensor) -> float:
    """Return exp(entropy of the normalized singular values) of (B, D): the number of directions in use.

    Source: Roy and Vetterli 2007, "The effective rank", definition 1.
    """
    # On the CPU: a GPU needs more time for so small a matrix than for the rest of the step.
    values = torch.linalg.svdvals(vectors.detach().float().cpu())
    shares = values / values.sum().clamp_min(1e-12)
    return float(torch.exp(-(shares * shares.clamp_min(1e-12).log()).sum()))


def traceable_distance(encoder: Encoder, queue: Queue, batch_size: int) -> float | None:
    """Return MoCoSE's maximum traceable distance, in steps: 1/(1 − η) + K/N.

    The first term is the number of steps that the momentum encoder averages over, or 0 without momentum. The second is
    the number of batches in a full queue. Returns None without a queue, or if the decay η is 1.

    Source: MoCoSE (2022, eq. 4), with η the decay at the start of training.
    """
    if queue.length is None or not math.isfinite(encoder.memory):
        return None
    return encoder.memory + queue.length / batch_size


def describe_view(name: str, view: Tensor) -> str:
    """Return share of finite values, norm and range of the (N, D) embeddings of a view, on one line."""
    vectors = view.detach().float()
    finite, norm = vectors.isfinite().float().mean().item(), vectors.norm(dim=-1).mean()
    return f"  view {name}: {finite:.0%} finite, norm mean {norm:.4g}, values {vectors.min():.4g} … {vectors.max():.4g}"


def loss_not_finite(total: float, at: int, losses: Mapping[str, float], more: Iterable[str] = ()) -> RunFailedError:
    """Return the error for an objective that is not finite at a step, counted from 1, with its unweighted losses."""
    wrong = [f"'{label}'" for label, value in losses.items() if not math.isfinite(value)]
    cause = f"caused by {' and '.join(wrong)}" if wrong else "each loss is finite, but their weighted sum is not"
    values = (f"  loss {label}: {value:.4g}" for label, value in losses.items())
    message = "\n".join([f"the loss is {total} at step {at}: {cause}", *values, *more])
    action = "lower train.learning_rate, raise the temperature, or use precision = 'fp32'"
    if at == 1:  # no weight has changed yet
        action = f"check {' and '.join(wrong) or 'the weights'} in the recipe, or use precision = 'fp32'"
    return RunFailedError(message, action, code="training.loss_not_finite")


@dataclass
class CollapseAlarm:
    """Alarm that reports once that nearly all embeddings are equal.

    A check fails above this mean cosine, or if the effective rank is below 2.
    """

    cosine_limit: float
    strikes: int = 0
    raised: bool = False

    def check(self, vectors: Tensor) -> tuple[dict[str, float], str | None]:
        """Return the indicators of (B, D) embeddings, and a warning after `PATIENCE` failed checks."""
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
