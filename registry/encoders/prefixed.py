"""Encoder of a checkpoint with learned keys and values in every attention layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor, nn

from registry import ENCODERS
from registry.encoders import architectures
from registry.encoders.blocks import padded_states, run_blocks
from registry.encoders.export import Layout
from registry.encoders.packing import Rows
from registry.encoders.transformer import TransformerEncoder
from registry.errors import CseError
from registry.tokens import Tokens
from registry.types import Tune


@ENCODERS.register("prefixed")
class PrefixedEncoder(TransformerEncoder):
    """Encode with a checkpoint that has P learned keys and values in every attention layer.

    In block k, the keys are [drop(Pₖ); K] and the values [drop(P′ₖ); V], where K and V are those of the sentence's
    tokens. P and P′ are initialized from N(0, `initial`²) and trained. The prefix takes the first P positions: token t
    of a sentence, counted from 0, has the position embedding P + t. With `freeze = ["embeddings", "encoder"]`, only the
    prefix is trained.

    The prefix is computed as P extra tokens before every row, whose keys and values are replaced in each block. The
    result is exact and costs the time of P more tokens. Rows are not packed, and blocks are not compiled.

    Args:
        length: Number P of learned keys and values per block.
        initial: Standard deviation of the initial prefix.

    Shapes: those of `transformer`, and P, P′ (blocks, P, D).

    Source: PromCSE (Jiang et al. 2022) and its code (YJiangcm/PromCSE @4b31938, `promcse/models.py:165`), which passes
    the prefix as cached keys and values of the BERT of transformers 4.2.1 (`modeling_bert.py:194`,
    `modeling_roberta.py:1489`). Settled in methods/promcse.md: padding of averages (PC1), positions (PC4), start (PC7,
    `initial`).

    Raises:
        CseError: If the checkpoint's blocks are not BERT blocks.

    Example:
        [encoders.online]
        name = "prefixed"
        model = "bert-base-uncased"
        length = 16
        freeze = ["embeddings", "encoder"]
    """

    reads_all_tokens = True  # of the prefix
    has_attentions = False  # the weights of a token include those of the prefix

    def __init__(
        self,
        length: Annotated[int, Field(ge=1), Tune(2, 32, log=True)] = 16,
        initial: Annotated[float, Field(gt=0), Tune(0.001, 1.0, log=True)] = 0.02,
        **shared: Any,
    ) -> None:
        super().__init__(**shared)
        blocks = getattr(getattr(self.backbone, "encoder", None), "layer", ())
        attentions: list[Any] = [getattr(getattr(block, "attention", None), "self", None) for block in blocks]
        if (
            not attentions
            or not architectures.is_split(self.backbone)
            or not all(hasattr(one, "key") and hasattr(one, "value") for one in attentions)
        ):
            raise CseError(
                f"prefixed: the blocks of '{type(self.backbone).__name__}' have no separate keys and values",
                "set model to a BERT, RoBERTa, XLM-R or ELECTRA checkpoint",
                code="encoders.unsupported_architecture",
            )
        self.length = length
        self.max_length = (self.max_length or 0) - length
        self.prefix = nn.Parameter(initial * torch.randn(len(attentions), 2, length, self.dim))
        self.prefix_dropout = nn.Dropout(float(self.dropout.p))  # type: ignore[arg-type]
        for number, attention in enumerate(attentions):
            for place, made in enumerate((attention.key, attention.value)):
                made.register_forward_hook(partial(self._in_front, number, place))
        self.train()

    def embed(self, tokens: Tokens) -> Tensor:
        """Return the (B, L, W) token vectors before any dropout, at positions after those of the prefix."""
        return super().embed(self._moved(tokens))

    def layer_vectors(self, tokens: Tokens, embeddings: Tensor | None) -> Tensor:
        """Return the (B, L, W) output of the embedding layer, at positions after those of the prefix."""
        return super().layer_vectors(self._moved(tokens), embeddings)

    def block_states(self, tokens: Tokens, vectors: Tensor, every: bool, heads: Tensor | None = None) -> list[Tensor]:
        """Return the (B, L, D) states of the sentence's tokens after the blocks."""
        given = *self._with_places(vectors, tokens.mask), every, self.mini_batch_size, heads
        return self._without_places(run_blocks(self.backbone, *given, packed=False))

    def exact_states(self, tokens: Tokens, vectors: Tensor, every: bool) -> list[Tensor]:
        """Return the states for evaluation, as transformers computes them."""
        return self._without_places(padded_states(self.backbone, *self._with_places(vectors, tokens.mask), every))

    def layout(self, max_length: int) -> Layout:
        """Return the layout of the export, prefix included."""
        made = super().layout(max_length)
        return replace(made, own={**made.own, "format": "prefixed"}, prefix=self.prefix, loadable=False)

    def _in_front(self, number: int, place: int, _: nn.Module, __: Any, made: Tensor) -> Tensor:
        """Return keys or values (B, P + L, D) with the prefix in the first P positions."""
        own = self.prefix[number, place].to(made.dtype).expand(len(made), -1, -1)
        return torch.cat([self.prefix_dropout(own), made[:, self.length :]], dim=1)

    def _moved(self, tokens: Tokens) -> Tokens:
        return replace(tokens, positions=tokens.positions + self.length)

    def _with_places(self, vectors: Tensor, mask: Tensor) -> tuple[Tensor, Rows]:
        rows = len(mask)
        empty, seen = vectors.new_zeros(rows, self.length, vectors.shape[2]), mask.new_ones(rows, self.length)
        return torch.cat([empty, vectors], dim=1), Rows(torch.cat([seen, mask], dim=1))

    def _without_places(self, states: Sequence[Tensor]) -> list[Tensor]:
        return [state[:, self.length :] for state in states]
