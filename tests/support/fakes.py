"""Small real parts for tests of the step and the loop: no files, no transformers."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from registry.tokens import Encoded, Pieces, Sample, Tokens
from registry.types import Encoder


class WordVocabulary:
    """Words are numbered by their first letter."""

    fingerprint = "words"
    size = 32
    specials = frozenset({0, 1})
    mask = None

    def ids(self, texts: Sequence[str], max_length: int) -> list[list[int]]:
        return [[1, *(2 + ord(word[0]) % 20 for word in text.split())][:max_length] for text in texts]

    def pad(self, rows: Sequence[Sequence[int]]) -> Tokens:
        length = max(len(row) for row in rows)
        ids = torch.tensor([[*row, *[0] * (length - len(row))] for row in rows])
        mask = (ids != 0).long()
        return Tokens(ids, mask, torch.zeros_like(ids), torch.arange(length).expand(len(rows), length))

    def pieces(self, samples: Sequence[Sample], max_length: int) -> list[Pieces]:
        return [Pieces(tuple(row[1:]), label=s.label) for s in samples for row in self.ids([s.text], max_length)]

    def assemble(self, pieces: Sequence[Pieces]) -> Tokens:
        return self.pad([[1, *piece.first] for piece in pieces])

    def tokens(self, samples: Sequence[Sample], max_length: int) -> Tokens:
        return self.assemble(self.pieces(samples, max_length))


class FakeEncoder(Encoder):
    """Embedding → dropout → linear → masked mean; counts its passes."""

    def __init__(self, width: int = 8, dropout: float = 0.1) -> None:
        super().__init__()
        self.dim = self.width = width
        self.vocabulary = WordVocabulary()
        self.table = nn.Embedding(32, width)
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(width, width)
        self.passes = 0

    def embed(self, tokens: Tokens) -> Tensor:
        return self.table(tokens.ids)

    def encode(self, tokens: Tokens, embeddings: Tensor) -> Encoded:
        self.passes += 1
        dropped = self.dropout(embeddings)
        hidden = torch.tanh(self.linear(dropped))
        mask = tokens.mask.unsqueeze(-1).float()
        return Encoded((hidden * mask).sum(1) / mask.sum(1), dropped, hidden, tokens)

    def encode_for_eval(self, tokens: Tokens, embeddings: Tensor | None = None) -> Tensor:
        was = self.training
        self.eval()
        vectors = self.encode(tokens, self.embed(tokens) if embeddings is None else embeddings).sentence
        self.train(was)
        return vectors


def all_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a run believe that every data set that it needs, apart from the training text, is on this machine."""
    from cse_cli.data import identity, requirements
    from cse_cli.data.requirements import Availability, Requirement
    from registry.resources import catalog

    look = requirements.availability

    def available(wanted: Requirement, *, ask_hub: bool = False) -> Availability:
        text = wanted.kind != "dataset" or wanted.wanted_by == ("data.dataset",)
        return look(wanted, ask_hub=ask_hub) if text else Availability(wanted, "here")

    monkeypatch.setattr(requirements, "availability", available)
    monkeypatch.setattr(identity, "availability", available)
    monkeypatch.setattr(catalog, "fingerprint", lambda name, split: f"{name}-{split}")
