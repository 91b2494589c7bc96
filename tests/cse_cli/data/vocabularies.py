"""A vocabulary without a model: one id a word, and a count of how often it was asked."""

from __future__ import annotations

import time
import zlib
from dataclasses import replace

import torch

from registry.tokens import Pieces, Tokens
from registry.types import Augmenter


class Words:
    """[1, a number a word …, 2], cut to the length; `salt` makes another vocabulary."""

    def __init__(self, salt: str = "") -> None:
        self.salt = salt
        self.fingerprint = f"words{salt}"
        self.asked = 0

    def word(self, word: str) -> int:
        return 3 + zlib.crc32((self.salt + word).encode()) % 1000

    def room(self, max_length):
        return max_length - 2

    def ids(self, texts, max_length):
        self.asked += len(texts)
        return [[1, *[self.word(w) for w in text.split()][: max_length - 2], 2] for text in texts]

    def pad(self, rows):
        length = max(map(len, rows))
        ids = torch.tensor([[*row, *[0] * (length - len(row))] for row in rows])
        mask = (ids > 0).long()
        return Tokens(ids, mask, torch.zeros_like(ids), torch.arange(length).expand(len(rows), length))

    def pieces(self, samples, max_length):
        return [Pieces(tuple(row[1:-1])) for row in self.ids([sample.text for sample in samples], max_length)]

    def assemble(self, pieces):
        return self.pad([[1, *piece.first, 2] for piece in pieces])

    def tokens(self, samples, max_length):
        return self.assemble(self.pieces(samples, max_length))


class Stuck(Words):
    """Never comes to an end with a sentence that says so."""

    def ids(self, texts, max_length):
        if "stuck" in texts:
            time.sleep(600)
        return super().ids(texts, max_length)


class Shuffles(Augmenter):
    """Changes text by chance."""

    def on_text(self, samples, rng):
        return [replace(s, text=f"{s.text} r{rng.randrange(10**6)}") for s in samples]
