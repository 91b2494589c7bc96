"""Contrastive Tension: classify pairs as same or different sentence by the dot product of two encoders' embeddings."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import softplus

from registry import LOSSES, Tune
from registry.errors import CseError
from registry.types import Loss, Sentences


@LOSSES.register("dot_classification")
class DotClassification(Loss):
    """Classify pairs as the same or different sentences by the sigmoid of their dot product.

    ℓ = Σ₊ −log σ(xᵢ·yᵢ) + Σ₋ −log(1 − σ(xᵢ·yⱼ)),
    the binary cross-entropy, with x the anchor's and y the positive's embeddings, without normalization and
    temperature. `pairs` defines the pairs. With "all", row i forms one positive pair, and K negative pairs with rows i
    + 1 … i + K, modulo the batch size (fewer if the batch has less than K + 1 rows).

    Shapes: anchor, positive (N, D); result a scalar.

    Source: CT (Carlsson et al. 2021, section 3) and its code (`Training.py`, `ContrastiveTensionModel.py`,
    methods/ct.md). Doubtful: in the code, sentences of negative pairs are in no other pair (CT2, `pairs`); mean in the
    authors' code, sum in sentence-transformers (CT3, `reduction`). Dot products of unnormalized embeddings are in the
    hundreds (CT5), so the loss is computed in single precision or higher.

    Args:
        negatives: Number K of negative pairs per positive pair.
        pairs: "all" uses each row for both kinds. "separate", as in the authors' batches, uses the first N/(K+1) rows
            (at least one) for positive pairs only, and pairs each of the other rows with the next of them.
        reduction: Reduction over all pairs: "mean" or "sum".

    Examples:
        >>> import torch
        >>> from registry.losses.dot_classification import DotClassification
        >>> views = torch.eye(3)
        >>> round(DotClassification(negatives=1)(views, views).item(), 4)
        0.5032
    """

    def __init__(
        self,
        negatives: Annotated[int, Field(gt=0), Tune(1, 15)] = 7,
        pairs: Literal["all", "separate"] = "all",
        reduction: Literal["mean", "sum"] = "mean",
    ) -> None:
        super().__init__()
        self.negatives, self.pairs, self.reduction = negatives, pairs, reduction

    def forward(self, anchor: Sentences, positive: Sentences) -> Tensor:
        """Return the loss of the batch."""
        rows, apart = len(anchor), self.pairs == "separate"
        if apart and rows < 3:
            raise CseError(
                f'dot_classification: pairs = "separate" requires at least 3 sentences, but the batch has {rows}',
                'set train.batch_size to 3 or more, or pairs = "all"',
                code="losses.batch_too_small",
            )
        same = max(1, rows // (self.negatives + 1)) if apart else rows
        first, second = (anchor[same:], positive[same:]) if apart else (anchor, positive)
        shifts = range(1, 2 if apart else min(self.negatives, rows - 1) + 1)
        together = (anchor[:same] * positive[:same]).sum(-1)
        different = [(first * second.roll(-shift, 0)).sum(-1) for shift in shifts]
        values = torch.cat([softplus(-together), *map(softplus, different)])
        return values.mean() if self.reduction == "mean" else values.sum()
