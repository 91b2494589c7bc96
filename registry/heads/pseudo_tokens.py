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
from registry.types import Encoder, Head, Tune


@HEADS.register("pseudo_tokens")
class PseudoTokens(Head):
    """Re-express the pooled vector through M learned pseudo tokens, the same number for every sentence.

    Q = Attention(P; c),  r = Attention(c; Q),
    with c the pooled vector, P the M pseudo tokens, and Attention(x; y) BERT's multi-head self-attention with queries
    from x, keys and values from y, without output layer, residual and normalization. Both steps use the same weights
    (PT7). The first step has one key, so its softmax is 1 and each row of Q is the value of c: P gets no gradient, and
    r depends on M only through the dropout of the attention (PT1). Initially P is from N(0, 1), and weights and biases
    are uniform in ±1/√D, as in torch's embeddings and dense layers (PT8).

    Shapes: (B, D) → (B, D).

    Source: PT-BERT (Tan et al. 2022, section 3.2) and its code (Namco0816/PT-BERT @dba403c, `ptbert/models.py:246-255`
    and `392-395`). Doubtful and settled in methods/pt_bert.md: the paper's pseudo tokens attend to the sentence's
    tokens, the code's to [CLS] (PT1); one attention for both steps (PT7); the initial weights (PT8).

    Args:
        tokens: Number M of pseudo tokens.
        attention_heads: Number of heads of the attention. Default: that of the encoder's blocks.
        dropout: Dropout rate of the attention weights.

    Raises:
        CseError: If the encoder does not specify a number of heads, or the number does not divide the width.

    Example:
        [encoders.online.heads.pseudo_tokens]
        tokens = 128
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
        """Create the pseudo tokens and the attention, which keeps the width."""
        config = getattr(getattr(encoder, "backbone", None), "config", None)
        count = self.attention_heads or getattr(config, "num_attention_heads", None)
        if count is None:
            raise CseError(
                "pseudo_tokens: the encoder does not specify a number of attention heads",
                f"set attention_heads to a divisor of the width {width}",
                code="heads.no_attention_heads",
            )
        if width % count:
            raise CseError(
                f"pseudo_tokens: attention_heads = {count} does not divide the width {width}",
                "set attention_heads to a divisor of the width",
                code="heads.indivisible_width",
            )
        self.pseudo = nn.Parameter(torch.randn(self.tokens, width))
        self.attention = Attention(width, count, self.dropout)
        return width

    def forward(self, pooled: Tensor, groups: Sequence[tuple[str, int]]) -> Tensor:  # noqa: ARG002 - the hook's form
        """Return (B, D)."""
        c = pooled.unsqueeze(1)
        expressed = self.attention(self.pseudo.unsqueeze(0).to(pooled.dtype), c)
        output: Tensor = self.attention(c, expressed).squeeze(1)
        return output


class Attention(nn.Module):
    """Multi-head scaled dot-product attention with concatenated outputs: softmax(qkᵀ/√d)·v.

    Args:
        width: Width D.
        heads: Number of heads, each with width d = D/heads.
        dropout: Dropout rate of the attention weights.
    """

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.dropout = nn.Dropout(dropout)

    def forward(self, queries: Tensor, context: Tensor) -> Tensor:
        """Return (B, n, D) for queries (B, n, D), or (1, n, D) if shared by all rows, and context (B, m, D)."""
        query, key, value = (
            layer(rows).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer, rows in ((self.query, queries), (self.key, context), (self.value, context))
        )
        rate = self.dropout.p if self.training else 0.0  # a module, so that a momentum copy can have another rate
        query = query.expand(len(context), -1, -1, -1)
        mixed: Tensor = F.scaled_dot_product_attention(query, key, value, dropout_p=rate)
        return mixed.transpose(1, 2).flatten(-2)
