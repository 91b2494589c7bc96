"""What contrastive losses share: cosines, the columns each anchor chooses among, and their weights. Registers nothing.

Shapes: N anchors; C columns: the batch's N positives, N hard negatives where there are any, K queue entries.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from registry.errors import CseError
from registry.tokens import at_least_single
from registry.types import Loss, Negatives, Sentences, Tune

EPSILON = 1e-8
"""Smallest norm divided by, as in SimCSE's code."""


def unit(vectors: Tensor) -> Tensor:
    """Return vectors of length 1 along the last axis, in at least single precision; zero vectors stay zero."""
    return F.normalize(at_least_single(vectors), dim=-1, eps=EPSILON)


def cosine_matrix(left: Tensor, right: Tensor) -> Tensor:
    """Return (n, m) cosines of every row of `left` (n, D) with every row of `right` (m, D)."""
    with torch.autocast(left.device.type, enabled=False):
        return unit(left) @ unit(right).T


def cosine_rows(left: Tensor, right: Tensor) -> Tensor:
    """Return (…) cosines of `left` (…, D) with `right` (…, D), row by row."""
    with torch.autocast(left.device.type, enabled=False):
        return (unit(left) * unit(right)).sum(dim=-1)


Reduction = Literal["mean", "sum"]

IDLE = 5
"""Steps in a row without a negative before the user is warned; at the first step a queue is empty."""


class InBatchContrast(Loss):
    """Choose each anchor's positive among columns; how cosines become logits is what the loss that extends it says.

    Args:
        hard_weight: Logarithm of the weight of an anchor's own hard negative; SimCSE's `hard_negative_weight`.
        reduction: Over the anchors of the batch; over all cells where `form` is "bce_softmax".
        in_batch: Whether other sentences of the batch, and their hard negatives, are negatives. Without them and with
            an empty queue the positive is the only choice: the loss and its gradient are 0.
        false_negative: φ, the cosine in `reference` above which another sentence weighs 0; None weighs all the same.
        weight_on: What weights multiply: "exp" the exponential, so that weight 0 removes a column; "logit" the logit,
            so that it becomes 0 and e⁰ stays in the sum.
        positive_repels: Whether an anchor must also choose its positive among the cosines of that positive with every
            hard negative (CoT-BERT's extended InfoNCE); left out is no. `hard_weight` holds for these too.
        form: "cross_entropy" of the choice, or "bce_softmax", the binary cross-entropy of each of its probabilities.
    """

    steering: ClassVar[frozenset[str]] = frozenset({"reference"})

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
        """Return (N, C) logits of (N, C) cosines; the positive of row i stands in column i."""
        raise NotImplementedError

    def made(self, anchor: Tensor, positive: Tensor) -> Tensor | None:  # noqa: ARG002 - the hook's form
        """Return (N, M) logits of negatives that a loss makes of the batch, −inf for one that is off; None for none."""
        return None

    def forward(
        self,
        anchor: Sentences,
        positive: Sentences,
        negatives: Negatives,
        hard: Sentences | None = None,
        reference: Sentences | None = None,
    ) -> Tensor:
        """Return the loss of the batch."""
        cosines = [cosine_matrix(anchor, positive)]
        weights = [self._trust(cosines[0], reference)]
        repelled = self._repelled(anchor, positive, hard)
        cosines += repelled
        weights += [torch.zeros_like(block) for block in repelled]
        cosines.append(cosine_matrix(anchor, negatives.vectors.to(cosines[0].dtype)))
        weights.append(negatives.log_weights.to(cosines[0].dtype).expand_as(cosines[-1]))
        self._count_idle(hard, negatives)
        logits = self._weighted(self.logits(torch.cat(cosines, dim=1)), torch.cat(weights, dim=1))
        logits = self._structured(logits, len(repelled))
        if (made := self.made(anchor, positive)) is not None:
            logits = torch.cat([logits, made], dim=1)
        if self.form == "bce_softmax":
            return binary_cross_entropy_of_softmax(logits, self.reduction)
        labels = torch.arange(len(logits), device=logits.device)
        return F.cross_entropy(logits, labels, reduction=self.reduction)

    def notices(self) -> list[str]:
        """Return a warning if there was nothing to compare with for several steps."""
        if self.idle < IDLE:
            return []
        self.idle = -(2**62)  # warned once
        return [
            "a contrastive loss has in_batch = false and no queue entries: it is 0 and teaches nothing; "
            "give the recipe a queue, or set in_batch = true"
        ]

    def _trust(self, cosines: Tensor, reference: Tensor | None) -> Tensor:
        """Return (N, N) log-weights of the positives: −inf for another sentence that `reference` finds too similar."""
        trusted = torch.zeros_like(cosines)
        if self.false_negative is None:
            return trusted
        if reference is None:
            raise CseError(
                f"false_negative = {self.false_negative} needs a view to compare sentences by",
                'declare [views.reference] with an encoder of its own, or map a view: views = { reference = "…" }',
            )
        similar = cosine_matrix(reference.detach(), reference.detach()) > self.false_negative
        return trusted.masked_fill(similar & ~_own(cosines), -torch.inf)

    def _weighted(self, logits: Tensor, log_weights: Tensor) -> Tensor:
        return logits * log_weights.exp() if self.weight_on == "logit" else logits + log_weights

    def _repelled(self, anchor: Tensor, positive: Tensor, hard: Tensor | None) -> list[Tensor]:
        """Return (N, N) cosines with the hard negatives: the anchors', and the positives' too where they repel."""
        if hard is not None:
            return [cosine_matrix(view, hard) for view in ((anchor, positive) if self.positive_repels else (anchor,))]
        if self.positive_repels:
            raise CseError(
                "positive_repels = true, and there are no hard negatives",
                'declare [views.hard], or map a view: views = { hard = "…" }',
            )
        return []

    def _structured(self, logits: Tensor, hard_blocks: int) -> Tensor:
        """Weigh an anchor's own hard negative; switch other sentences of the batch off where they are no negatives."""
        own = _own(logits)
        for block in range(1, hard_blocks + 1):
            own_hard = _own(logits).roll(block * len(logits), dims=1)
            logits = logits + self.hard_weight * own_hard.to(logits.dtype)
            own = own | own_hard
        if self.in_batch:
            return logits
        batch = torch.arange(logits.shape[1], device=logits.device) < len(logits) * (1 + hard_blocks)
        return logits.masked_fill(batch & ~own, -torch.inf)

    def _count_idle(self, hard: Tensor | None, negatives: Negatives) -> None:
        empty = not self.in_batch and hard is None and not len(negatives.vectors)
        self.idle = self.idle + 1 if empty else min(self.idle, 0)


def binary_cross_entropy_of_softmax(logits: Tensor, reduction: Reduction) -> Tensor:
    """Return the binary cross-entropy of every cell of softmax(logits): 1 is right in column i of row i, else 0.

    log(1 − p) stays finite however near p comes to 1: for a row's largest negative it is the share of all others.

    Args:
        logits: (N, C), −inf for a column that is off; those on the diagonal are finite.
        reduction: Over all N·C cells.
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
    """Return (N, C) booleans: column i of row i."""
    return torch.eye(*cells.shape, dtype=torch.bool, device=cells.device)
