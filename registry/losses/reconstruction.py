"""TSDAE's loss: reconstruct a sentence with a decoder that reads only the sentence embedding."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from registry import LOSSES
from registry.encoders.backbone import modes_kept
from registry.errors import CseError
from registry.losses.masked_language_modeling import MaskedLanguageModeling
from registry.tokens import Encoded
from registry.types import Encoder, Loss


@LOSSES.register("reconstruction")
class Reconstruction(Loss):
    """Predict each token of a sentence from the tokens before it and the embedding of a damaged copy.

    ℓ = −1/T Σᵢ Σₗ log p(xᵢ,ₗ₊₁ | xᵢ,₀ … xᵢ,ₗ, hᵢ),
    over the T tokens of all devices, including [SEP] and except the first of each sentence. The decoder is the encoder
    itself (embeddings, blocks and word vectors) with causal attention. A fresh cross-attention, whose only key and
    value is h, follows the attention of each block. A prediction head (`masked_language_modeling`) computes the scores.
    Dropout is active in training, as in the encoder.

    The view `whole` is encoded like any other view, but the loss reads only the output of its embedding layer.

    Shapes: damaged.sentence (B, D), whole.tokens (B, L) → scores (T, V) → a scalar.

    Source: TSDAE (Wang, Reimers and Gurevych 2021, section 3), with all weights shared except those of cross-attention;
    its code in sentence-transformers. Settled in methods/tsdae.md: padding of the decoder (TS3).

    Args:
        encoder: Encoder of both views, whose weights the decoder shares.
        initial: Initial prediction head, as in `masked_language_modeling`.

    Raises:
        CseError: If the encoder's blocks differ from BERT's, or sentence embeddings and states differ in width.

    Example:
        [views.damaged]
        [[views.damaged.augment]]
        name = "delete_words"
        rate = 0.6

        [views.whole]

        [losses.reconstruction]

        >>> import torch
        >>> from registry import ENCODERS, LOSSES
        >>> encoder = ENCODERS["transformer"].build({"model": "mini_en", "pooling": "mean"}).eval()
        >>> tokens = encoder.vocabulary.pad(encoder.vocabulary.ids(["a red house", "two dogs run"], 16))
        >>> view = encoder.encode(tokens, encoder.embed(tokens))
        >>> _ = torch.manual_seed(0)
        >>> loss = LOSSES["reconstruction"].build({"initial": "fresh"}, {"online": encoder}).eval()
        >>> round(loss(view, view).item(), 1)
        9.7
    """

    reads_hidden = False

    def __init__(
        self,
        encoder: Encoder,
        initial: Literal["checkpoint_or_fresh", "checkpoint", "fresh"] = "checkpoint_or_fresh",
    ) -> None:
        super().__init__()
        backbone: Any = getattr(encoder, "backbone", None)
        blocks = getattr(getattr(backbone, "encoder", None), "layer", ())
        if not blocks or not all(hasattr(block, "feed_forward_chunk") for block in blocks):
            raise CseError(
                f"reconstruction: a decoder cannot share the blocks of encoder {type(encoder).__name__}",
                'use an encoder of type "transformer" with a model of the BERT family',
                code="losses.no_transformer_blocks",
            )
        self._backbone = (backbone,)  # in a tuple: not a sub-module
        self.cross = nn.ModuleList(_cross_attention(block, backbone.config) for block in blocks)
        self.predict = MaskedLanguageModeling(encoder, initial)

    def forward(self, damaged: Encoded, whole: Encoded) -> Tensor:
        """Return the loss of the batch."""
        if damaged.sentence.shape[1] != whole.embeddings.shape[2]:
            raise CseError(
                f"reconstruction: sentence embeddings have {damaged.sentence.shape[1]} dimensions, the decoder's "
                f"states {whole.embeddings.shape[2]}",
                "remove the heads that change the width",
                code="losses.width_mismatch",
            )
        tokens = whole.tokens
        states = self._decoded(whole.embeddings, damaged.sentence)
        targets = torch.full_like(tokens.ids, -100)
        targets[:, :-1] = tokens.ids[:, 1:].masked_fill(tokens.mask[:, 1:] == 0, -100)
        value: Tensor = self.predict(Encoded(damaged.sentence, states, states, replace(tokens, targets=targets)))
        return value

    def notices(self) -> list[str]:
        """Return a warning, once, if the checkpoint has no prediction head."""
        return self.predict.notices()

    def _decoded(self, states: Tensor, vectors: Tensor) -> Tensor:
        """Return (B, L, D) last states of the decoder, with causal attention."""
        backbone = self._backbone[0]
        length = states.shape[1]
        before = torch.ones(length, length, dtype=torch.bool, device=states.device).tril()[None, None]
        with modes_kept(backbone):
            backbone.encoder.train(self.training)
            for block, cross in zip(backbone.encoder.layer, self.cross, strict=True):
                attended = block.attention(states, before.expand(len(states), -1, -1, -1))[0]
                states = block.feed_forward_chunk(cross(attended, None, vectors.unsqueeze(1))[0])
        return states


def _cross_attention(block: Any, config: Any) -> nn.Module:
    """Return a fresh cross-attention of the same type as a block's attention."""
    made: nn.Module = type(block.attention)(config, is_cross_attention=True)
    for part in made.modules():
        if isinstance(part, nn.Linear):
            nn.init.normal_(part.weight, std=float(config.initializer_range))
            nn.init.zeros_(part.bias)
    return made
