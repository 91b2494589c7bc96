"""Embeddings of sentences that a view's augmenters have changed as in training."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from random import Random

import torch
from torch import Tensor

from cse_cli.data.batches import ViewSpec
from registry.accelerators import kept_randomness
from registry.dropout import dropout_rate
from registry.encoders.backbone import modes_kept
from registry.errors import CseError, MissingError
from registry.tokens import Embedded, Encoded
from registry.types import Encoder

SEED = 0
"""Seed of the augmenters at evaluation, so a score is always the same."""


@dataclass
class EvaluationStep:
    """A step outside training, without a loss or other views."""

    generator: torch.Generator
    index: int = 0
    total: int = 1
    embedded: Mapping[str, Embedded] = field(default_factory=dict)
    views: Mapping[str, Encoded] = field(default_factory=dict)

    def gradient(self, view: str) -> Tensor:
        """Raise an error because evaluation has no gradient."""
        raise CseError(
            f"view '{view}' needs a gradient, which exists only in training",
            "evaluate a view without adversarial augmenters",
            code="evaluate.view_needs_training",
        )

    def sentences(self, view: str) -> Tensor:
        """Raise an error because no other view is encoded."""
        raise CseError(
            f"view '{view}' has embeddings only in training",
            "evaluate a view whose augmenters do not read other views",
            code="evaluate.view_needs_training",
        )


def encode_view(
    encoder: Encoder,
    view: tuple[str, ViewSpec],
    columns: Mapping[str, Sequence[str]],
    batch_size: int,
    max_length: int,
    training: bool = False,
) -> Tensor:
    """Return embeddings (n, D) on the encoder's device, without gradient. Row i belongs to cell i.

    In training mode these are the embeddings that losses compare, with dropout, training's pooling and heads. Each view
    then has its own random numbers, because two views may differ only by their dropout masks. Modes, buffers and random
    states are restored afterwards.
    """
    name, spec = view
    missing = sorted({spec.column, *spec.side} - set(columns))
    if missing:
        raise MissingError(
            f"view '{name}' needs the missing column '{', '.join(missing)}'",
            "add the column to the data",
            code="evaluate.missing_column",
        )
    place = next((p.device for p in encoder.parameters()), torch.device("cpu"))
    seed = zlib.crc32(name.encode()) if training else SEED
    rng, alike, step = Random(seed), Random(SEED), EvaluationStep(torch.Generator().manual_seed(seed))
    vectors = []
    mode = _in_training(encoder) if training else nullcontext()
    with kept_randomness(place), torch.no_grad(), mode, dropout_rate(encoder, spec.dropout):
        torch.manual_seed(seed)
        for start in range(0, len(columns[spec.column]), batch_size):
            batch = {column: cells[start : start + batch_size] for column, cells in columns.items()}
            tokens = spec.vocabulary.assemble(spec.pieces(batch[spec.column], rng, alike, max_length))
            side = {column: known.pad(known.ids(batch[column], max_length)) for column, known in spec.side.items()}
            tokens = replace(tokens, side=side).to(place)
            for augmenter in spec.augmenters:
                tokens = augmenter.on_tokens(tokens, step)
            embedded = Embedded(tokens, encoder.embed(tokens))
            for augmenter in spec.augmenters:
                embedded = augmenter.on_embeddings(embedded, name, step)
            if training:
                vectors.append(encoder.encode(embedded.tokens, embedded.vectors).at_least_single().sentence)
            else:
                vectors.append(encoder.encode_for_eval(embedded.tokens, embedded.vectors))
    return torch.cat(vectors)


@contextmanager
def _in_training(encoder: Encoder) -> Iterator[None]:
    """Switch to training mode, and restore modes and buffers, such as running statistics, afterwards."""
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
