"""A hub model's tokenizer as a `Vocabulary`: text → ids → padded tokens."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch

from registry.checkpoints import load_tokenizer
from registry.errors import CseError
from registry.tokens import Sample, Tokens


class HubVocabulary:
    """The tokenizer of a model, loaded at first use; pickles as its name.

    Args:
        model: Name or directory, as `registry.checkpoints.locate` takes it.
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

    def tokens(self, samples: Sequence[Sample], max_length: int) -> Tokens:
        """Tokenise samples, pairs too: each side is truncated to `max_length` first, then the pair is built.

        A pair of one sentence with itself so holds exactly the single sentence's tokens, twice.
        """
        encodings = [self._encoding(sample, max_length) for sample in samples]
        types = [encoding.type_ids if self._segments else [0] * len(encoding.ids) for encoding in encodings]
        padded = self._padded([encoding.ids for encoding in encodings], types)
        labels = [sample.label for sample in samples if sample.label is not None]
        if len(labels) < len(samples):
            return padded
        return Tokens(padded.ids, padded.mask, padded.types, padded.positions, torch.tensor(labels))

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

    def _encoding(self, sample: Sample, max_length: int) -> Any:
        room = max_length - self._backend.num_special_tokens_to_add(is_pair=False)
        sides = []
        for text in (sample.text, sample.pair):
            if text is not None:
                side = self._backend.encode(text, add_special_tokens=False)
                side.truncate(room)
                sides.append(side)
        return self._backend.post_process(*sides)

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
