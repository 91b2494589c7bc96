"""An encoder whose vectors are given, and an `Encode` that runs any encoder."""

from __future__ import annotations

import torch

from registry.encoders.word_vectors import WordVocabulary
from registry.types import Encoder


class Given(Encoder):
    """Sentence i is the word "w<i>" and has row i of `rows` as its vector.

    Args:
        rows: (n, D).
    """

    def __init__(self, rows):
        super().__init__()
        self.dim = self.width = rows.shape[1]
        self.sentences = [f"w{place}" for place in range(len(rows))]
        self.vocabulary = WordVocabulary(self.sentences, lower=False)
        self.table = torch.nn.Parameter(rows.clone())

    def embed(self, tokens):
        return self.table[tokens.ids - 1]

    def encode_for_eval(self, tokens, embeddings=None):
        return self.embed(tokens)[:, 0].detach()


class Encoding:
    """An `Encode` as evaluation's: in inference mode, of all sentences at once."""

    def __init__(self, encoder, max_length=12):
        self.encoder = encoder
        self.max_length = max_length

    @torch.inference_mode()
    def __call__(self, sentences):
        vocabulary = self.encoder.vocabulary
        return self.encoder.encode_for_eval(vocabulary.pad(vocabulary.ids(list(sentences), self.max_length))).float()

    def encode_view(self, view, columns):
        return self(next(iter(columns.values())))
