"""Vectors of sentences already encoded, in bounded memory: the evaluators of a run share many sentences."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import torch
from torch import Tensor


class Embeddings:
    """Sentence → vector. Beyond the limit the batch of sentences longest here is forgotten.

    Args:
        limit: Bytes of vectors kept.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        self._places: dict[str, tuple[int, int]] = {}
        self._blocks: dict[int, Tensor] = {}
        self._order: deque[tuple[int, tuple[str, ...]]] = deque()
        self._next = 0

    def __contains__(self, sentence: str) -> bool:
        return sentence in self._places

    def __len__(self) -> int:
        return len(self._places)

    def add(self, sentences: Sequence[str], vectors: Tensor) -> None:
        """Keep (n, D) vectors of n sentences that are not here."""
        block, self._next = self._next, self._next + 1
        self._blocks[block] = vectors
        self._order.append((block, tuple(sentences)))
        self._places |= {sentence: (block, row) for row, sentence in enumerate(sentences)}
        self.held += vectors.nbytes
        while self.held > self.limit:
            self._forget_oldest()

    def of(self, sentences: Sequence[str]) -> Tensor:
        """Return (n, D): the vectors of sentences that are all here."""
        first = self._blocks[self._places[sentences[0]][0]]
        found = torch.empty(len(sentences), first.shape[1])
        wanted: dict[int, tuple[list[int], list[int]]] = {}
        for row, sentence in enumerate(sentences):
            block, place = self._places[sentence]
            rows, places = wanted.setdefault(block, ([], []))
            rows.append(row)
            places.append(place)
        for block, (rows, places) in wanted.items():
            found[torch.tensor(rows)] = self._blocks[block][torch.tensor(places)]
        return found

    def clear(self) -> None:
        """Forget everything: the encoder has changed."""
        self._places.clear()
        self._blocks.clear()
        self._order.clear()
        self.held = 0

    def _forget_oldest(self) -> None:
        block, sentences = self._order.popleft()
        self.held -= self._blocks.pop(block).nbytes
        for sentence in sentences:
            del self._places[sentence]
