"""Sentences that are points, and pairs of them served in place of a data set: for evaluators of the space."""

import math

import torch

from registry.resources import catalog
from registry.resources.catalog import Pair


class Points:
    """An `Encode` with a given vector for each sentence, double or not."""

    def __init__(self, vectors):
        self.vectors = {text: torch.as_tensor(vector, dtype=torch.float64) for text, vector in vectors.items()}

    def __call__(self, sentences, side=None, prompts=()):
        return torch.stack([self.vectors[sentence] for sentence in sentences])


ANGLES = {"a": 0, "b": 10, "c": 25, "d": 50, "e": 85, "f": 120}
PAIRS = [
    Pair("one", 5.0, "a", "b"),
    Pair("one", 3.0, "a", "d"),
    Pair("one", 4.0, "a", "c"),
    Pair("two", 2.0, "b", "f"),
    Pair("two", 1.0, "d", "e"),
]
"""Pairs of sentences at these angles."""


def on_circle(**degrees):
    return Points({text: [math.cos(math.radians(at)), math.sin(math.radians(at))] for text, at in degrees.items()})


by_angle = on_circle(**ANGLES)


def serve(monkeypatch, rows):
    """Serve pairs in place of every data set's; return a list of what is asked for."""
    asked = []
    monkeypatch.setattr(catalog, "read_pairs", lambda dataset, split: asked.append((dataset, split)) or rows)
    monkeypatch.setattr(catalog, "fingerprint", lambda dataset, split: f"digest of {dataset} {split}")
    return asked


def scattered(count, width, seed=0):
    """Return an `Encode` of sentences "0", "1", … drawn around one direction, as those of language models are."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(count, width, generator=generator, dtype=torch.float64) + 1
    return Points({str(place): row for place, row in enumerate(rows)})
