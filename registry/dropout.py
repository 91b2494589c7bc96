"""A change of the rates of all dropout modules for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def dropout_rate(encoder: nn.Module, rate: float | None) -> Iterator[None]:
    """Change the rate of all dropout modules of an encoder within this block. None changes nothing."""
    parts = [] if rate is None else [part for part in encoder.modules() if isinstance(part, nn.Dropout)]
    own = [part.p for part in parts]
    try:
        for part in parts:
            part.p = rate or 0.0
        yield
    finally:
        for part, p in zip(parts, own, strict=True):
            part.p = p
