"""Encoder of a checkpoint that averages a fixed number of positions, padding included."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from registry import ENCODERS
from registry.encoders import architectures
from registry.encoders import backbone as halves
from registry.encoders.blocks import padded_states, run_blocks
from registry.encoders.export import Layout
from registry.encoders.packing import Rows
from registry.encoders.transformer import TransformerEncoder
from registry.errors import CseError
from registry.tokens import Encoded, Tokens


@ENCODERS.register("padded")
class PaddedEncoder(TransformerEncoder):
    """Encode with a checkpoint, and average the last layer over P positions, real tokens and padding.

    s = heads((1/P)·Σ_{l=1…P} h_l), with h the last layer's states. Positions after the sentence contain [PAD]. They
    attend to the real tokens, and no token attends to them. P is fixed, so an embedding does not depend on the other
    sentences of the batch. Rows are not packed, and blocks are not compiled.

    Only cse opens an export, because no sentence-transformers module averages padding.

    Args:
        positions: Number P of positions in training, at least `data.max_length`.
        eval_positions: Number P in evaluation, at least `evaluate.max_length`. Default: `positions`.

    Shapes: those of `transformer`.

    Source: Mirror-BERT's code (`contrastive_learning.py`, `eval.py`: "mean"). Doubtful and settled in
    methods/mirror_bert.md: whether the mean includes padding (MB2).

    Example:
        [encoders.online]
        name = "padded"
        model = "bert-base-uncased"
        positions = 50
    """

    reads_all_tokens = True  # of the mean
    has_attentions = False  # rows have more positions than the view has tokens

    def __init__(
        self,
        positions: Annotated[int, Field(ge=1, le=65_536)] = 64,
        eval_positions: Annotated[int, Field(ge=1, le=65_536)] | None = None,
        pooling: Literal["mean"] = "mean",
        eval_pooling: Literal["mean"] | None = None,
        **shared: Any,
    ) -> None:
        super().__init__(pooling=pooling, eval_pooling=eval_pooling, **shared)
        architectures.require_split(self.backbone, 'the encoder "padded"')
        self.positions, self.eval_positions = positions, eval_positions or positions
        most, limit = max(self.positions, self.eval_positions), halves.longest(self.backbone)
        if most > (limit or 0):
            raise CseError(
                f"padded: the mean has {most} positions, but model '{self.model}' supports at most {limit}",
                f"set positions and eval_positions to at most {limit}, or use another model",
                code="encoders.too_many_positions",
            )
        self.max_length = min(self.max_length or 0, most)

    def encode(self, tokens: Tokens, embeddings: Tensor) -> Encoded:
        """Apply dropout, blocks, pooling and training heads."""
        made = super().encode(tokens, embeddings)
        return replace(made, hidden=made.hidden[:, : tokens.length])

    def block_states(self, tokens: Tokens, vectors: Tensor, every: bool, heads: Tensor | None = None) -> list[Tensor]:
        """Return the (B, P, D) states of all positions after the blocks."""
        given = *self._stretched(vectors, tokens.mask, self.positions), every, self.mini_batch_size, heads
        return run_blocks(self.backbone, *given, packed=False)

    def exact_states(self, tokens: Tokens, vectors: Tensor, every: bool) -> list[Tensor]:
        """Return the states for evaluation, as transformers computes them."""
        return padded_states(self.backbone, *self._stretched(vectors, tokens.mask, self.eval_positions), every)

    def layout(self, max_length: int) -> Layout:
        """Return the layout of the export, with the number of positions."""
        made = super().layout(max_length)
        own = {**made.own, "format": "padded", "positions": self.eval_positions}
        return replace(made, own=own, loadable=False)

    def _pooled(self, pooling: str, states: Sequence[Tensor], tokens: Tokens) -> Tensor:  # noqa: ARG002
        return states[-1].mean(dim=1)

    def _stretched(self, vectors: Tensor, mask: Tensor, count: int) -> tuple[Tensor, Rows]:
        """Return vectors (B, P, W) and mask (B, P). Vectors at padding are those of [PAD] at their position."""
        rows, length = mask.shape
        if length > count:
            raise CseError(
                f"padded: a sentence has {length} tokens, but the mean has {count} positions",
                "set positions to data.max_length or more, and eval_positions to evaluate.max_length or more",
                code="encoders.too_few_positions",
            )
        places = torch.arange(count, device=mask.device).unsqueeze(0)
        empty = torch.zeros_like(places)
        padding = Tokens(torch.full_like(places, self.vocabulary.padding), empty, empty, places)
        added = halves.embed_layer(self.backbone, padding).to(vectors.dtype).repeat(rows, 1, 1)
        seen = torch.cat([mask, mask.new_zeros(rows, count - length)], dim=1)
        given = torch.cat([vectors, vectors.new_zeros(rows, count - length, vectors.shape[2])], dim=1)
        return torch.where(seen.unsqueeze(-1) == 1, given, self.dropout(added)), Rows(seen)
