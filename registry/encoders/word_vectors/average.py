"""The mean of a sentence's word vectors, however they were come by. Registers nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from registry.encoders.export import OWN_FORMAT, SETTINGS, drafted, write_json
from registry.encoders.pooling import masked_mean
from registry.encoders.word_vectors.vocabulary import WordVocabulary
from registry.tokens import Encoded, Tokens
from registry.types import Encoder

WORDS = "words.json"
VECTORS = "vectors.safetensors"


class WordAverage(Encoder):
    """Averages the vectors of a sentence's known words.

    Args:
        words: Words, each once.
        table: (n + 1, D) row 0 zero, row i + 1 the vector of word i.
        lower: Lower-case sentences first.
        frozen: Keep the vectors as they are.
    """

    def __init__(self, words: Sequence[str], table: Tensor, lower: bool, frozen: bool) -> None:
        super().__init__()
        self.vocabulary: WordVocabulary = WordVocabulary(words, lower)
        self.table = nn.Parameter(table, requires_grad=not frozen)
        self.dim = self.width = table.shape[1]

    def embed(self, tokens: Tokens) -> Tensor:
        """Return (B, L, D) word vectors."""
        return F.embedding(tokens.ids, self.table, padding_idx=0)

    def encode(self, tokens: Tokens, embeddings: Tensor) -> Encoded:
        """Average."""
        return Encoded(masked_mean(embeddings, tokens.mask), embeddings, embeddings, tokens)

    @torch.no_grad()
    def represent(self, tokens: Tokens, embeddings: Tensor | None = None) -> Tensor:
        """Return (B, D) the same average."""
        return masked_mean(self.embed(tokens) if embeddings is None else embeddings, tokens.mask)

    def export(self, folder: Path, max_length: int) -> None:
        """Write words and vectors in a form only cse reads: sentence-transformers cuts sentences in another way."""
        from safetensors.torch import save_file

        settings = {"schema_version": OWN_FORMAT, "format": "word_average"}
        with drafted(folder) as draft:
            write_json(draft / SETTINGS, {**settings, "lower": self.vocabulary.lower, "max_length": max_length})
            (draft / WORDS).write_text(json.dumps(self.vocabulary.words, ensure_ascii=False), encoding="utf-8")
            save_file({"table": self.table.detach().cpu().contiguous()}, draft / VECTORS)
            (draft / "README.md").write_text(_CARD, encoding="utf-8")


_CARD = """---
tags: [cse]
---
# Averages of word vectors

Only [cse](https://pypi.org/project/cse-registry/) opens this directory: `cse evaluate DIRECTORY`.
"""
