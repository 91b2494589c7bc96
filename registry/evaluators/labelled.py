"""Labelled sentences, read as SentEval reads and orders them, and the vectors a classifier sees. Registers nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from registry import catalogue
from registry.errors import CseError
from registry.evaluators.folds import Rows
from registry.evaluators.sts import one_line
from registry.types import Encode


@dataclass(frozen=True)
class Labelled:
    """All rows of a data set, split after split.

    Args:
        name: Of the data set.
        splits: Split → its row numbers.
        labels: One a row.
        texts: The sentences of each row: one, or the two of a pair; may be empty.
    """

    name: str
    splits: Mapping[str, Rows]
    labels: Sequence[str]
    texts: Sequence[tuple[str, ...]]

    @cached_property
    def classes(self) -> Rows:
        """The number of each row's class."""
        return np.unique(np.array(self.labels), return_inverse=True)[1].astype(np.int64)

    def features(self, encode: Encode) -> Tensor:
        """Return (n, D) vectors of single sentences, (n, 2D) of pairs: |u − v| beside u ∘ v. NaN becomes 0."""
        sides = list(zip(*self.texts, strict=True))
        vectors = encode([text for side in sides for text in side]).float().nan_to_num()
        if len(sides) == 1:
            return vectors
        left, right = vectors.chunk(2)
        return torch.cat([(left - right).abs(), left * right], dim=1)


def read_labelled(name: str) -> Labelled:
    """Return every split of a labelled data set, each by number of words and label: folds depend on the order.

    Raises:
        CseError: All labels of a split are the same.
        MissingError: The data set is not on this machine and cannot be fetched.
    """
    splits, labels, texts, start = {}, [], [], 0
    for split in catalogue.entry(name).splits:
        rows = sorted(_rows(name, split), key=lambda row: ([len(text.split()) for text in row[1]], row[0]))
        if len({label for label, _ in rows}) < 2:
            found = f"all {len(rows)} rows have the label '{rows[0][0]}'" if rows else "there are no rows"
            raise CseError(
                f"{name}/{split}: {found}: nothing to tell apart", "fetch the data again: it is cut or changed"
            )
        splits[split] = np.arange(start, start + len(rows))
        labels += [label for label, _ in rows]
        texts += [text for _, text in rows]
        start += len(rows)
    return Labelled(name, splits, labels, texts)


def _rows(name: str, split: str) -> list[tuple[str, tuple[str, ...]]]:
    return [
        (row["label"], tuple(one_line(cell) for column, cell in row.items() if column != "label"))
        for row in catalogue.open_text(name, split)
    ]
