"""Small parts around replaced token detection: a generator and a discriminator that say what a test wants."""

import torch
from torch import nn

from registry.encoders.transformer import TransformerEncoder
from registry.losses.replaced_token_detection import ReplacedTokenDetection
from registry.tokens import Encoded, Tokens
from tests.support.tiny import SPECIALS, WORDS, sentences, tiny_bert, with_prediction_head

SIZE = len(SPECIALS) + len(WORDS)
ANCHOR, POSITIVE = [[2, 10, 11, 3], [2, 12, 3]], [[2, 10, 11, 3], [2, 12, 3]]


class Says(nn.Module):
    """A generator that wants the given ids."""

    def __init__(self, ids):
        super().__init__()
        self.ids = ids

    def forward(self, ids, tokens):
        return nn.functional.one_hot(self.ids, SIZE).float() * 20.0


class Scores(nn.Module):
    """A discriminator with given scores; remembers what it was shown."""

    def __init__(self, scores):
        super().__init__()
        self.scores = scores

    def require_width(self, width):
        pass

    def forward(self, tokens, first):
        self.seen = tokens, first
        return self.scores


def parts(folder, encoder=None, **params):
    model = with_prediction_head(tiny_bert(folder))
    encoder = TransformerEncoder(str(model), **(encoder or {}))
    return encoder, ReplacedTokenDetection(str(model), str(model), encoder, **params)


def encoded(encoder, count=3, seed=0):
    tokens = encoder.vocabulary.pad(encoder.vocabulary.ids(sentences(count, seed), 32))
    return encoder.encode(tokens, encoder.embed(tokens))


def view(rows, width=16):
    length = max(map(len, rows))
    ids = torch.tensor([[*row, *[0] * (length - len(row))] for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (length - len(row)) for row in rows])
    tokens = Tokens(ids, mask, torch.zeros_like(ids), torch.arange(length).expand(ids.shape))
    vectors = torch.randn(*ids.shape, width)
    return Encoded(vectors.mean(dim=1).requires_grad_(), vectors, vectors, tokens)
