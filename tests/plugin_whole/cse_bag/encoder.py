"""Mean of trainable word embeddings, saved and opened again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from registry import ENCODERS
from registry.saving import save_encoder, weights_in
from registry.tokens import Encoded, Tokens
from registry.types import Encoder, ModelName
from registry.vocabulary import HubVocabulary


@ENCODERS.register("bag_of_words")
class BagOfWords(Encoder):
    """Average trainable embeddings of sub-words.

    Args:
        model: Model whose tokenizer splits the sentences.
        dim: Width of the embeddings.
    """

    def __init__(self, model: ModelName, dim: int = 16) -> None:
        super().__init__()
        self.vocabulary, self.dim, self.width = HubVocabulary(model), dim, dim
        self.words = nn.Embedding(self.vocabulary.size, dim)

    def embed(self, tokens: Tokens) -> Tensor:
        """Return the embeddings of the sub-words."""
        embeddings: Tensor = self.words(tokens.ids)
        return embeddings

    def encode(self, tokens: Tokens, embeddings: Tensor) -> Encoded:
        """Average the embeddings after dropout."""
        dropped = nn.functional.dropout(embeddings, 0.1, self.training)
        weights = tokens.mask[..., None].float()
        return Encoded((dropped * weights).sum(1) / weights.sum(1), embeddings, embeddings, tokens)

    @torch.no_grad()
    def encode_for_eval(self, tokens: Tokens, embeddings: Tensor | None = None) -> Tensor:
        """Return the averages without dropout."""
        weights = tokens.mask[..., None].float()
        return ((self.embed(tokens) if embeddings is None else embeddings) * weights).sum(1) / weights.sum(1)

    def export(self, folder: Path, max_length: int) -> None:
        """Write the embeddings and the tokenizer."""
        save_encoder(folder, "bag_of_words", {"dim": self.dim}, self.state_dict(), max_length, self.prompts)
        self.vocabulary.tokenizer.save_pretrained(folder)

    @classmethod
    def open(cls, folder: Path, settings: Mapping[str, Any]) -> BagOfWords:
        """Return the encoder of a directory that `export` wrote."""
        encoder = cls(str(folder), **settings)
        encoder.load_state_dict(weights_in(folder))
        return encoder
