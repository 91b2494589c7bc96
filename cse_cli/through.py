"""Sentences → vectors through a view: changed as its augmenters change them in training, then represented."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

import torch
from torch import Tensor

from cse_cli.data import ViewPlan
from registry.errors import CseError, MissingError
from registry.types import Embedded, Encoded, Encoder, Sample, Tokens

SEED = 0
"""Of everything augmenters draw at evaluation: a score is the same every time."""


@dataclass
class Still:
    """A step outside training: there is no loss and no other view."""

    generator: torch.Generator
    index: int = 0
    total: int = 1
    embedded: Mapping[str, Embedded] = field(default_factory=dict)
    views: Mapping[str, Encoded] = field(default_factory=dict)

    def gradient(self, view: str) -> Tensor:
        """Refuse: nothing is minimised."""
        raise CseError(
            f"view '{view}' asks for a gradient, which only training has",
            "evaluate another view, without adversarial augmenters",
        )

    def sentences(self, view: str) -> Tensor:
        """Refuse: no view was encoded."""
        raise CseError(f"view '{view}' has no sentence vectors outside training", "evaluate another view")


def vectors_through(
    encoder: Encoder,
    view: tuple[str, ViewPlan],
    columns: Mapping[str, Sequence[str]],
    batch_size: int,
    max_length: int,
) -> Tensor:
    """Return (n, D) vectors on the encoder's device, without gradient, row i for cell i.

    Raises:
        MissingError: A column the view reads is missing.
    """
    plan = view[1]
    missing = sorted({plan.column, *plan.side} - set(columns))
    if missing:
        raise MissingError(f"the view reads column {', '.join(missing)}, which is not there", "add it to the data")
    place = next((p.device for p in encoder.parameters()), torch.device("cpu"))
    rng, step = Random(SEED), Still(torch.Generator().manual_seed(SEED))
    made = []
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(SEED)
        for start in range(0, len(columns[plan.column]), batch_size):
            batch = {column: cells[start : start + batch_size] for column, cells in columns.items()}
            made.append(_represented(encoder, view, _tokens(plan, batch, rng, max_length).to(place), step))
    return torch.cat(made)


def _tokens(plan: ViewPlan, batch: Mapping[str, Sequence[str]], rng: Random, max_length: int) -> Tokens:
    samples = [Sample(cell) for cell in batch[plan.column]]
    for augmenter in plan.augmenters:
        samples = augmenter.on_text(samples, rng)
    pieces = plan.vocabulary.pieces(samples, max_length)
    for augmenter in plan.augmenters:
        pieces = augmenter.on_pieces(pieces, rng)
    side = {
        column: vocabulary.pad(vocabulary.ids(batch[column], max_length)) for column, vocabulary in plan.side.items()
    }
    return replace(plan.vocabulary.assemble(pieces), side=side)


def _represented(encoder: Encoder, view: tuple[str, ViewPlan], tokens: Tokens, step: Still) -> Tensor:
    name, plan = view
    for augmenter in plan.augmenters:
        tokens = augmenter.on_tokens(tokens, step)
    embedded = Embedded(tokens, encoder.embed(tokens))
    for augmenter in plan.augmenters:
        embedded = augmenter.on_embeddings(embedded, name, step)
    return encoder.represent(embedded.tokens, embedded.vectors)
