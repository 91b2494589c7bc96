"""Mutual information between a sentence's vector and the features of its tokens: what IS-BERT maximises."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from registry import LOSSES
from registry.distributed import rank, sum_devices, world_size
from registry.errors import CseError
from registry.tokens import Encoded
from registry.types import Loss


@LOSSES.register("jensen_shannon_information")
class JensenShannonInformation(Loss):
    """Tell a sentence's own tokens from those of the batch's other sentences, by their local features.

    ℓ = 1/(T·(B − 1)) Σ_{i,l} Σ_{j≠i} (softplus(r_ilj) − log 2) − 1/T Σ_{i,l} (log 2 − softplus(−r_ili)),
    with r_ilj = f_il·s_j, s the sentence vectors, and f the local features at the T real tokens l of sentences i,
    special ones among them. −ℓ is the Jensen-Shannon estimate of the mutual information between the two. The authors
    write softplus(−r) + r for softplus(r), which is the same number. A batch of one sentence has no first term.

    Shapes: hidden (B, L, D), sentence (B, D) → a scalar; the features must be as wide as the sentence vectors.

    Source: IS-BERT (Zhang et al. 2020, section 3.2) and its code (`MutualInformationLoss.py`); Deep InfoMax (Hjelm et
    al. 2019). Doubtful and settled in methods/is_bert.md: what the negatives are divided by (IS1).
    """

    def forward(self, anchor: Encoded) -> Tensor:
        """Return this device's share of the loss: the mean over devices is the loss of the whole batch.

        Raises:
            CseError: Features and sentence vectors differ in width.
        """
        if anchor.hidden.shape[-1] != anchor.sentence.shape[-1]:
            raise CseError(
                f"jensen_shannon_information: token features are {anchor.hidden.shape[-1]} wide, sentence vectors "
                f"{anchor.sentence.shape[-1]}: they have no dot product",
                "give the view's encoder no heads, or heads that keep the width",
            )
        real = anchor.tokens.mask.to(anchor.hidden.dtype)
        rows, before = len(real), rank() * len(real)
        after = (world_size() - 1) * rows - before
        everyone = sum_devices(F.pad(anchor.sentence, (0, 0, before, after)))  # each device's gradient reaches all rows
        tokens = sum_devices(real.sum()) / world_size()
        products = torch.einsum("ild,jd->ilj", anchor.hidden, everyone)
        own = F.pad(torch.eye(rows, dtype=torch.bool, device=real.device), (before, after))[:, None, :]
        log_2 = math.log(2)
        positive = ((log_2 - F.softplus(-products)) * real[..., None]).masked_fill(~own, 0).sum() / tokens
        negative = ((F.softplus(products) - log_2) * real[..., None]).masked_fill(own, 0).sum()
        return negative / (tokens * max(1, len(everyone) - 1)) - positive
