"""Words as a `Vocabulary`: white space and punctuation cut a sentence, and unknown words are passed over."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import torch

from registry.tokens import Pieces, Sample, Tokens

_PARTS = re.compile(r"\w+|[^\w\s]")


class WordVocabulary:
    """The words of a file of word vectors.

    A sentence is cut at white space. A piece that is a word of the vocabulary stays whole ("U.S.", "n't"); any other is
    cut into runs of letters and digits and single punctuation marks, and those of them that are unknown are left out.

    Args:
        words: Words, each once; id 0 pads, word i has id i + 1.
        lower: Lower-case sentences first, for vectors whose words are.
    """

    def __init__(self, words: Sequence[str], lower: bool) -> None:
        self.words = tuple(words)
        self.lower = lower

    @cached_property
    def fingerprint(self) -> str:
        """Digest of words and case."""
        total = hashlib.sha256(f"{self.lower}".encode())
        for word in self.words:
            total.update(b"\n" + word.encode())
        return total.hexdigest()[:16]

    @property
    def size(self) -> int:
        """Number of ids."""
        return len(self.words) + 1

    @property
    def specials(self) -> frozenset[int]:
        """The padding alone."""
        return frozenset({0})

    @property
    def mask(self) -> int | None:
        """There is none."""
        return None

    def ids(self, texts: Sequence[str], max_length: int) -> list[list[int]]:
        """Return the ids of known words, at most `max_length` of them; none for a sentence of unknown words."""
        return [list(self._known(text))[:max_length] for text in texts]

    def pad(self, rows: Sequence[Sequence[int]]) -> Tokens:
        """Return single sentences padded to the longest, which may be 0."""
        return self.assemble([Pieces(tuple(row)) for row in rows])

    def pieces(self, samples: Sequence[Sample], max_length: int) -> list[Pieces]:
        """Return samples as ids, each side of a pair cut to `max_length`."""
        found = []
        for sample in samples:
            first = tuple(self._known(sample.text))[:max_length]
            second = None if sample.pair is None else tuple(self._known(sample.pair))[:max_length]
            found.append(Pieces(first, second, sample.label))
        return found

    def assemble(self, pieces: Sequence[Pieces]) -> Tokens:
        """Return padded tokens; the sides of a pair stand one after the other, the second with segment 1."""
        rows = [[*piece.first, *(piece.second or ())] for piece in pieces]
        length = max(map(len, rows), default=0)
        ids = torch.zeros(len(rows), length, dtype=torch.long)
        mask, types = torch.zeros_like(ids), torch.zeros_like(ids)
        for place, (row, piece) in enumerate(zip(rows, pieces, strict=True)):
            ids[place, : len(row)] = torch.tensor(row, dtype=torch.long)
            mask[place, : len(row)] = 1
            types[place, len(piece.first) : len(row)] = 1
        tokens = Tokens(ids, mask, types, torch.arange(length).repeat(len(rows), 1))
        labels = [piece.label for piece in pieces if piece.label is not None]
        return tokens if len(labels) < len(pieces) or not labels else replace(tokens, labels=torch.tensor(labels))

    def tokens(self, samples: Sequence[Sample], max_length: int) -> Tokens:
        """Tokenise samples: `assemble` of `pieces`."""
        return self.assemble(self.pieces(samples, max_length))

    @cached_property
    def _places(self) -> dict[str, int]:
        return {word: place for place, word in enumerate(self.words, start=1)}

    def _known(self, text: str) -> Iterator[int]:
        for piece in (text.lower() if self.lower else text).split():
            if piece in self._places:
                yield self._places[piece]
            else:
                yield from (self._places[part] for part in _PARTS.findall(piece) if part in self._places)
