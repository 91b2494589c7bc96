"""Shared parts of contrastive losses: cosines, candidate columns of each anchor, and their weights.

Shapes: N anchors; C columns: the batch's N positives, N hard negatives if the recipe has any, K queue entries.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from registry.errors import CseError
from registry.tokens import at_least_single
from registry.types import Loss, Negatives, Sentences, Tune

EPSILON = 1e-8
"""Lower bound of a norm in a division, as in SimCSE's code."""


def unit(vectors: Tensor) -> Tensor:
    """Return vectors of length 1 along the last axis, in single precision or higher. Zero vectors stay zero."""
    return F.normalize(at_least_single(vectors), dim=-1, eps=EPSILON)


def cosine_matrix(left: Tensor, right: Tensor) -> Tensor:
    """Return (n, m) cosines of every row of `left` (n, D) with every row of `right` (m, D)."""
    with torch.autocast(left.device.type, enabled=False):
        return unit(left) @ unit(right).T


def cosine_rows(left: Tensor, right: Tensor) -> Tensor:
    """Return (…) cosines of `left` (…, D) and `right` (…, D), row by row."""
    with torch.autocast(left.device.type, enabled=False):
        return (unit(left) * unit(right)).sum(dim=-1)


def without_diagonal(cells: Tensor) -> Tensor:
    """Return (N, N − 1) cells of (N, N) without the diagonal. Selection by a mask would wait for the GPU."""
    n = len(cells)
    # After the first cell, every (N + 1)th cell is on the diagonal.
    return cells.flatten()[1:].view(n - 1, n + 1)[:, :-1].reshape(n, n - 1)


Reduction = Literal["mean", "sum"]

IDLE = 5
"""Number of consecutive steps without a negative before a warning. A queue is empty at the first step."""


class InBatchContrast(Loss):
    """Choice of each anchor's positive among columns. Subclasses compute the logits.

    Args:
        hard_weight: Logarithm of the weight of an anchor's own hard negative. SimCSE calls it `hard_negative_weight`.
        reduction: Reduction over the anchors of the batch, or over all cells if `form` is "bce_softmax".
        in_batch: Whether other sentences of the batch and their hard negatives are negatives. With false and an empty
            queue, the positive is the only choice, and the loss and its gradient are 0.
        false_negative: Threshold φ: a sentence j ≠ i gets weight 0 if the cosine of i in the view `reference` with j in
            the view `reference_positive` is above φ. Without the second view, j is also taken from `reference`.
            Default: all sentences have the same weight.
        weight_on: Target of the weights: "exp" multiplies the exponential, so that weight 0 removes a column. "logit"
            multiplies the logit, so that weight 0 leaves e⁰ in the sum.
        positive_repels: Whether each anchor's positive is also chosen among the cosines of that positive with every
            hard negative (CoT-BERT's extended InfoNCE). `hard_weight` applies to these as well. Default: false.
        form: "cross_entropy" of the choice, or "bce_softmax", the binary cross-entropy of each of its probabilities.
    """

    steering: frozenset[str] = frozenset({"reference", "reference_positive"})

    def __init__(
        self,
        *,
        hard_weight: Annotated[float, Field(ge=-100, le=100)] = 0.0,
        reduction: Reduction = "mean",
        in_batch: bool = True,
        false_negative: Annotated[float | None, Field(ge=-1, le=1), Tune(0.7, 0.99)] = None,
        weight_on: Literal["exp", "logit"] = "exp",
        form: Literal["cross_entropy", "bce_softmax"] = "cross_entropy",
        positive_repels: bool | None = None,
    ) -> None:
        super().__init__()
        self.hard_weight, self.in_batch, self.false_negative = hard_weight, in_batch, false_negative
        self.reduction, self.weight_on, self.form = reduction, weight_on, form
        self.positive_repels = bool(positive_repels)
        self.idle = 0

    def logits(self, cosines: Tensor) -> Tensor:
        """Return (N, C) logits of (N, C) cosines. The positive of row i is in column i."""
        raise NotImplementedError

    def made(self, anchor: Tensor, positive: Tensor) -> Tensor | None:  # noqa: ARG002 - the hook's form
        """Return (N, M) logits of synthetic negatives (−inf excludes one), or None if the loss has none."""
        return None

    def forward(
        self,
        anchor: Sentences,
        positive: Sentences,
        negatives: Negatives,
        hard: Sentences | None = None,
        reference: Sentences | None = None,
        reference_positive: Sentences | None = None,
    ) -> Tensor:
        """Return the loss of the batch."""
        cosines = [cosine_matrix(anchor, positive)]
        weights = [self._trust(cosines[0], reference, reference_positive)]
        repelled = self._repelled(anchor, positive, hard)
        cosines += repelled
        weights += [torch.zeros_like(block) for block in repelled]
        cosines.append(cosine_matrix(anchor, negatives.vectors.to(cosines[0].dtype)))
        weights.append(negatives.log_weights.to(cosines[0].dtype).expand_as(cosines[-1]))
        empty = not self.in_batch and hard is None and not len(negatives.vectors)
        self.idle = self.idle + 1 if empty else min(self.idle, 0)
        logits, log_weights = self.logits(torch.cat(cosines, dim=1)), torch.cat(weights, dim=1)
        logits = logits * log_weights.exp() if self.weight_on == "logit" else logits + log_weights
        logits = self._structured(logits, len(repelled))
        if (made := self.made(anchor, positive)) is not None:
            logits = torch.cat([logits, made], dim=1)
        if self.form == "bce_softmax":
            return binary_cross_entropy_of_softmax(logits, self.reduction)
        labels = torch.arange(len(logits), device=logits.device)
        return F.cross_entropy(logits, labels, reduction=self.reduction)

    def notices(self) -> list[str]:
        """Return a warning if the loss had no negatives for several steps."""
        if self.idle < IDLE:
            return []
        self.idle = -(2**62)  # warned once
        return [
            "a contrastive loss is always 0: in_batch = false and the queue is empty "
            "→ add a [queue] to the recipe, or set in_batch = true"
        ]

    def _trust(self, cosines: Tensor, reference: Tensor | None, other: Tensor | None) -> Tensor:
        """Return (N, N) log-weights of the positives, −inf for each false negative according to the references."""
        trusted = torch.zeros_like(cosines)
        if self.false_negative is None:
            return trusted
        if reference is None:
            raise CseError(
                f"false_negative = {self.false_negative} requires a view 'reference', which the recipe does not have",
                'add [views.reference] with a separate encoder, or map another view: views = { reference = "NAME" }',
                code="losses.no_reference_view",
            )
        other = reference if other is None else other
        similar = cosine_matrix(reference.detach(), other.detach()) > self.false_negative
        return trusted.masked_fill(similar & ~_own(cosines), -torch.inf)

    def _repelled(self, anchor: Tensor, positive: Tensor, hard: Tensor | None) -> list[Tensor]:
        """Return (N, N) cosines with the hard negatives: of the anchors, and of the positives if they repel."""
        if hard is not None:
            return [cosine_matrix(view, hard) for view in ((anchor, positive) if self.positive_repels else (anchor,))]
        if self.positive_repels:
            raise CseError(
                "positive_repels = true requires a view 'hard', which the recipe does not have",
                'add [views.hard], or map another view: views = { hard = "NAME" }',
                code="losses.no_hard_negatives",
            )
        return []

    def _structured(self, logits: Tensor, hard_blocks: int) -> Tensor:
        """Weight each anchor's own hard negative, and exclude other sentences unless `in_batch` is true."""
        own = _own(logits)
        for block in range(1, hard_blocks + 1):
            own_hard = _own(logits).roll(block * len(logits), dims=1)
            logits = logits + self.hard_weight * own_hard.to(logits.dtype)
            own = own | own_hard
        if self.in_batch:
            return logits
        batch = torch.arange(logits.shape[1], device=logits.device) < len(logits) * (1 + hard_blocks)
        return logits.masked_fill(batch & ~own, -torch.inf)


def binary_cross_entropy_of_softmax(logits: Tensor, reduction: Reduction) -> Tensor:
    """Return the binary cross-entropy of every cell of softmax(logits): label 1 in column i of row i, else 0.

    log(1 − p) is finite even if p is almost 1: for the largest negative of a row it is the share of all other columns.

    Args:
        logits: (N, C), −inf for an excluded column. The diagonal is finite.
        reduction: Reduction over all N·C cells.
    """
    own = _own(logits)
    log_p = logits.log_softmax(dim=1)
    largest = log_p.detach().masked_fill(own, -torch.inf).argmax(dim=1, keepdim=True)
    top = torch.zeros_like(own).scatter(1, largest, True) & ~own
    log_not = torch.log1p(-log_p.masked_fill(own | top, -torch.inf).exp())
    others = log_p.masked_fill(top, -torch.inf).logsumexp(dim=1, keepdim=True)
    cells = torch.where(own, log_p, torch.where(top, others, log_not)).neg()
    return cells.mean() if reduction == "mean" else cells.sum()


def _own(cells: Tensor) -> Tensor:
    """Return (N, C) booleans, true in column i of row i."""
    return torch.eye(*cells.shape, dtype=torch.bool, device=cells.device)
