"""The unlabelled sentences that an encoder is adjusted to, chunk by chunk. Registers nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

from registry import catalogue
from registry.types import Encode

TARGET = "target"
"""Stands for the evaluator's own sentences."""

CHUNK = 8192
"""Sentences held at a time, so that a corpus of any size fits."""


@dataclass(frozen=True)
class FitData:
    """Where the sentences come from.

    Args:
        dataset: Name in the data catalogue, or "target".
        split: Split of the data set.
        columns: Columns of it that hold sentences, read row by row.
        limit: Sentences at most, the first ones.
    """

    dataset: str
    split: str = "train"
    columns: tuple[str, ...] = ("text",)
    limit: int | None = None

    def demand(self) -> None:
        """Check that the data set is here and has the columns, before anything is encoded.

        Raises:
            UnknownNameError: No such data set, split or column.
            MissingError: It is not on this machine and cannot be fetched.
        """
        if self.dataset != TARGET:
            catalogue.locate(self.dataset, self.split).demand(self.columns)

    def fingerprints(self) -> dict[str, str]:
        """Return "dataset/split" → content digest; nothing for an evaluator's own sentences."""
        if self.dataset == TARGET:
            return {}
        return {f"{self.dataset}/{self.split}": catalogue.fingerprint(self.dataset, self.split)}

    def vectors(self, encode: Encode, target: Sequence[str]) -> Iterator[Tensor]:
        """Yield (n, D) vectors of the sentences, n ≤ `CHUNK`, in order.

        Args:
            encode: Makes the vectors.
            target: The evaluator's own sentences.
        """
        sentences = islice(self._sentences(target), self.limit)
        while chunk := list(islice(sentences, CHUNK)):
            with torch.inference_mode(False):
                copied = encode(chunk).clone()  # evaluation's own tensors cannot be trained on
            yield copied

    def _sentences(self, target: Sequence[str]) -> Iterator[str]:
        if self.dataset == TARGET:
            yield from target
            return
        for row in catalogue.open_text(self.dataset, self.split):
            yield from (row[column] for column in self.columns)
