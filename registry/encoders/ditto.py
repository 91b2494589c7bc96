"""Ditto: an average of token states, weighted by how much each token attends to itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from registry import ENCODERS
from registry.encoders.export import Layout
from registry.encoders.transformer import TransformerEncoder
from registry.errors import CseError
from registry.poolings import pool
from registry.tokens import Tokens

MeanPooling = Literal["mean", "last2", "first_last"]


@ENCODERS.register("ditto")
class DittoEncoder(TransformerEncoder):
    """Encode with a checkpoint, and weight each token by the diagonal of one attention head.

    s = heads(Σₜ aₜ·hₜ / Σₜ aₜ), where hₜ is the state of token t, or the mean of its states in two layers, and
    aₜ = softmax(qₜ·Kᵀ/√d)ₜ is the weight that token t gives itself in head `head` of block `block`. Special tokens
    count, padding does not. The published sum has no divisor, which does not change cosines. The weights add no
    parameters and have no dropout. Blocks are not compiled.

    Only cse opens an export, because no sentence-transformers module reads attention weights.

    Args:
        block: Index of the block, from 0.
        head: Index of the attention head, from 0.
        pooling: Averaged states in training: "first_last", "last2" or "mean" (the last layer), as in `transformer`.
        eval_pooling: Averaged states in evaluation. Default: `pooling`.

    Shapes: those of `transformer`.

    Source: Ditto (Chen et al. 2023, section 3) and its code (alibaba-damo-academy/SpokenNLP @30fc9df,
    ditto/evaluation_ditto.py:127, 150-159). Settled in methods/ditto.md: counting of layers and heads (DT1), special
    tokens (DT2), first layer (DT3, `first_layer_index`).

    Raises:
        CseError: If the checkpoint's blocks are not BERT blocks, there is no such block or head, or `layer` is set.

    Example:
        [encoders.online]
        name = "ditto"
        model = "bert-base-uncased"
        block = 0
        head = 9
    """

    has_attentions = False  # they are computed without the states of all layers

    def __init__(
        self,
        block: Annotated[int, Field(ge=0)] = 0,
        head: Annotated[int, Field(ge=0)] = 0,
        pooling: MeanPooling = "first_last",
        eval_pooling: MeanPooling | None = None,
        **shared: Any,
    ) -> None:
        super().__init__(pooling=pooling, eval_pooling=eval_pooling, **shared)
        blocks = getattr(getattr(self.backbone, "encoder", None), "layer", ())
        attentions: list[Any] = [getattr(getattr(block, "attention", None), "self", None) for block in blocks]
        if not attentions or not all(hasattr(one, "query") and hasattr(one, "key") for one in attentions):
            raise CseError(
                f"ditto: the blocks of '{type(self.backbone).__name__}' have no separate queries and keys",
                "set model to a BERT, RoBERTa, XLM-R or ELECTRA checkpoint",
                code="encoders.unsupported_architecture",
            )
        heads = int(self.backbone.config.num_attention_heads)
        if block >= len(attentions) or head >= heads:
            raise CseError(
                f"ditto: block = {block} and head = {head}, but '{self.model}' has {len(attentions)} blocks of {heads} "
                "heads",
                f"use a block from 0 to {len(attentions) - 1} and a head from 0 to {heads - 1}",
                code="encoders.unknown_block",
            )
        self.block, self.head = block, head

    @classmethod
    def check_settings(cls, given: Mapping[str, Any]) -> None:
        """Check the parameters of `transformer`, and that `layer` is not set."""
        super().check_settings(given)
        if given["layer"] is not None:
            raise CseError(
                f"ditto: layer = {given['layer']} has no effect, because ditto pools the last layer or two layers",
                "remove layer, or use the encoder 'transformer'",
                code="encoders.layer_with_average",
            )

    def block_states(self, tokens: Tokens, vectors: Tensor, every: bool, heads: Tensor | None = None) -> list[Tensor]:  # noqa: ARG002
        """Return the (B, L, D) states of every layer."""
        return super().block_states(tokens, vectors, True, heads)

    def exact_states(self, tokens: Tokens, vectors: Tensor, every: bool) -> list[Tensor]:  # noqa: ARG002
        """Return the states of every layer for evaluation, as transformers computes them."""
        return super().exact_states(tokens, vectors, True)

    def layout(self, max_length: int) -> Layout:
        """Return the layout of the export, with the attention head."""
        made = super().layout(max_length)
        own = {**made.own, "format": "ditto", "block": self.block, "head": self.head}
        return replace(made, own=own, loadable=False)

    def _pooled(self, pooling: str, states: Sequence[Tensor], tokens: Tokens) -> Tensor:
        attention = self.backbone.encoder.layer[self.block].attention.self
        weights = diagonal_attention(attention, states[self.block], tokens.mask, self.head)
        return pool(pooling, states, weights, self.first_layer_index)


def diagonal_attention(attention: Any, states: Tensor, mask: Tensor, head: int) -> Tensor:
    """Return the weights (B, L) that tokens give themselves in one head, 0 for padding.

    Args:
        attention: Self-attention module of a BERT block.
        states: Input (B, L, D) of the block.
        mask: (B, L) 1 for real tokens.
        head: Index of the head.
    """
    size = attention.attention_head_size
    query, key = (part(states)[..., head * size : (head + 1) * size] for part in (attention.query, attention.key))
    scores = (query @ key.transpose(1, 2)) * size**-0.5
    scores = scores.masked_fill(mask[:, None] == 0, torch.finfo(scores.dtype).min)
    weights: Tensor = scores.softmax(dim=-1).diagonal(dim1=1, dim2=2)
    return weights * mask
