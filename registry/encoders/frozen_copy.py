"""A frozen copy of another encoder, as it was before training: a teacher that also shows its lower layers."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

import torch
from torch import Tensor

from registry import ENCODERS
from registry.encoders.backbone import modes_kept
from registry.encoders.blocks import run_blocks
from registry.encoders.ema import copy_encoder, heads_of
from registry.encoders.pooling import pool
from registry.encoders.transformer import TransformerEncoder
from registry.errors import CseError
from registry.tokens import Encoded, Tokens
from registry.types import Encoder


@ENCODERS.register("frozen_copy")
class FrozenCopy(Encoder):
    """Encode with another encoder as it was at the start of training, and pool each of its layers.

    v_k = pool(states of layer k); layer 0 is what enters the first block, layer k the output of the k-th, n the last.
    `Encoded.layers` holds the chosen v_k, `Encoded.sentence` is v_n whatever is chosen. The copy is made once `of` is
    complete, without its heads; no gradient passes through it, and nothing of it is kept in checkpoints, since a
    resumed run makes it again.

    Shapes: ids (B, L) → layers (B, K, D) and sentence (B, D), D that of `of` before its heads.

    Source: SG-OPT (Kim, Yoo and Lee 2021, section 3.1, BERT_F) and its code. Doubtful and settled in methods/sg_opt.md:
    whether layer 0 counts (SG1 → `layers`), whether the copy drops out (SG6 → `dropout`).

    Args:
        of: The encoder that is copied, a `transformer` that the recipe declares before this one.
        layers: Layers to pool, counted from 0; all if left out.
        pooling: How a layer's token states become one vector.
        dropout: Whether the copy drops out, as `of` does, while the rest trains.
    """

    stateful: ClassVar[bool] = False

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
                f"frozen_copy: `of` names an encoder without layers of its own ({type(of).__name__})",
                "name an encoder of type 'transformer'",
            )
        copied = copy_encoder(of, share=(), without=list(heads_of(of)))
        assert isinstance(copied, TransformerEncoder)
        copied.pooling = copied.eval_pooling = pooling
        copied.head_at_eval = False
        self.target, self.dropout = copied, dropout
        count = int(copied.backbone.config.num_hidden_layers) + 1
        self.layers = list(range(count)) if layers is None else layers
        if not self.layers or not set(self.layers) <= set(range(count)):
            raise CseError(f"frozen_copy: layers = {layers}, but the encoder has layers 0 to {count - 1}", "name those")
        self.dim, self.width, self.max_length = copied.dim, of.width, of.max_length
        self.augment_at, self.vocabulary = of.augment_at, of.vocabulary
        self.train()

    def train(self, mode: bool = True) -> FrozenCopy:
        """Follow the training only where dropout is wanted."""
        self.training = mode
        self.target.train(mode and self.dropout)
        return self

    def expect(self, *, hidden_read: bool, rows_at_once: int | None) -> None:
        """Pass it on to the copy."""
        self.target.expect(hidden_read=hidden_read, rows_at_once=rows_at_once)

    @torch.no_grad()
    def embed(self, tokens: Tokens) -> Tensor:
        """Return (B, L, W) token vectors, before any dropout."""
        return self.target.embed(tokens)

    @torch.no_grad()
    def encode(self, tokens: Tokens, embeddings: Tensor) -> Encoded:
        """Contextualise, and pool each layer."""
        copied = self.target
        dropped: Tensor = copied.dropout(copied.layer_vectors(tokens, embeddings))
        states = run_blocks(copied.backbone, dropped, tokens.mask, True, copied.rows_at_once)
        pooled = [pool(copied.pooling, [state], tokens.mask) for state in states]
        layers = torch.stack([pooled[layer] for layer in self.layers], dim=1)
        return Encoded(sentence=pooled[-1], embeddings=dropped, hidden=states[-1], tokens=tokens, layers=layers)

    def represent(self, tokens: Tokens, embeddings: Tensor | None = None) -> Tensor:
        """Return (B, D) the last layer's pooled states, in eval mode."""
        with modes_kept(self.target):
            return self.target.represent(tokens, embeddings)

    def export(self, folder: Path, max_length: int) -> None:
        """Write the copy, in the form of `of`."""
        self.target.export(folder, max_length)
