import math
from dataclasses import replace

import pytest
import torch

from registry.losses.twins import Twins
from registry.tokens import Encoded, Tokens
from tests.support.errors import refuses


def encoded(sentence, embeddings, mask=None):
    mask = torch.ones(embeddings.shape[:2], dtype=torch.int64) if mask is None else mask
    zeros = torch.zeros_like(mask)
    return Encoded(sentence, embeddings, embeddings, Tokens(zeros, mask, zeros, zeros))


def draw(rows, length, width=3, seed=0, lengths=None, dtype=torch.float64):
    g = torch.Generator().manual_seed(seed)
    sentence = torch.randn(rows, 4, generator=g, dtype=dtype)
    embeddings = torch.randn(rows, length, width, generator=g, dtype=dtype)
    mask = torch.ones(rows, length, dtype=torch.int64)
    for row, real in enumerate(lengths or []):
        mask[row, real:] = 0
    return encoded(sentence, embeddings, mask)


def s(a, b):
    norms = math.hypot(*a) * math.hypot(*b)
    return sum(x * y for x, y in zip(a, b, strict=True)) / norms if norms else 0.0


def similarity(anchor, other, how):
    """Similarity of two views' token embeddings, sentence by sentence, over the anchor's real tokens."""
    found = []
    for row, mask in enumerate(anchor.tokens.mask.tolist()):
        pairs = []
        for place, real in enumerate(mask):
            if real:
                there = place < other.tokens.length and other.tokens.mask[row, place]
                width = anchor.embeddings.shape[2]
                other_vector = other.embeddings[row, place].tolist() if there else [0.0] * width
                pairs.append((anchor.embeddings[row, place].tolist(), other_vector))
        left, right = [p[0] for p in pairs], [p[1] for p in pairs]
        if how == "flat":
            found.append(s([x for v in left for x in v], [x for v in right for x in v]))
        elif how == "token_mean":
            found.append(sum(s(*pair) for pair in pairs) / len(pairs))
        elif how == "mean_pool":
            found.append(s([sum(c) for c in zip(*left, strict=True)], [sum(c) for c in zip(*right, strict=True)]))
        else:
            found.append(s(*pairs[0]))
    return found


def literal(anchor, identical, fraternal, how):
    total = 0.0
    near, far = similarity(anchor, identical, how), similarity(anchor, fraternal, how)
    for row in range(len(anchor.sentence)):
        h, plus, minus = (v.sentence[row].tolist() for v in (anchor, identical, fraternal))
        margin = math.exp(near[row]) - math.exp(far[row])
        total += abs(math.exp(s(h, plus)) - math.exp(s(h, minus)) - margin)
    return total / len(anchor.sentence)


def test_value_by_hand():
    # Sentence cosines 1 and 0: e − 1. Embedding cosines 0 and 1: M = 1 − e. |e − 1 − (1 − e)| = 2e − 2.
    x, y = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    anchor = encoded(x, x.unsqueeze(1))
    identical = encoded(2 * x, y.unsqueeze(1))
    fraternal = encoded(y, 3 * x.unsqueeze(1))
    assert Twins()(anchor, identical, fraternal).item() == pytest.approx(2 * math.e - 2, rel=1e-6)
    anchor, identical, fraternal = (encoded(v, v.unsqueeze(1)) for v in (x, x, y))
    assert Twins(margin="fixed").fixed_margin == pytest.approx(0.1141, abs=1e-4)
    found = Twins(margin="fixed", fixed_margin=0.25)(anchor, identical, fraternal).item()
    assert found == pytest.approx(math.e - 1.25, rel=1e-6)
    # Table 6's: M = e^0.85 − e^0.80; sentence cosines 1 and 0 leave e − 1 − M.
    found = Twins("fixed", omega_a=0.6, omega_b=-0.2)(anchor, identical, fraternal).item()
    assert found == pytest.approx(math.e - 1 - (math.exp(0.6) - math.exp(-0.2)), rel=1e-6)
    assert Twins("fixed", omega_a=0.85, omega_b=0.80).fixed_margin == Twins("fixed").fixed_margin


@pytest.mark.parametrize("values", [{"omega_a": 0.9}, {"omega_b": 0.9}, {"margin": "data", "omega_b": 0.1}])
def test_similarities_that_make_no_margin_are_refused(values):
    with refuses("losses.incomplete_omega", "omega_a", "omega_b"):
        Twins(**{"margin": "fixed", "omega_a": None, **values})


@pytest.mark.parametrize(
    ("how", "rows", "lengths"),
    [("flat", 3, (5, 2, 8)), ("token_mean", 2, (2, 7, 1)), ("mean_pool", 4, (5, 2, 5)), ("cls", 1, (3, 3, 3))],
)
def test_matches_the_equation(how, rows, lengths):
    views = []
    for seed, length in enumerate(lengths):
        real = [1 + (row + seed) % length for row in range(rows)]
        views.append(draw(rows, length, seed=seed, lengths=real))
    assert Twins(margin_similarity=how)(*views).item() == pytest.approx(literal(*views, how))
    total = Twins(margin_similarity=how, reduction="sum")(*views).item()
    assert total == pytest.approx(rows * literal(*views, how))


@pytest.mark.parametrize("margin", ["data", "fixed"])
def test_gradient_is_exact(margin):
    views = [draw(4, 3, seed=seed) for seed in range(3)]

    def of(a, b, c):
        sentences = (a, b, c)
        return Twins(margin=margin)(*(replace(v, sentence=t) for v, t in zip(views, sentences, strict=True)))

    assert torch.autograd.gradcheck(of, [v.sentence.requires_grad_() for v in views])


def test_margin_carries_no_gradient_and_is_of_single_precision():
    views = [draw(4, 3, seed=seed) for seed in range(3)]
    for view in views:
        view.sentence.requires_grad_()
        view.embeddings.requires_grad_()
    Twins()(*views).backward()
    assert all(view.embeddings.grad is None for view in views)
    assert all(view.sentence.grad is not None and view.sentence.grad.abs().sum() > 0 for view in views)
    views = [draw(3, 6, seed=seed, dtype=torch.float32) for seed in range(3)]
    low = [replace(v, embeddings=v.embeddings.bfloat16()) for v in views]
    rounded = [replace(v, embeddings=v.embeddings.float()) for v in low]
    assert Twins(margin_similarity="mean_pool")(*low).item() == Twins(margin_similarity="mean_pool")(*rounded).item()
