"""TSDAE's loss: a decoder that sees nothing but the sentence vector writes the sentence again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from registry import LOSSES
from registry.encoders.backbone import modes_kept
from registry.errors import CseError
from registry.losses.masked_language_modelling import MaskedLanguageModelling
from registry.tokens import Encoded
from registry.types import Encoder, Loss


@LOSSES.register("reconstruction")
class Reconstruction(Loss):
    """Predict each token of the whole sentence from those before it and the sentence vector of a damaged copy.

    ℓ = −1/T Σᵢ Σₗ log p(xᵢ,ₗ₊₁ | xᵢ,₀ … xᵢ,ₗ, hᵢ), over the T tokens of all devices, [SEP] too, but each first one.
    The decoder is the encoder itself, its embeddings, blocks and word vectors, with causal attention; behind each
    block's attention stands a fresh cross-attention whose one key and value is h. A prediction head
    (`masked_language_modelling`) gives the scores. Dropout is on in training, as in the encoder.

    The view `whole` is encoded like any other, of which only what its embedding layer gives is read.

    Args:
        encoder: The encoder of both views, whose weights the decoder shares.
        initial: The prediction head at first, as in `masked_language_modelling`.

    Shapes: damaged.sentence (B, D), whole.tokens (B, L) → scores (T, V) → a scalar.

    Raises:
        CseError: The encoder's blocks are not BERT's, or its sentence vectors have another width than its states.

    Source: TSDAE (Wang, Reimers and Gurevych 2021, section 3), with all weights shared but those of cross-attention;
    its code in sentence-transformers. Settled in methods/tsdae.md: padding of the decoder (TS3).
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
                f"reconstruction: {type(encoder).__name__} has no blocks that a decoder can share",
                'name a "transformer" encoder of the BERT family',
            )
        self._backbone = (backbone,)  # in a tuple: not a sub-module
        self.cross = nn.ModuleList(_cross_attention(block, backbone.config) for block in blocks)
        self.predict = MaskedLanguageModelling(encoder, initial)

    def forward(self, damaged: Encoded, whole: Encoded) -> Tensor:
        """Return the loss of the batch."""
        if damaged.sentence.shape[1] != whole.embeddings.shape[2]:
            raise CseError(
                f"reconstruction: sentence vectors are {damaged.sentence.shape[1]} wide, the decoder's states "
                f"{whole.embeddings.shape[2]}",
                "let the view go through the encoder without heads that change the width",
            )
        tokens = whole.tokens
        states = self._decoded(whole.embeddings, damaged.sentence)
        targets = torch.full_like(tokens.ids, -100)
        targets[:, :-1] = tokens.ids[:, 1:].masked_fill(tokens.mask[:, 1:] == 0, -100)
        value: Tensor = self.predict(Encoded(damaged.sentence, states, states, replace(tokens, targets=targets)))
        return value

    def notices(self) -> list[str]:
        """Warn once that the prediction head is a fresh one because the checkpoint has none."""
        return self.predict.notices()

    def _decoded(self, states: Tensor, vectors: Tensor) -> Tensor:
        """Return (B, L, D) last states of the decoder; a token sees itself and those before it.

        Args:
            states: (B, L, D) what enters its first block.
            vectors: (B, D) what cross-attention reads.
        """
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
    """Return a fresh cross-attention of the kind of a block's own attention."""
    made: nn.Module = type(block.attention)(config, is_cross_attention=True)
    for part in made.modules():
        if isinstance(part, nn.Linear):
            nn.init.normal_(part.weight, std=float(config.initializer_range))
            nn.init.zeros_(part.bias)
    return made
