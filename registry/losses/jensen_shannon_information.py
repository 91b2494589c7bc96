"""IS-BERT's loss: mutual information between a sentence's embedding and the features of its tokens."""

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
    """Distinguish a sentence's own tokens from the tokens of the batch's other sentences by their local features.

    ℓ = 1/(T·(B − 1)) Σ_{i,l} Σ_{j≠i} (softplus(r_ilj) − log 2) − 1/T Σ_{i,l} (log 2 − softplus(−r_ili)),
    with r_ilj = f_il·s_j, s the sentence embeddings, and f the local features at the T real tokens l of sentences i,
    including special tokens. −ℓ is the Jensen-Shannon estimate of the mutual information between the two. The authors
    write softplus(−r) + r for softplus(r), which is the same number. A batch of one sentence has no first term.

    Shapes: hidden (B, L, D), sentence (B, D) → a scalar. Features and sentence embeddings have the same width.

    Source: IS-BERT (Zhang et al. 2020, section 3.2) and its code (`MutualInformationLoss.py`); Deep InfoMax (Hjelm et
    al. 2019). Doubtful and settled in methods/is_bert.md: the divisor of the negatives (IS1).

    Example:
        [encoders.online]
        name = "convolutional"
        model = "mini_en"
        pooling = "mean"

        [losses.jensen_shannon_information]

        >>> import torch
        >>> from registry.losses.jensen_shannon_information import JensenShannonInformation
        >>> from registry.tokens import Encoded, Tokens
        >>> ones = torch.ones(2, 1, dtype=torch.int64)  # two sentences of one token, whose state is the embedding
        >>> sentence = torch.eye(2)
        >>> view = Encoded(sentence, sentence[:, None], sentence[:, None], Tokens(ones, ones, ones, ones))
        >>> round(JensenShannonInformation()(view).item(), 4)
        -0.3799
    """

    def forward(self, anchor: Encoded) -> Tensor:
        """Return the loss of this device. The mean over devices is the loss of the whole batch."""
        if anchor.hidden.shape[-1] != anchor.sentence.shape[-1]:
            raise CseError(
                f"jensen_shannon_information: token features have {anchor.hidden.shape[-1]} dimensions, sentence "
                f"embeddings {anchor.sentence.shape[-1]}",
                "remove the heads of the view's encoder, or use heads that keep the width",
                code="losses.width_mismatch",
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
