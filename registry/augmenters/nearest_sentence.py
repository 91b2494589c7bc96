"""CARDS' hard negatives: sentences of a corpus that lie nearest to those of the batch."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import islice
from random import Random
from typing import Annotated, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from registry import AUGMENTERS, catalogue
from registry.errors import CseError
from registry.tokens import Sample
from registry.types import Augmenter, DatasetName, Encoder, Tune

Count = Annotated[int, Field(ge=1)]

ROWS = 65_536
"""Vectors of the index compared at a time."""
BATCH = 256
"""Sentences encoded at a time, by length."""


@AUGMENTERS.register("nearest_sentence")
class NearestSentence(Augmenter, nn.Module):
    """Put in a sentence's place one of a corpus that is near to it by cosine, but not the same text.

    One of the `neighbours` nearest is drawn evenly, the `skip` very nearest left out. Nearness is that of the view's
    encoder as it was before training, as evaluation uses it: its copy makes, before the first step, one vector of each
    distinct sentence of the corpus (the index, N × D in half precision on a GPU, else single), and at each step those
    of the batch. Given to a loss as `hard`, these are negatives that all sentences of the batch share, encoded anew at
    each step, with gradient, by the encoder as it is now.

    Every process makes the index by itself; a resumed run makes the same again, and checkpoints hold nothing of it.

    Source: CARDS (Wang et al. 2022) and its code. Doubtful and settled in methods/cards.md: neighbours are those of the
    untrained encoder to the end (CA1), the nearest may say the same (CA2 → `skip`), exact duplicates (CA3).

    Args:
        dataset: The corpus: mostly the training text.
        split: Split of it.
        searched: Column of it that is searched.
        neighbours: Of how many nearest sentences one is drawn.
        skip: How many of the very nearest are left out.
        limit: Rows of the corpus at most, the first ones; all if left out.
        max_length: Tokens that a sentence is cut to for the index, specials included.

    Raises:
        CseError: The corpus has too few distinct sentences.
    """

    stateful: ClassVar[bool] = False

    def __init__(
        self,
        dataset: DatasetName,
        split: str = "train",
        searched: str = "text",
        neighbours: Annotated[int, Field(ge=1), Tune(1, 100, log=True)] = 65,
        skip: Annotated[int, Field(ge=0)] = 0,
        limit: Count | None = None,
        max_length: Annotated[int, Field(ge=2)] = 32,
    ) -> None:
        super().__init__()
        self.dataset, self.split, self.searched, self.limit = dataset, split, searched, limit
        self.neighbours, self.skip, self.max_length = neighbours, skip, max_length
        catalogue.locate(dataset, split).require((searched,))
        self._index: Index | None = None

    def bind(self, encoder: Encoder) -> None:
        """Copy the encoder as it is before training."""
        self.encoder = copy.deepcopy(encoder, {id(encoder.vocabulary): encoder.vocabulary})
        self.encoder.requires_grad_(False).eval()

    def on_text(self, samples: list[Sample], rng: Random) -> list[Sample]:
        """Return a near sentence in place of each; a second segment goes."""
        if self._index is None:
            self._index = self._made()
        texts = [sample.text for sample in samples]
        near = self._index.nearest(texts, self._vectors(texts), self.skip + self.neighbours)
        chosen = [rng.choice(row[self.skip :]) for row in near]
        return [Sample(text, label=sample.label) for text, sample in zip(chosen, samples, strict=True)]

    def _made(self) -> Index:
        rows = islice(catalogue.open_text(self.dataset, self.split), self.limit)
        texts = list(dict.fromkeys(row[self.searched] for row in rows))
        least = self.skip + self.neighbours + 1
        if len(texts) < least:
            raise CseError(
                f"nearest_sentence: {self.dataset}/{self.split} has {len(texts)} distinct sentences, but {least} are "
                f"needed: neighbours = {self.neighbours}, skip = {self.skip} and the sentence itself",
                "lower neighbours, or search a larger corpus",
            )
        return Index(texts, self._vectors(texts))

    @torch.no_grad()
    def _vectors(self, texts: Sequence[str]) -> Tensor:
        """Return (n, D) unit vectors, in half precision on a GPU."""
        vocabulary = self.encoder.vocabulary
        device = next(self.encoder.parameters()).device
        rows = vocabulary.ids(texts, self.max_length)
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        made: list[Tensor] = []
        for start in range(0, len(order), BATCH):
            tokens = vocabulary.pad([rows[i] for i in order[start : start + BATCH]]).to(device)
            vectors = F.normalize(self.encoder.represent(tokens).float(), dim=-1, eps=1e-8)
            made.append(vectors.half() if vectors.is_cuda else vectors)
        back = torch.empty(len(order), dtype=torch.long)
        back[torch.tensor(order, dtype=torch.long)] = torch.arange(len(order))
        return torch.cat(made)[back.to(device)]


class Index:
    """Distinct sentences and their vectors.

    Args:
        texts: N sentences, no two alike.
        vectors: (N, D) of length 1.
    """

    def __init__(self, texts: Sequence[str], vectors: Tensor) -> None:
        self.texts, self.vectors = texts, vectors
        self._places = {text: place for place, text in enumerate(texts)}

    def nearest(self, texts: Sequence[str], queries: Tensor, count: int) -> list[list[str]]:
        """Return for each query the `count` nearest sentences with another text than its own, nearest first.

        Args:
            texts: n texts.
            queries: (n, D) their vectors.
            count: Less than N.
        """
        own = torch.tensor([self._places.get(text, -1) for text in texts], device=queries.device).unsqueeze(1)
        best = queries.new_full((len(texts), 0), -torch.inf)
        found = own.new_zeros((len(texts), 0))
        for start in range(0, len(self.vectors), ROWS):
            cosines = queries @ self.vectors[start : start + ROWS].T
            rows = torch.arange(start, start + cosines.shape[1], device=own.device).expand_as(cosines)
            cosines = cosines.masked_fill(rows == own, -torch.inf)
            best, order = torch.cat([best, cosines], dim=1).topk(min(count, best.shape[1] + cosines.shape[1]), dim=1)
            found = torch.cat([found, rows], dim=1).gather(1, order)
        return [[self.texts[place] for place in row] for row in found.tolist()]
