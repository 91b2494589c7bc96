"""PT-BERT's attention over learned pseudo tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from registry import HEADS
from registry.errors import CseError
from registry.heads.layers import dense_layer
from registry.types import Encoder, Head, Tune


@HEADS.register("pseudo_tokens")
class PseudoTokens(Head):
    """Express the pooled vector again through M learned pseudo tokens, the same number for every sentence.

    Q = Attention(P; c),  r = Attention(c; Q),
    with c the pooled vector, P the M pseudo tokens, and Attention(x; y) BERT's multi-head self-attention with queries
    from x, keys and values from y, without output layer, residual and normalisation. The first attention has one key,
    so that its softmax is 1 and each row of Q is the value of c: P gets no gradient, and r depends on M through the
    dropout of attention alone (PT1). Weights and P are drawn from N(0, 0.02²), biases are 0.

    Shapes: (B, D) → (B, D).

    Source: PT-BERT (Tan et al. 2022, section 3.2) and its code (`models.py`). Doubtful and settled in
    methods/pt_bert.md: the paper's pseudo tokens attend to the sentence's tokens, the code's to [CLS] (PT1).

    Args:
        tokens: M.
        attention_heads: Of both attentions; as many as the encoder's blocks have if left out.
        dropout: Of the attention weights.

    Raises:
        CseError: The encoder does not say how many heads its blocks have, or the width cannot be divided by it.
    """

    def __init__(
        self,
        tokens: Annotated[int, Field(gt=0), Tune(16, 512, log=True)] = 128,
        attention_heads: Annotated[int, Field(gt=0)] | None = None,
        dropout: Annotated[float, Field(ge=0, lt=1), Tune(0.0, 0.3)] = 0.1,
    ) -> None:
        super().__init__()
        self.tokens, self.attention_heads, self.dropout = tokens, attention_heads, dropout

    def fit(self, width: int, encoder: Encoder) -> int:
        """Make the pseudo tokens and both attentions; they keep the width."""
        config = getattr(getattr(encoder, "backbone", None), "config", None)
        count = self.attention_heads or getattr(config, "num_attention_heads", None)
        if count is None or width % count:
            why = f"{width} dimensions cannot be divided among {count}" if count else "the encoder's blocks have none"
            raise CseError(f"pseudo_tokens: attention_heads: {why}", "set attention_heads to a divisor of the width")
        self.pseudo = nn.Parameter(torch.empty(self.tokens, width).normal_(std=0.02))
        self.inner = Attention(width, count, self.dropout)
        self.outer = Attention(width, count, self.dropout)
        return width

    def forward(self, pooled: Tensor, groups: Sequence[tuple[str, int]]) -> Tensor:  # noqa: ARG002 - the hook's form
        """Return (B, D)."""
        c = pooled.unsqueeze(1)
        expressed = self.inner(self.pseudo.unsqueeze(0).to(pooled.dtype), c)
        output: Tensor = self.outer(c, expressed).squeeze(1)
        return output


class Attention(nn.Module):
    """Scaled dot-product attention of several heads, their outputs beside each other: softmax(qkᵀ/√d)·v.

    Args:
        width: D.
        heads: How many; each is D/heads = d wide.
        dropout: Of the weights.
    """

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (dense_layer(width, width) for _ in range(3))
        self.dropout = nn.Dropout(dropout)

    def forward(self, asking: Tensor, asked: Tensor) -> Tensor:
        """Return (B, n, D) for asking (B, n, D), or (1, n, D) where all rows ask the same, and asked (B, m, D)."""
        query, key, value = (
            layer(rows).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer, rows in ((self.query, asking), (self.key, asked), (self.value, asked))
        )
        rate = self.dropout.p if self.training else 0.0  # a module, so that a momentum copy can be given its own rate
        asks = query.expand(len(asked), -1, -1, -1)
        mixed: Tensor = F.scaled_dot_product_attention(asks, key, value, dropout_p=rate)
        return mixed.transpose(1, 2).flatten(-2)
