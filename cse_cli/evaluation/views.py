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
from registry.encoders.backbone import modes_kept
from registry.errors import CseError, MissingError
from registry.tokens import Embedded, Encoded
from registry.types import Encoder, dropout_rate

SEED = 0
"""Of everything augmenters draw at evaluation: a score is the same every time."""


@dataclass
class EvaluationStep:
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


def encode_view(
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
    name, plan = view
    missing = sorted({plan.column, *plan.side} - set(columns))
    if missing:
        raise MissingError(f"the view reads column {', '.join(missing)}, which is not there", "add it to the data")
    place = next((p.device for p in encoder.parameters()), torch.device("cpu"))
    own = [place] if place.type == "cuda" else []  # unnamed, all of a machine's devices would be asked
    seed = zlib.crc32(name.encode()) if training else SEED
    rng, alike, step = Random(seed), Random(SEED), EvaluationStep(torch.Generator().manual_seed(seed))
    vectors = []
    mode = _in_training(encoder) if training else nullcontext()
    with torch.random.fork_rng(devices=own), torch.no_grad(), mode, dropout_rate(encoder, plan.dropout):
        torch.manual_seed(seed)
        for start in range(0, len(columns[plan.column]), batch_size):
            batch = {column: cells[start : start + batch_size] for column, cells in columns.items()}
            tokens = plan.vocabulary.assemble(plan.pieces(batch[plan.column], rng, alike, max_length))
            side = {column: known.pad(known.ids(batch[column], max_length)) for column, known in plan.side.items()}
            tokens = replace(tokens, side=side).to(place)
            for augmenter in plan.augmenters:
                tokens = augmenter.on_tokens(tokens, step)
            embedded = Embedded(tokens, encoder.embed(tokens))
            for augmenter in plan.augmenters:
                embedded = augmenter.on_embeddings(embedded, name, step)
            if training:
                vectors.append(encoder.encode(embedded.tokens, embedded.vectors).at_least_single().sentence)
            else:
                vectors.append(encoder.represent(embedded.tokens, embedded.vectors))
    return torch.cat(vectors)


@contextmanager
def _in_training(encoder: Encoder) -> Iterator[None]:
    """Switch training mode on; afterwards put back modes and buffers, such as running statistics."""
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
