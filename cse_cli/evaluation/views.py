"""Sentences → vectors through a view: changed as its augmenters change them in training, then encoded."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from random import Random

import torch
from torch import Tensor

from cse_cli.data.batches import ViewPlan
from registry.encoders.ema import modes_kept
from registry.errors import CseError, MissingError
from registry.tokens import Embedded, Encoded, Sample, Tokens
from registry.types import Encoder

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
    training: bool = False,
) -> Tensor:
    """Return (n, D) vectors on the encoder's device, without gradient, row i for cell i.

    In training mode they are those that losses compare: dropout on, the pooling and the heads of training. Then each
    view draws numbers of its own, for two views that differ by their dropout masks alone would otherwise be one.
    Modes, buffers and random streams are afterwards as they were.

    Raises:
        MissingError: A column the view reads is missing.
    """
    plan = view[1]
    missing = sorted({plan.column, *plan.side} - set(columns))
    if missing:
        raise MissingError(f"the view reads column {', '.join(missing)}, which is not there", "add it to the data")
    place = next((p.device for p in encoder.parameters()), torch.device("cpu"))
    own = [place] if place.type == "cuda" else []  # unnamed, all of a machine's devices would be asked
    seed = zlib.crc32(view[0].encode()) if training else SEED
    rng, step = Random(seed), Still(torch.Generator().manual_seed(seed))
    made = []
    with torch.random.fork_rng(devices=own), torch.no_grad(), _in_training(encoder) if training else nullcontext():
        torch.manual_seed(seed)
        for start in range(0, len(columns[plan.column]), batch_size):
            batch = {column: cells[start : start + batch_size] for column, cells in columns.items()}
            embedded = _embedded(encoder, view, _tokens(plan, batch, rng, max_length).to(place), step)
            made.append(_vectors(encoder, embedded, training))
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


def _embedded(encoder: Encoder, view: tuple[str, ViewPlan], tokens: Tokens, step: Still) -> Embedded:
    name, plan = view
    for augmenter in plan.augmenters:
        tokens = augmenter.on_tokens(tokens, step)
    embedded = Embedded(tokens, encoder.embed(tokens))
    for augmenter in plan.augmenters:
        embedded = augmenter.on_embeddings(embedded, name, step)
    return embedded


def _vectors(encoder: Encoder, embedded: Embedded, training: bool) -> Tensor:
    if training:
        return encoder.encode(embedded.tokens, embedded.vectors).at_least_single().sentence
    return encoder.represent(embedded.tokens, embedded.vectors)


@contextmanager
def _in_training(encoder: Encoder) -> Iterator[None]:
    """Switch training mode on; put modes back, and what it keeps count of, such as running statistics."""
    kept = [
        (module, name, buffer, buffer.clone())
        for module in encoder.modules()
        for name, buffer in module.named_buffers(recurse=False)
    ]
    with modes_kept(encoder):
        encoder.train()
        try:
            yield
        finally:
            for module, name, buffer, value in kept:
                setattr(module, name, buffer.copy_(value))
