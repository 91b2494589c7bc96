"""An encoder whose vectors are given, an `Encode` that runs any encoder, and an encoder that is saved and opened."""

import torch

from registry.encoders.saved import open_encoder
from registry.encoders.word_vectors import WordVocabulary
from registry.resources.models import is_native
from registry.testing.materials import PlainEncode
from registry.types import Encoder
from tests.support.tiny import sentences


def tokens_of(encoder, texts=None, length=32):
    return encoder.vocabulary.pad(encoder.vocabulary.ids(texts or sentences(), length))


def encoded(encoder, count=3, seed=0):
    tokens = tokens_of(encoder, sentences(count, seed))
    return encoder.encode(tokens, encoder.embed(tokens))


def reopened(encoder, folder, texts=None, length=12, only_here=True):
    """Save an encoder, and return it from its directory, after a look at vectors, length and who can open it."""
    encoder.export(folder, length)
    again, limit = open_encoder(str(folder))
    assert (limit, again.training, is_native(folder)) == (length, False, not only_here)
    texts = texts or sentences()
    assert torch.equal(encoding(again, length)(texts), encoding(encoder, length)(texts))
    return again


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


def encoding(encoder, max_length=12):
    """Return an `Encode` as evaluation's: in inference mode, of all sentences at once."""

    @torch.inference_mode()
    def vectors(texts):
        return encoder.encode_for_eval(tokens_of(encoder, list(texts), max_length)).float()

    return PlainEncode(vectors)


def slow_pool(pooling, states, mask):
    """Sentence by sentence, token by token."""
    found = []
    for row, real in zip(states, mask, strict=True):
        kept = [state for state, one in zip(row, real, strict=True) if one == 1]
        weights = {
            "last": [0] * (len(kept) - 1) + [1],
            "cls": [1] + [0] * (len(kept) - 1),
            "mean": [1] * len(kept),
            "weighted_mean": list(range(1, len(kept) + 1)),
        }[pooling]
        found.append(sum(w * state for w, state in zip(weights, kept, strict=True)) / sum(weights))
    return torch.stack(found)
