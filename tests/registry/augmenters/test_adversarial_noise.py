from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from registry.augmenters.adversarial_noise import AdversarialNoise
from registry.tokens import Embedded
from tests.registry.augmenters.literal import SHAPES, batch


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
