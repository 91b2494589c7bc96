"""Contracts of evaluators and generators.

Evaluators return their declared metrics as finite numbers, deterministically, with digests of their data. Generators
return the same rows of text in each call, and a score for each pair.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Sequence
from itertools import islice

import torch
from torch import Tensor

from registry.core import Entry
from registry.testing.materials import Materials, PlainEncode, draw, require
from registry.types import ColumnGenerator, Evaluator, Generator, RowGenerator

PAIR = {"subset", "score", "sentence1", "sentence2"}
MANY = 50


def check_evaluator(entry: Entry[Evaluator], materials: Materials) -> None:
    """Check the scores of an evaluator for a bag-of-words encoder."""
    evaluator: Evaluator = materials.build(entry)
    require(entry, evaluator.metric in evaluator.metrics, "shows one of its metrics")
    require(entry, set(evaluator.shown_metrics()) <= set(evaluator.metrics), "shows only its metrics")
    _check_suites(entry)
    first, second = (evaluator(PlainEncode(_sum_of_words)) for _ in range(2))
    require(entry, set(first) == set(evaluator.metrics), f"returns its declared metrics, not {sorted(first)}")
    require(entry, all(type(v) is float and math.isfinite(v) for v in first.values()), "returns finite floats")
    require(entry, first == second, "returns the same for the same embeddings")
    series = evaluator.series()
    require(entry, all(math.isfinite(v) for of in series.values() for v in of), "returns finite numbers for figures")
    digests = evaluator.fingerprints()
    require(entry, all("/" in name and digest for name, digest in digests.items()), "names data as dataset/split")
    require(entry, digests == evaluator.fingerprints(), "returns the same fingerprints in each call")


def _check_suites(entry: Entry[Evaluator]) -> None:
    known = entry.parameters.model_fields
    for name in {task for suite in entry.cls.suites.values() for task in suite} - {entry.name}:
        given = entry.cls.parameters_for(name)
        require(entry, given is not None and set(given) <= set(known), f"has parameters for its task '{name}'")


def _sum_of_words(sentences: Sequence[str]) -> Tensor:
    """Return the sums of fixed random vectors of the words."""
    cache: dict[str, Tensor] = {}
    rows = []
    for sentence in sentences:
        for word in (words := sentence.lower().split() or [""]):
            cache.setdefault(word, draw(zlib.crc32(word.encode()), 16))
        rows.append(torch.stack([cache[word] for word in words]).sum(dim=0))
    return torch.stack(rows)


def check_generator(entry: Entry[Generator], materials: Materials) -> None:
    """Check the first rows of each split, or the cells of a column."""
    if issubclass(entry.cls, ColumnGenerator):
        _check_column(entry, materials)
        return
    require(entry, issubclass(entry.cls, RowGenerator), "extends RowGenerator or ColumnGenerator")
    for split in ("train", "dev", "test"):
        first, second = (list(islice(_rows(materials.build(entry), split), MANY)) for _ in range(2))
        require(entry, bool(first) and first == second, f"returns the same rows of '{split}' in each call")
        columns = {frozenset(row) for row in first}
        require(entry, len(columns) == 1, f"returns the same columns for all rows of '{split}'")
        require(entry, "text" in first[0] or set(first[0]) >= PAIR, f"returns texts or scored pairs in '{split}'")
        cells = [cell for row in first for cell in row.values()]
        require(entry, all(isinstance(c, str) and "\n" not in c for c in cells), f"returns one-line cells in '{split}'")


def _rows(generator: Generator, split: str) -> Iterator[dict[str, str]]:
    assert isinstance(generator, RowGenerator)
    return generator.rows(split)


def _check_column(entry: Entry[Generator], materials: Materials) -> None:
    generator = materials.build(entry)
    assert isinstance(generator, ColumnGenerator)
    cells = ["the cat sleeps", "a man sees the red house", "two dogs run", "the cat sleeps"]
    made = generator.make(cells)
    require(
        entry, len(made) == len(cells) and made[0] == made[3], "makes one cell for each cell, equal for equal cells"
    )
    require(entry, all(isinstance(c, str) and "\n" not in c for c in made), "makes one-line cells")
    require(entry, generator.make(cells[::-1]) == made[::-1], "makes the same cells in any order")
    require(entry, generator.identity() == materials.build(entry).identity(), "has the same identity when built again")
