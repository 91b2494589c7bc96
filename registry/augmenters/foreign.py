"""The embedding layer of a model in another language, frozen, and nothing else of that model."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from registry.encoders import backbone as split
from registry.models import load_model
from registry.tokens import Tokens


class ForeignEmbeddings(nn.Module):
    """Token vectors of a second vocabulary.

    Args:
        model: Name or directory; its blocks are never built.
    """

    def __init__(self, model: str) -> None:
        super().__init__()
        loaded = load_model(model, embeddings_only=True)
        split.take_dropout(loaded)
        self.pad = int(loaded.config.pad_token_id or 0)
        self.embeddings = loaded.embeddings
        self.projection = _projection(loaded)
        self.projects = False
        """Whether vectors go through `projection`, which ALBERT keeps outside its embedding layer."""
        self.requires_grad_(False)

    @property
    def widths(self) -> list[int]:
        """Every width the vectors can have, the layer's own first."""
        own = int(self.embeddings.word_embeddings.embedding_dim)
        return [own] if self.projection is None else [own, int(self.projection.out_features)]

    def fit_width(self, width: int) -> bool:
        """Project or not, so that the vectors are `width` wide; False if neither gives that."""
        self.projects = width != self.widths[0]
        return width in self.widths

    @torch.no_grad()
    def forward(self, tokens: Tokens, site: str) -> Tensor:
        """Return (B, L, W): the whole layer's output ("layer") or word vectors ("word"), without dropout."""
        vectors = split.embed_words(self, tokens) if site == "word" else split.embed_layer(self, tokens)
        if self.projects and self.projection is not None:
            vectors = self.projection(vectors)
        return vectors


def _projection(model: Any) -> nn.Linear | None:
    found: nn.Linear | None = getattr(model.encoder, "embedding_hidden_mapping_in", None)
    return found if found is not None else getattr(model, "embeddings_project", None)
