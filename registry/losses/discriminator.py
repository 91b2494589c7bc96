"""The network that tells replaced tokens from original ones, given a sentence vector. Registers nothing."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from registry.encoders import backbone as split
from registry.encoders.blocks import padded_states, run_blocks
from registry.errors import CseError
from registry.models import load_model
from registry.tokens import Tokens


class Discriminator(nn.Module):
    """A whole second encoder with two scores a token: original, replaced.

    Args:
        model: Checkpoint it starts from.
        pads: Whether the scores of padding are wanted too; else they mean nothing.
    """

    def __init__(self, model: str, pads: bool = True) -> None:
        super().__init__()
        self.pads = pads
        self.model = model
        self.backbone = load_model(model)
        self.dropout = split.take_dropout(self.backbone)
        split.verify(self.backbone)
        self.width = int(self.backbone.embeddings.word_embeddings.embedding_dim)
        self.head = nn.Linear(int(self.backbone.config.hidden_size), 2)
        self.train()

    def demand_width(self, width: int) -> None:
        """Check that sentence vectors can stand among its token vectors.

        Raises:
            CseError: Their widths differ.
        """
        if width != self.width:
            raise CseError(
                f"sentence vectors are {width} wide, the token vectors of discriminator {self.model!r} {self.width}",
                "name a discriminator of the encoder's width, or heads that keep the width",
            )

    def forward(self, tokens: Tokens, first: Tensor) -> Tensor:
        """Return (B, L, 2).

        Args:
            tokens: What is judged.
            first: (B, W) stands in the first place, as it is: after the embedding layer's norm and dropout.
        """
        vectors = self.dropout(split.embed_layer(self.backbone, tokens))
        vectors = torch.cat([first.to(vectors.dtype).unsqueeze(1), vectors[:, 1:]], dim=1)
        states = (padded_states if self.pads else run_blocks)(self.backbone, vectors, tokens.mask, all_states=False)
        scores: Tensor = self.head(states[-1])
        return scores
