"""Frozen copy of another encoder before training: a teacher with access to all its layers."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor

from registry import ENCODERS
from registry.encoders.ema import CopiedEncoder, copy_encoder, heads_of
from registry.encoders.transformer import TransformerEncoder
from registry.errors import CseError
from registry.poolings import pool
from registry.tokens import Encoded, Tokens
from registry.types import Encoder


@ENCODERS.register("frozen_copy")
class FrozenCopy(CopiedEncoder):
    """Encode with the initial state of another encoder, and pool each of its layers.

    v_k = pool(states of layer k), where layer 0 is the input of the first block, layer k the output of the k-th block,
    and n the last layer. `Encoded.layers` contains the v_k of `layers`, and `Encoded.sentence` is always v_n. The copy
    is made after the weights of `of` are complete, without its heads. It has no gradient. Checkpoints do not contain
    it, because a resumed run makes it again.

    Shapes: ids (B, L) → layers (B, K, D) and sentence (B, D), where D is the width of `of` before its heads.

    Source: SG-OPT (Kim, Yoo and Lee 2021, section 3.1, BERT_F) and its code. Doubtful and settled in methods/sg_opt.md:
    whether layer 0 counts (SG1 → `layers`), whether the copy has dropout (SG6 → `dropout`).

    Args:
        of: Encoder to copy, a `transformer` that the recipe declares before this one.
        layers: Indices of the layers to pool, from 0. Default: all layers.
        pooling: Pooling of a layer's token states.
        dropout: Whether the copy has the dropout of `of` in training.

    Example:
        [encoders.frozen]
        name = "frozen_copy"
        of = "online"
        layers = [0, 6, 12]
    """

    stateful: ClassVar[bool] = False
    target: TransformerEncoder

    def __init__(
        self,
        of: Encoder,
        layers: list[int] | None = None,
        pooling: Literal["cls", "mean"] = "mean",
        dropout: bool = False,
    ) -> None:
        super().__init__()
        if not isinstance(of, TransformerEncoder):
            raise CseError(
                f"frozen_copy: the encoder in `of` is a {type(of).__name__}, whose layers cannot be read",
                "set of to a transformer encoder, for example 'online'",
                code="encoders.no_layers",
            )
        copied = copy_encoder(of, share=(), without=list(heads_of(of)))
        assert isinstance(copied, TransformerEncoder)
        copied.pooling = copied.eval_pooling = pooling
        copied.head_at_eval = False
        self.target, self.dropout = copied, dropout
        count = int(copied.backbone.config.num_hidden_layers) + 1
        self.layers = list(range(count)) if layers is None else layers
        if not self.layers or not set(self.layers) <= set(range(count)):
            raise CseError(
                f"frozen_copy: layers = {layers} is not a selection of the encoder's layers 0 to {count - 1}",
                f"use one or more numbers from 0 to {count - 1}",
                code="encoders.unknown_layer",
            )
        self.dim, self.width, self.max_length = copied.dim, of.width, of.max_length
        self.augment_at, self.vocabulary = of.augment_at, of.vocabulary
        self.train()

    def train(self, mode: bool = True) -> FrozenCopy:
        """Switch the copy to training mode only if it has dropout."""
        self.training = mode
        self.target.train(mode and self.dropout)
        return self

    @torch.no_grad()
    def embed(self, tokens: Tokens) -> Tensor:
        """Return the (B, L, W) token vectors before any dropout."""
        return self.target.embed(tokens)

    @torch.no_grad()
    def encode(self, tokens: Tokens, embeddings: Tensor) -> Encoded:
        """Apply the blocks and pool the states of each layer."""
        copied = self.target
        dropped: Tensor = copied.dropout(copied.layer_vectors(tokens, embeddings))
        states = copied.block_states(tokens, dropped, every=True)
        pooled = [pool(copied.pooling, [state], tokens.mask) for state in states]
        layers = torch.stack([pooled[layer] for layer in self.layers], dim=1)
        return Encoded(sentence=pooled[-1], embeddings=dropped, hidden=states[-1], tokens=tokens, layers=layers)
