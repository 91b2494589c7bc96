"""The contract checks notice: each broken promise below is found, and named."""

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import count

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from registry import QUEUES
from registry.encoders.transformer import TransformerEncoder
from registry.machinery.core import Registry
from registry.queues.fifo import Fifo
from registry.queues.noise import Noise
from registry.testing import ContractError, Materials, check
from registry.tokens import Encoded
from registry.types import (
    Augmenter,
    Encoder,
    Evaluator,
    Loss,
    Negatives,
    Queue,
    RowGenerator,
    Sentences,
)
from tests.support.tiny import tiny_bert

BASES = {
    "augmenters": Augmenter,
    "encoders": Encoder,
    "evaluators": Evaluator,
    "generators": RowGenerator,
    "losses": Loss,
    "queues": Queue,
}


@pytest.fixture(scope="module")
def materials(tmp_path_factory):
    return Materials(model=tiny_bert(tmp_path_factory.mktemp("models")))


def entry_of(kind, cls, doc="Be bad."):
    """Register a class in a registry of its own, documented as the class it extends is."""
    if cls.__doc__ is None:
        cls.__doc__ = doc
    fresh = Registry(kind, BASES[kind].__name__, _scanned=True)
    fresh.register("bad")(cls)
    return fresh["bad"]


def refused(entry, promise, materials=None):
    with pytest.raises(ContractError, match=re.escape(promise)) as caught:
        check(entry, materials)
    assert f"{entry.kind}/bad" in str(caught.value)


class Good(Loss):
    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, anchor: Sentences) -> Tensor:
        return anchor.mean() * self.scale


@pytest.mark.parametrize(
    ("doc", "promise"),
    [
        ("Lack a full stop", "one sentence"),
        ("Run on.\n    into a second line.\n\n    Args:\n        scale: A.", "followed by an empty line"),
        ("Keep silent about a parameter.", "add ['scale']"),
        ("Tell of too much.\n\n    Args:\n        scale: A.\n        more: B.", "describes ['more']"),
    ],
)
def test_declarations(doc, promise):
    refused(entry_of("losses", type("Bad", (Good,), {"__doc__": doc})), promise)


def learns_from_all(self, anchor: Sentences, reference: Sentences) -> Tensor:
    return (anchor * reference).mean()


def invalid_default(self, scale: float = "much") -> None: ...
def no_default(self, scale: float) -> None:
    Good.__init__(self, scale)


def test_values_of_parameters():
    doc = "Be bad.\n\nArgs:\n    scale: A."
    bad, entry = (
        entry_of("losses", type("Bad", (Good,), {"__doc__": doc, "__init__": init}))
        for init in (invalid_default, no_default)
    )
    refused(bad, "its defaults are valid")
    refused(entry, "add scale to Materials")
    check(entry, Materials(values={"losses/bad": {"scale": 3.0}}))


def forgets_a_view(self, anchor: Sentences, positive: Sentences) -> Tensor:
    return anchor.square().mean()


def forgets_an_optional(self, anchor: Sentences, hard: Sentences | None = None) -> Tensor:
    return anchor.square().mean()


def needs_a_queue(self, anchor: Sentences, queue: Negatives) -> Tensor:
    return (anchor @ queue.vectors.T).mean()


def mixes_in_dead_entries(self, anchor: Sentences, queue: Negatives) -> Tensor:
    return anchor.square().mean() + queue.log_weights.sum()


def depends_on_order(self, anchor: Sentences) -> Tensor:
    return (anchor.mean(dim=1) * torch.arange(len(anchor))).sum()


def returns_a_row(self, anchor: Sentences) -> Tensor:
    return anchor.mean(dim=1)


def dies_of_collapse(self, anchor: Sentences) -> Tensor:
    return (anchor - anchor.mean(dim=0)).norm(dim=1).log().mean()


def detaches(self, anchor: Encoded) -> Tensor:
    return anchor.sentence.detach().mean() + 0 * anchor.hidden.sum()


@pytest.mark.parametrize(
    ("forward", "promise"),
    [
        (learns_from_all, "no gradient of 'reference', which is in `steering`"),
        (forgets_a_view, "gradient of 'positive' with anchor, positive"),
        (forgets_an_optional, "gradient of 'hard' with anchor, hard"),
        (needs_a_queue, "finite scalar with anchor and 0 queue entries"),
        (mixes_in_dead_entries, "finite scalar with anchor and 4 queue entries"),
        (depends_on_order, "does not depend on the order of rows"),
        (returns_a_row, "finite scalar"),
        (dies_of_collapse, "finite scalar"),
        (detaches, "gradient of 'anchor'"),
    ],
)
def test_losses(forward, promise):
    named = {"__doc__": "Be bad.", "forward": forward, "steering": frozenset({"reference"})}
    refused(entry_of("losses", type("Bad", (Loss,), named)), promise)


class TooLong(Fifo):
    def push(self, rows):
        self.length = self.served = 100
        super().push(rows)


class Attached(Fifo):
    def negatives(self):
        held = super().negatives()
        return Negatives(held.vectors.clone().requires_grad_(), held.log_weights)


class Overwrites(Fifo):
    def push(self, rows):
        old = self.vectors
        super().push(rows)
        old.copy_(self.vectors)
        self.vectors = old


class Forgetful(Fifo):
    def state_dict(self, *args, **kwargs):
        return {k: torch.zeros_like(v) for k, v in super().state_dict(*args, **kwargs).items()}


class Impatient(Fifo):
    def negatives(self):
        held = super().negatives()
        return held if len(held.vectors) == self.length else Negatives.none(held.vectors)


class Personal(Fifo):
    def push(self, rows):
        super().push(rows + torch.rand(rows.shape))


class Misweighs(Fifo):
    def log_weights(self, ages):
        return torch.full((len(ages),), torch.inf)


class OwnNoise(Noise):
    def observe(self, step):
        super().observe(step)
        self.served = self.served + torch.rand(self.served.shape)


@pytest.mark.slow
def test_a_queue_that_keeps_nothing():
    OwnNoise.__doc__ = Noise.__doc__
    refused(entry_of("queues", OwnNoise), "global random state")
    check(QUEUES["noise"])


@pytest.mark.parametrize(
    ("cls", "promise"),
    [
        (TooLong, "at most `length` entries"),
        (Attached, "entries without gradient"),
        (Overwrites, "does not change entries that it returned"),
        (Forgetful, "entries in state_dict"),
        (Impatient, "before it is full"),
        (Personal, "global random state"),
        (Misweighs, "finite or −inf"),
    ],
)
def test_queues(cls, promise):
    cls.__doc__ = Fifo.__doc__
    refused(entry_of("queues", cls), promise)


def embedding(change):
    """Return a hook that changes the vectors of the token embeddings."""
    return {"on_embeddings": lambda self, embedded, view, step: replace(embedded, vectors=change(embedded.vectors))}


calls = count(1)


@pytest.mark.parametrize(
    ("hooks", "promise"),
    [
        ({}, "acts on a level"),
        ({"on_text": lambda self, samples, rng: samples[1:]}, "one sample per row"),
        (embedding(lambda vectors: vectors + next(calls)), "changes embeddings the same way"),
        (embedding(lambda vectors: F.pad(vectors, (0, 0, 0, 1))), "positions and embeddings at (B, L)"),
        ({"on_tokens": lambda self, tokens, step: replace(tokens, mask=0 * tokens.mask)}, "a token of every sentence"),
        (embedding(lambda vectors: vectors / 0), "finite"),
    ],
)
def test_augmenters(hooks, promise, materials):
    refused(entry_of("augmenters", type("Bad", (Augmenter,), hooks)), promise, materials)


@pytest.mark.slow
def test_augmenters_that_claim_to_do_nothing_or_need_a_model(materials):
    entry = entry_of("augmenters", type("Shifts", (Augmenter,), embedding(lambda vectors: vectors + 1)))
    check(entry, materials)
    refused(entry, "changes nothing with {}", Materials(materials.model, identity={"augmenters/bad": {}}))
    with pytest.raises(ContractError, match="set the `model`"):
        check(entry_of("augmenters", type("Shout", (Augmenter,), {"on_text": lambda s, x, r: x})))


class SeesPadding(TransformerEncoder):
    def encode(self, tokens, embeddings):
        encoded = super().encode(tokens, embeddings)
        return Encoded(encoded.hidden.mean(dim=1), encoded.embeddings, encoded.hidden, tokens)


class SeesNeighbors(TransformerEncoder):
    def encode_for_eval(self, tokens):
        return super().encode_for_eval(tokens) * torch.arange(1.0, tokens.rows + 1).unsqueeze(1)


class StaysQuiet(TransformerEncoder):
    def encode_for_eval(self, tokens):
        self.eval()
        return super().encode_for_eval(tokens)


class StaysLoud(TransformerEncoder):
    def encode_for_eval(self, tokens):
        with torch.no_grad():
            return self.encode(tokens, self.embed(tokens)).sentence


class Cut(TransformerEncoder):
    def encode(self, tokens, embeddings):
        with torch.no_grad():
            return super().encode(tokens, embeddings)


class WrongWidth(TransformerEncoder):
    def embed(self, tokens):
        return F.pad(super().embed(tokens), (0, 1))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cls", "promise"),
    [
        (SeesPadding, "the same `sentence` with more padding"),
        (SeesNeighbors, "the same `encode_for_eval` in any order of rows"),
        (StaysQuiet, "is in training mode after"),
        (StaysLoud, "no dropout in"),
        (WrongWidth, "(B, L, width)"),
        (Cut, "gradient of its weights"),
    ],
)
def test_encoders(cls, promise, materials):
    cls.__doc__ = TransformerEncoder.__doc__
    refused(entry_of("encoders", cls), promise, materials)


class Counts(Evaluator):
    metric = "score"
    metrics = ("score",)
    scores = {"score": 1.0}  # noqa: RUF012

    def __call__(self, encode):
        return dict(self.scores)


@pytest.mark.parametrize(
    ("changes", "promise"),
    [
        ({"metric": "other"}, "shows one of its metrics"),
        ({"scores": {"score": 1.0, "more": 2.0}}, "returns its declared metrics"),
        ({"scores": {"score": float("nan")}}, "finite floats"),
        ({"scores": {"score": torch.ones(())}}, "finite floats"),
        ({"fingerprints": lambda self: {"data": ""}}, "names data as dataset/split"),
        ({"shown_metrics": lambda self: ("other",)}, "shows only its metrics"),
        ({"suites": {"mine": ("one",)}}, "has parameters for its task 'one'"),
        (
            {"suites": {"mine": ("one",)}, "parameters_for": classmethod(lambda cls, name: {"size": name})},
            "has parameters for its task 'one'",
        ),
    ],
)
def test_evaluators(changes, promise):
    refused(entry_of("evaluators", type("Bad", (Counts,), changes)), promise)


class Rows(RowGenerator):
    made = ({"text": "a"}, {"text": "b"})

    def rows(self, split: str) -> Iterator[dict[str, str]]:
        yield from self.made


class Drifts(Rows):
    calls = 0

    def rows(self, split):
        type(self).calls += 1
        yield {"text": str(self.calls)}


@pytest.mark.parametrize(
    ("cls", "promise"),
    [
        (type("Empty", (Rows,), {"made": ()}), "the same rows of 'train'"),
        (Drifts, "the same rows of 'train'"),
        (type("Ragged", (Rows,), {"made": ({"text": "a"}, {"txt": "b"})}), "the same columns"),
        (type("Odd", (Rows,), {"made": ({"sentence": "a"},)}), "texts or scored pairs"),
        (type("Broken", (Rows,), {"made": ({"text": "a\nb"},)}), "one-line cells"),
    ],
)
def test_generators(cls, promise):
    refused(entry_of("generators", cls), promise)


def test_good_components_pass(materials):
    Good.__doc__ = "Be good.\n\nArgs:\n    scale: A."
    check(entry_of("losses", Good))
    check(entry_of("evaluators", Counts))
    check(entry_of("generators", Rows))
