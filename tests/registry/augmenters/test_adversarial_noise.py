from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from cse_cli.training.method import BoundView, Method, Term
from cse_cli.training.step import StepState
from registry import LOSSES
from registry.augmenters.adversarial_noise import AdversarialNoise
from registry.tokens import Embedded
from tests.registry.augmenters.literal import SHAPES, batch
from tests.support.fakes import FakeEncoder, WordVocabulary

TEXTS = ["one small dog", "a cat sat", "trees grow slowly in winter", "run"]


@dataclass
class Given:
    """A step whose gradient is known."""

    known: Tensor
    asked: int = 0

    def gradient(self, view: str) -> Tensor:
        assert view == "anchor"
        self.asked += 1
        return self.known


def slow(vectors, gradient, norm, normalize):
    out = vectors.clone()
    for row in range(len(out)):
        whole = float(gradient[row].pow(2).sum()) ** 0.5
        for place in range(out.shape[1]):
            own = float(gradient[row, place].pow(2).sum()) ** 0.5
            length = {"token": own, "sentence": whole, "none": 1.0}[normalize]
            if length > 0:
                out[row, place] += norm * gradient[row, place] / length
    return out


def test_by_hand():
    """g = (3, 4) and (0, 12): lengths 5 and 12 by token, 13 by sentence; norm 2."""
    before = Embedded(batch([2], 2).tokens, torch.zeros(1, 2, 2))
    step = Given(torch.tensor([[[3.0, 4.0], [0.0, 12.0]]]))
    expected = {
        "token": [[1.2, 1.6], [0.0, 2.0]],
        "sentence": [[6 / 13, 8 / 13], [0.0, 24 / 13]],
        "none": [[6.0, 8.0], [0.0, 24.0]],
    }
    for normalize, values in expected.items():
        moved = AdversarialNoise(2.0, normalize).on_embeddings(before, "anchor", step).vectors
        assert torch.allclose(moved, torch.tensor([values]))


@pytest.mark.parametrize(("lengths", "width"), SHAPES)
@pytest.mark.parametrize("normalize", ["token", "sentence", "none"])
@pytest.mark.parametrize(("norm", "size"), [(0.0, 1.0), (3.0, 1e-6)])
def test_equals_the_slow_version(lengths, width, norm, normalize, size):
    before = batch(lengths, width)
    gradient = size * torch.randn(before.vectors.shape, generator=torch.Generator().manual_seed(2))
    gradient = gradient * before.tokens.mask.unsqueeze(-1)
    moved = AdversarialNoise(norm, normalize).on_embeddings(before, "anchor", Given(gradient)).vectors
    assert torch.allclose(moved, slow(before.vectors, gradient, norm, normalize), atol=1e-5)


def test_norm_zero_is_the_identity_and_costs_nothing():
    before, step = batch([3], 2), Given(torch.ones(1, 3, 2))
    assert AdversarialNoise(0.0).on_embeddings(before, "anchor", step) is before
    assert step.asked == 0


def test_a_zero_gradient_moves_nothing():
    """As in the probe of a step, and at padding."""
    before = batch([3], 2)
    for normalize in ("token", "sentence", "none"):
        moved = AdversarialNoise(1.0, normalize).on_embeddings(before, "anchor", Given(torch.zeros(1, 3, 2))).vectors
        assert torch.equal(moved, before.vectors)


def test_the_gradient_flows_past_the_noise():
    before = batch([3], 2, dtype=torch.float64)
    vectors = before.vectors.requires_grad_()
    known = torch.randn(1, 3, 2, requires_grad=True)
    moved = AdversarialNoise(1.0).on_embeddings(before, "anchor", Given(known)).vectors
    moved.sum().backward()
    assert torch.equal(vectors.grad, torch.ones_like(vectors))
    assert known.grad is None
    assert moved.dtype == torch.float64


def method(norm):
    torch.manual_seed(0)
    entry = LOSSES["info_nce"]
    return Method(
        {"online": FakeEncoder(dropout=0.0)},
        {"anchor": BoundView("online", [AdversarialNoise(norm)]), "positive": BoundView("online", [])},
        None,
        {"info_nce": entry.build({"temperature": 0.5})},
        {"info_nce": Term(entry, 1.0, {"anchor": "anchor", "positive": "positive"}, queue=True)},
    )


def loss(norm):
    made = method(norm)
    tokens = WordVocabulary().pad(WordVocabulary().ids(TEXTS, 16))
    step = StepState(made, dict.fromkeys(made.views, tokens), 0, 10, torch.Generator().manual_seed(0))
    return made.objective(made(step)), step


def test_the_recipes_own_loss_rises():
    plain, _ = loss(0.0)
    moved, step = loss(0.05)
    assert moved > plain
    change = (step.embedded["anchor"].vectors - step.unperturbed["anchor"]).norm(dim=-1)
    real = step.batch["anchor"].mask.bool()
    assert torch.allclose(change[real], torch.tensor(0.05), atol=1e-6)
    assert not change[~real].any()
