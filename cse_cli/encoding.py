"""Sentences → vectors, for evaluation: each distinct sentence once, by length, in bounded memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from cse_cli.data import ViewPlan
from cse_cli.devices import Compute
from cse_cli.through import vectors_through
from registry.errors import CseError, suggestion
from registry.types import Encoder


class SentenceEncoder:
    """An `Encode` that runs one encoder.

    Args:
        encoder: Whose `represent` makes the vectors.
        compute: Device and precision.
        batch_size: Sentences a batch.
        max_length: Tokens a sentence is cut to; the encoder's own limit where that is less.
        plans: View → how it is made, for evaluators that look through one.
    """

    def __init__(
        self,
        encoder: Encoder,
        compute: Compute,
        batch_size: int,
        max_length: int,
        plans: Mapping[str, ViewPlan] | None = None,
    ) -> None:
        self.encoder = encoder
        self.compute = compute
        self.batch_size = batch_size
        self.max_length = min(max_length, encoder.max_length or max_length)
        self.plans = plans or {}

    @torch.inference_mode()
    def __call__(self, sentences: Sequence[str]) -> Tensor:
        """Return (n, D) float32 on the CPU; equal sentences get equal vectors."""
        if not sentences:
            return torch.empty(0, self.encoder.dim)
        places = {sentence: place for place, sentence in enumerate(dict.fromkeys(sentences))}
        rows = self.encoder.vocabulary.ids(list(places), self.max_length)
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        made: list[Tensor] = []
        for start in range(0, len(order), self.batch_size):
            tokens = self.encoder.vocabulary.pad([rows[i] for i in order[start : start + self.batch_size]])
            with self.compute.autocast():
                made.append(self.encoder.represent(tokens.to(self.compute.device)).float().cpu())
        together = torch.cat(made)
        vectors = torch.empty_like(together)
        vectors[torch.tensor(order)] = together
        return vectors[torch.tensor([places[sentence] for sentence in sentences])]

    def through(self, view: str, columns: Mapping[str, Sequence[str]]) -> Tensor:
        """Return the same for sentences changed by a view's augmenters, in batches in the order given."""
        if view not in self.plans:
            known = f" Known: {', '.join(self.plans)}." if self.plans else " This model has none."
            raise CseError(f"unknown view '{view}'.{suggestion(view, self.plans)}{known}", "name a view of the recipe")
        with self.compute.autocast():
            named = (view, self.plans[view])
            made = vectors_through(self.encoder, named, columns, self.batch_size, self.max_length)
        return made.float().cpu()
