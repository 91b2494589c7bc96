"""CARDS' hard negatives: the sentences of a corpus that are nearest to those of the batch."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import islice
from random import Random
from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from registry import AUGMENTERS
from registry.errors import CseError
from registry.poolings import masked_mean
from registry.resources import catalog
from registry.tokens import Sample, Tokens
from registry.types import Augmenter, DatasetName, Encoder, Tune

Count = Annotated[int, Field(ge=1)]

ROWS = 65_536
"""Number of index vectors compared at a time."""
BATCH = 256
"""Number of sentences encoded at a time, sorted by length."""


@AUGMENTERS.register("nearest_sentence")
class NearestSentence(Augmenter, nn.Module):
    """Replace each sentence by a similar but different sentence of a corpus.

    One of the `neighbors` nearest sentences by cosine similarity is drawn, after the `skip` nearest are excluded. The
    sentence itself is not one of them. A copy of the view's encoder before training, in evaluation mode, computes the
    similarities. Before the first step, it
    encodes the distinct sentences of the corpus into an index of N × D numbers, in half precision on a GPU and single
    precision otherwise. In each step it also encodes the batch. The drawn sentences are then encoded by the current
    encoder with gradient. As the view `hard` of a loss, they are negatives of all sentences of the batch.

    Each process computes its own index. Checkpoints do not contain it, and a resumed run computes it again.

    Source: CARDS (Wang et al. 2022) and its code (alibaba/SimCSE-with-CARDS @8e038a0): `models/bert/
    modeling_simcse.py:292-339` for the draw, `data/datasets/simcse_utils.py:249-253` for the index. Settled in
    methods/cards.md: the neighbors are always those of the untrained encoder (CA1), the nearest can have the same
    meaning (CA2 → `skip`), exact duplicates (CA3), embeddings of the index (CA7 → `pooling`), a neighbor that is
    another row's sentence (CA8).

    Args:
        dataset: Corpus, usually the training text.
        split: Split of the corpus.
        searched: Column of the corpus with the sentences.
        neighbors: Number of nearest sentences from which one is drawn, without the sentence itself.
        skip: Number of nearest sentences that are excluded.
        limit: Maximum number of rows, from the first. Default: all.
        max_length: Maximum number of tokens of a sentence in the index, with special tokens.
        pooling: Embeddings that are compared: "mean", the mean of the last layer's states over the tokens, or
            "encoder", the encoder's embeddings in evaluation.

    Raises:
        CseError: If the corpus has too few distinct sentences.

    Example:
        [views.hard]
        encoder = "online"
        augment = [{ name = "nearest_sentence", dataset = "wiki1m", neighbors = 64 }]
    """

    stateful: ClassVar[bool] = False

    def __init__(
        self,
        dataset: DatasetName,
        split: str = "train",
        searched: str = "text",
        neighbors: Annotated[int, Field(ge=1), Tune(1, 100, log=True)] = 64,
        skip: Annotated[int, Field(ge=0)] = 0,
        limit: Count | None = None,
        max_length: Annotated[int, Field(ge=2)] = 32,
        pooling: Literal["mean", "encoder"] = "mean",
    ) -> None:
        super().__init__()
        self.dataset, self.split, self.searched, self.limit = dataset, split, searched, limit
        self.neighbors, self.skip, self.max_length, self.pooling = neighbors, skip, max_length, pooling
        catalog.locate(dataset, split).require((searched,))
        self._index: Index | None = None

    def bind(self, encoder: Encoder) -> None:
        """Copy the encoder before training."""
        self.encoder = copy.deepcopy(encoder, {id(encoder.vocabulary): encoder.vocabulary})
        self.encoder.requires_grad_(False).eval()
        self.encoder.expect(hidden_read=True, mini_batch_size=None)

    def on_text(self, samples: list[Sample], rng: Random) -> list[Sample]:
        """Return a similar sentence for each sample, without second segment."""
        if self._index is None:
            self._index = self._made()
        texts = [sample.text for sample in samples]
        near = self._index.nearest(texts, self._vectors(texts), self.skip + self.neighbors)
        chosen = [rng.choice(row[self.skip :]) for row in near]
        return [Sample(text, label=sample.label) for text, sample in zip(chosen, samples, strict=True)]

    def _made(self) -> Index:
        rows = islice(catalog.open_text(self.dataset, self.split), self.limit)
        texts = list(dict.fromkeys(row[self.searched] for row in rows))
        least = self.skip + self.neighbors + 1
        if len(texts) < least:
            raise CseError(
                f"nearest_sentence: '{self.dataset}/{self.split}' has {len(texts)} distinct sentences, but neighbors = "
                f"{self.neighbors} and skip = {self.skip} need {least}",
                "lower `neighbors`, or set `dataset` to a larger corpus",
                code="augmenters.small_corpus",
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
            vectors = F.normalize(self._pooled(tokens).float(), dim=-1, eps=1e-8)
            made.append(vectors.half() if vectors.is_cuda else vectors)
        back = torch.empty(len(order), dtype=torch.long)
        back[torch.tensor(order, dtype=torch.long)] = torch.arange(len(order))
        return torch.cat(made)[back.to(device)]

    def _pooled(self, tokens: Tokens) -> Tensor:
        if self.pooling == "encoder":
            return self.encoder.encode_for_eval(tokens)
        states = self.encoder.eval().encode(tokens, self.encoder.embed(tokens)).hidden
        return masked_mean(states, tokens.mask)


class Index:
    """Distinct sentences and their embeddings.

    Args:
        texts: N distinct sentences.
        vectors: (N, D) embeddings of length 1.
    """

    def __init__(self, texts: Sequence[str], vectors: Tensor) -> None:
        self.texts, self.vectors = texts, vectors
        self._places = {text: place for place, text in enumerate(texts)}

    def nearest(self, texts: Sequence[str], queries: Tensor, count: int) -> list[list[str]]:
        """Return the `count` nearest sentences of each query, nearest first, without the query itself.

        Args:
            texts: n sentences.
            queries: (n, D) embeddings of the sentences.
            count: Number of sentences, less than N.
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
