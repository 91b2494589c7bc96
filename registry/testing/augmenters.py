"""What every augmenter keeps: rows stay rows, shapes fit each other, and the same stream gives the same change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

import torch

from registry.core import Entry
from registry.testing.materials import NOTHING, SENTENCES, Materials, OneStep, require
from registry.tokens import Embedded, Sample, Tokens
from registry.types import Augmenter

HOOKS = ("on_text", "on_pieces", "on_tokens", "on_embeddings")
LENGTH = 16


def check_augmenter(entry: Entry[Augmenter], materials: Materials) -> None:
    """Check the levels an augmenter acts on and, where a value is given at which it does nothing, that it does so."""
    acts = any(getattr(entry.cls, hook) is not getattr(Augmenter, hook) for hook in HOOKS)
    require(entry, acts, f"acts on some level: overrides one of {', '.join(HOOKS)}")
    first, second = (_perturbed(entry, materials) for _ in range(2))
    require(entry, first[0] == second[0], "changes text the same way for the same random state")
    require(entry, len(first[0]) == len(SENTENCES), "keeps one sample a row")
    for _, embedded in (first, second):
        _check_shapes(entry, embedded)
    require(entry, _same(first[1], second[1]), "changes vectors the same way for the same random state")
    values = materials.identity.get(f"{entry.kind}/{entry.name}")
    if values is not None:
        texts, embedded = _perturbed(entry, materials, values)
        vocabulary = materials.encoder.vocabulary
        tokens = vocabulary.pad(vocabulary.ids(SENTENCES, LENGTH))
        plain = Embedded(tokens, materials.encoder.embed(tokens))
        unchanged = texts == [Sample(text) for text in SENTENCES] and _same(embedded, plain)
        require(entry, unchanged, f"changes nothing at {dict(values)}")


def _perturbed(
    entry: Entry[Augmenter], materials: Materials, values: Mapping[str, Any] = NOTHING
) -> tuple[list[Sample], Embedded]:
    """Return what becomes of the sentences, and of their tokens and vectors, under a fresh augmenter."""
    encoder = materials.encoder
    augmenter: Augmenter = materials.build(entry, values)
    augmenter.bind(encoder)
    step = OneStep(torch.zeros(len(SENTENCES), encoder.dim))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        rng = Random(0)
        texts = augmenter.on_text([Sample(text) for text in SENTENCES], rng)
        pieces = augmenter.on_pieces(encoder.vocabulary.pieces(texts, LENGTH), rng)
        made = replace(encoder.vocabulary.assemble(pieces), side=_side(augmenter))
        tokens = augmenter.on_tokens(made, step)
        step.embedded["anchor"] = Embedded(tokens, encoder.embed(tokens).detach())
        return texts, augmenter.on_embeddings(step.embedded["anchor"], "anchor", step)


def _side(augmenter: Augmenter) -> dict[str, Tokens]:
    """Return the second column an augmenter reads, if it does."""
    if augmenter.column is None or augmenter.vocabulary is None:
        return {}
    other = augmenter.vocabulary.ids([f"{text} {SENTENCES[0]}" for text in reversed(SENTENCES)], LENGTH)
    return {augmenter.column: augmenter.vocabulary.pad(other)}


def _check_shapes(entry: Entry[Augmenter], embedded: Embedded) -> None:
    tokens, vectors = embedded.tokens, embedded.vectors
    shape = (len(SENTENCES), tokens.length)
    shapes = {tuple(t.shape) for t in (tokens.ids, tokens.mask, tokens.types, tokens.positions, vectors[..., 0])}
    require(entry, shapes == {shape}, f"leaves ids, mask, types, positions and vectors (B, L) alike, not {shapes}")
    require(entry, bool(tokens.mask.any(dim=1).all()), "leaves every sentence a token")
    require(entry, vectors.dtype == torch.float32 and bool(torch.isfinite(vectors).all()), "leaves vectors finite")


def _same(left: Embedded, right: Embedded) -> bool:
    """Whether two results are equal where there are tokens."""
    if not torch.equal(left.tokens.mask, right.tokens.mask):
        return False
    real = left.tokens.mask.bool()
    same_ids = torch.equal(left.tokens.ids[real], right.tokens.ids[real])
    return same_ids and torch.equal(left.vectors[real], right.vectors[real])
