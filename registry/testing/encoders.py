"""What every encoder keeps: its widths, indifference to padding and to neighbours, and a quiet evaluation mode.

One that is fitted when it is scored need not take part in training, so only its evaluation is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from registry.core import Entry
from registry.testing.materials import SENTENCES, Materials, require
from registry.tokens import Tokens
from registry.types import Encoder


def check_encoder(entry: Entry[Encoder], materials: Materials) -> None:
    """Check shapes, padding, row order, evaluation and, if anything is trained, the gradient."""
    encoder: Encoder = materials.build(entry)
    tokens = encoder.vocabulary.pad(encoder.vocabulary.ids(SENTENCES, 16))
    if encoder.fits != "never":
        _check_fit(entry, encoder)
    else:
        _check_shapes(entry, encoder, tokens)
    _check_evaluation(entry, encoder, tokens)
    _check_rows(entry, encoder, tokens)


def _check_rows(entry: Entry[Encoder], encoder: Encoder, tokens: Tokens) -> None:
    encoder.eval()
    longer = tokens.padded_to(tokens.length + 5)
    turned = encoder.vocabulary.pad(encoder.vocabulary.ids(SENTENCES[::-1], 16))
    ways: dict[str, Callable[[Tokens], Tensor]] = {"represent": encoder.represent}
    if encoder.fits == "never":
        ways["sentence"] = lambda given: encoder.encode(given, encoder.embed(given)).sentence
    for name, of in ways.items():
        plain = of(tokens)
        # A fitted encoder stretches narrow directions: what is small is told by its largest number.
        largest = 1.0 if encoder.fits == "never" else max(1.0, float(plain.detach().abs().max()))
        near = 1e-5 * largest
        require(entry, torch.allclose(plain, of(longer), atol=near), f"gives the same `{name}` however much is padded")
        require(
            entry, torch.allclose(plain, of(turned).flip(0), atol=near), f"gives the same `{name}` in any row order"
        )


def _check_fit(entry: Entry[Encoder], encoder: Encoder) -> None:
    encode, before = _Vectors(encoder), torch.get_rng_state()
    encoder.fit(encode, SENTENCES)
    first = encode(SENTENCES)
    require(entry, bool(first.isfinite().all()), "represents finite vectors once it is fitted")
    encoder.fit(encode, SENTENCES)
    require(entry, torch.equal(first, encode(SENTENCES)), "is fitted to the same sentences in the same way")
    require(entry, torch.equal(before, torch.get_rng_state()), "leaves the training's random numbers alone")


class _Vectors:
    """An `Encode` that runs an encoder, and views not at all."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder

    def __call__(self, sentences: Sequence[str]) -> Tensor:
        """Return what `represent` makes of them."""
        vocabulary = self.encoder.vocabulary
        return self.encoder.represent(vocabulary.pad(vocabulary.ids(sentences, 16)))

    def through(self, view: str, columns: Mapping[str, Sequence[str]], training: bool = False) -> Tensor:  # noqa: ARG002 - a protocol
        """Return the vectors of the first column."""
        return self(next(iter(columns.values())))


def _check_shapes(entry: Entry[Encoder], encoder: Encoder, tokens: Tokens) -> None:
    vectors = encoder.embed(tokens)
    require(entry, vectors.shape == (*tokens.ids.shape, encoder.width), "embed returns (B, L, width)")
    encoded = encoder.encode(tokens, vectors)
    require(entry, encoded.sentence.shape == (tokens.rows, encoder.dim), "encode returns a sentence (B, dim)")
    require(entry, encoded.hidden.shape[:2] == tokens.ids.shape, "encode returns hidden (B, L, …)")
    require(entry, encoded.embeddings.shape[:2] == tokens.ids.shape, "encode returns embeddings (B, L, …)")
    trained = [parameter for parameter in encoder.parameters() if parameter.requires_grad]
    if trained:
        # Squared cosines with a fixed direction: a plain sum is constant behind a layer norm.
        value = (encoded.sentence @ torch.linspace(-1, 1, encoder.dim)).square().sum()
        gradients = torch.autograd.grad(value, trained, allow_unused=True) if value.requires_grad else ()
        require(entry, any(g is not None and bool(g.any()) for g in gradients), "sends gradient to its weights")


def _check_evaluation(entry: Entry[Encoder], encoder: Encoder, tokens: Tokens) -> None:
    encoder.train()
    first, second = (encoder.represent(tokens) for _ in range(2))
    require(entry, torch.equal(first, second), "represents without dropout, in training mode too")
    require(entry, encoder.training, "is in training mode again after `represent`")
    require(entry, not first.requires_grad and len(first) == tokens.rows, "represents (B, …) without gradient")
