"""A hub model's tokenizer as a `Vocabulary`: text → ids → padded tokens."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from registry.errors import CseError
from registry.models import load_tokenizer
from registry.tokens import Pieces, Sample, Tokens


@dataclass(frozen=True)
class _Frame:
    """Special tokens around the sides of a text, and the segment of every place.

    Args:
        before: Before each side, and after the last: ids and segments.
        sides: Segment of each side.
    """

    before: tuple[tuple[tuple[int, int], ...], ...]
    sides: tuple[int, ...]

    def around(self, sides: Sequence[Sequence[int]]) -> tuple[list[int], list[int]]:
        """Return ids and segments of a whole row."""
        row: list[tuple[int, int]] = [*self.before[0]]
        for side, segment, after in zip(sides, self.sides, self.before[1:], strict=True):
            row += [(piece, segment) for piece in side]
            row += after
        return [piece for piece, _ in row], [segment for _, segment in row]


def _frame(encoding: Any) -> _Frame:
    """Read a frame off an encoding made by the tokenizer itself."""
    before: list[list[tuple[int, int]]] = [[]]
    sides: list[int] = []
    last = None
    for piece, segment, side in zip(encoding.ids, encoding.type_ids, encoding.sequence_ids, strict=True):
        if side is None:
            before[-1].append((piece, segment))
        elif side != last:
            sides.append(segment)
            before.append([])
        last = side if side is not None else last
    return _Frame(tuple(map(tuple, before)), tuple(sides))


def _cut_together(
    first: tuple[int, ...], second: tuple[int, ...], room: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return both sides cut until they fit `room` together, the longer one first."""
    extra = len(first) + len(second) - room
    while extra > 0:
        if len(first) > len(second):
            first = first[:-1]
        else:
            second = second[:-1]
        extra -= 1
    return first, second


class HubVocabulary:
    """The tokenizer of a model, loaded at first use; pickles as its name.

    Args:
        model: Name or directory, as `registry.models.locate` takes it.
    """

    def __init__(self, model: str) -> None:
        self.model = model

    def __reduce__(self) -> tuple[type[HubVocabulary], tuple[str]]:
        return type(self), (self.model,)

    @cached_property
    def tokenizer(self) -> Any:
        """The transformers tokenizer."""
        return load_tokenizer(self.model)

    @cached_property
    def fingerprint(self) -> str:
        """Digest of the tokenizer's serialised form."""
        settings = f"{self._backend.to_str()}|{self._pad}|{self._segments}"
        return hashlib.sha256(settings.encode()).hexdigest()[:16]

    def ids(self, texts: Sequence[str], max_length: int) -> list[list[int]]:
        """Return token ids of single sentences, specials included, truncated to `max_length`."""
        self._backend.enable_truncation(max_length)
        try:
            return [encoding.ids for encoding in self._backend.encode_batch_fast(list(texts))]
        finally:
            self._backend.no_truncation()

    def pad(self, rows: Sequence[Sequence[int]]) -> Tokens:
        """Return single sentences padded to the longest."""
        return self._padded(rows, [[0] * len(row) for row in rows])

    @property
    def size(self) -> int:
        """Number of ids."""
        return len(self.tokenizer)

    @cached_property
    def specials(self) -> frozenset[int]:
        """Ids that stand for no text."""
        return frozenset(self.tokenizer.all_special_ids)

    @property
    def mask(self) -> int | None:
        """The id of [MASK], where there is one."""
        found = self.tokenizer.mask_token_id
        return None if found is None else int(found)

    def pieces(self, samples: Sequence[Sample], max_length: int) -> list[Pieces]:
        """Return samples as sub-words: each side of a pair fits `max_length` with the specials of a single sentence.

        A pair of one sentence with itself so holds exactly the single sentence's sub-words, twice.
        """
        texts = [text for sample in samples for text in (sample.text, sample.pair) if text is not None]
        encoded = iter(self._backend.encode_batch_fast(texts, add_special_tokens=False))
        room = max_length - self._backend.num_special_tokens_to_add(is_pair=False)
        found = []
        for sample in samples:
            first = tuple(next(encoded).ids)
            second = None if sample.pair is None else tuple(next(encoded).ids)
            if sample.joint and second is not None:
                first, second = _cut_together(
                    first, second, 2 * max_length - self._backend.num_special_tokens_to_add(is_pair=True)
                )
            else:
                first, second = first[:room], None if second is None else second[:room]
            found.append(Pieces(first, second, sample.label))
        return found

    def assemble(self, pieces: Sequence[Pieces]) -> Tokens:
        """Return padded tokens with the model's own special tokens and segments around sentences and pairs."""
        single, pair = self._frames
        rows, types = [], []
        for piece in pieces:
            sides = (piece.first,) if piece.second is None else (piece.first, piece.second)
            ids, segments = (single if len(sides) == 1 else pair).around(sides)
            rows.append(ids)
            types.append(segments if self._segments else [0] * len(ids))
        padded = self._padded(rows, types)
        labels = [piece.label for piece in pieces if piece.label is not None]
        return padded if len(labels) < len(pieces) else replace(padded, labels=torch.tensor(labels))

    def tokens(self, samples: Sequence[Sample], max_length: int) -> Tokens:
        """Tokenise samples: `assemble` of `pieces`."""
        return self.assemble(self.pieces(samples, max_length))

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text the ids stand for, specials included, for people to check."""
        return str(self.tokenizer.decode(list(ids)))

    @cached_property
    def _backend(self) -> Any:
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise CseError(
                f"the tokenizer of model {self.model!r} has no tokenizers backend", "convert it to a tokenizer.json"
            )
        backend.no_padding()
        backend.no_truncation()
        return backend

    @cached_property
    def _pad(self) -> int:
        pad = self.tokenizer.pad_token_id
        return 0 if pad is None else int(pad)

    @cached_property
    def _segments(self) -> bool:
        return "token_type_ids" in self.tokenizer.model_input_names

    @cached_property
    def _frames(self) -> tuple[_Frame, _Frame]:
        """What stands around one sentence and around a pair."""
        return _frame(self._backend.encode("a")), _frame(self._backend.encode("a", "b"))

    def _padded(self, rows: Sequence[Sequence[int]], types: Sequence[Sequence[int]]) -> Tokens:
        length = max(map(len, rows), default=0)
        ids = [[*row, *[self._pad] * (length - len(row))] for row in rows]
        segments = [[*row, *[0] * (length - len(row))] for row in types]
        mask = [[1] * len(row) + [0] * (length - len(row)) for row in rows]
        shape = (len(rows), length)
        return Tokens(
            ids=torch.tensor(ids, dtype=torch.long).reshape(shape),
            mask=torch.tensor(mask, dtype=torch.long).reshape(shape),
            types=torch.tensor(segments, dtype=torch.long).reshape(shape),
            positions=torch.arange(length).repeat(len(rows), 1),
        )
