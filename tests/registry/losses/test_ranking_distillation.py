import math

import pytest
import torch

from registry.losses.ranking_distillation import RankingDistillation
from tests.registry.losses.literal import agree, draw, ranking_distillation


@pytest.mark.parametrize(
    ("form", "diagonal", "two"), [("list_net", False, True), ("list_mle", True, False), ("list_mle", False, True)]
)
def test_equals_the_literal_form(form, diagonal, two):
    anchor, positive, first, second, _ = draw(5, 0)
    teachers = (first, second) if two else (first,)
    loss = RankingDistillation(form, temperature=0.2, mix=0.33, diagonal=diagonal)
    expected = ranking_distillation(form, anchor, positive, teachers, 0.2, 0.1, 0.33, diagonal)
    assert loss(anchor, positive, *teachers).item() == pytest.approx(expected, abs=1e-9)


def test_value_by_hand_and_default_temperature():
    # Anchors along x, at 60° and along y, which are their own positives; the teacher's cosines are others.
    angles = [0.0, math.pi / 3, math.pi / 2]
    anchor = torch.tensor([[math.cos(a), math.sin(a)] for a in angles])
    # The teacher has 1 and 2 alike to 0, so that half of ListNet's target falls on each.
    teacher = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    student = [(0.5, 0.0), (0.5, math.sqrt(0.75)), (0.0, math.sqrt(0.75))]  # row i: its two others
    wanted = [(0.5, 0.5), (1 / (1 + math.exp(-1)), 1 / (1 + math.e)), (1 / (1 + math.exp(-1)), 1 / (1 + math.e))]
    expected = 0.0
    for scores, target in zip(student, wanted, strict=True):
        below = math.log(sum(math.exp(s) for s in scores))
        expected -= sum(q * (s - below) for q, s in zip(target, scores, strict=True)) / 3
    loss = RankingDistillation("list_net", temperature=1.0, teacher_temperature=1.0)
    assert loss(anchor, anchor, teacher).item() == pytest.approx(expected, abs=1e-6)
    # ListMLE: of two, the first in the teacher's order; row 0 keeps the batch's order.
    likelihood = sum(math.log(1 + math.exp(s[1] - s[0])) for s in student) / 3
    order = RankingDistillation("list_mle", temperature=1.0, epsilon=0.0)
    assert order(anchor, anchor, teacher).item() == pytest.approx(likelihood, abs=1e-6)
    anchor, positive, teacher, _, _ = draw(5, 0)
    half = RankingDistillation(temperature=0.3, teacher_temperature=0.15)(anchor, positive, teacher)
    assert RankingDistillation(temperature=0.3)(anchor, positive, teacher) == half
    for form in ("list_net", "list_mle"):  # a single sentence has no order
        assert RankingDistillation(form)(anchor[:1], positive[:1], teacher[:1]).item() == 0.0


def as_the_community_code(form, anchor, positive, first, second):
    """The loss by the arithmetic of perceptiveshawty/RankCSE: rankcse/models.py:63-109 and trainers.py:525-528."""

    def cosines(a, b):
        return (a / a.norm(dim=1, keepdim=True)) @ (b / b.norm(dim=1, keepdim=True)).T

    student = cosines(anchor, positive) / 0.05
    teachers = 0.33 * cosines(first, first) / 0.05 + (1 - 0.33) * cosines(second, second) / 0.05
    total = 0.0
    for i, (row, wanted) in enumerate(zip(student, teachers, strict=True)):
        if form == "list_net":
            others = torch.arange(len(row)) != i
            q = wanted[others].exp() / wanted[others].exp().sum()
            total = total - (q * torch.log(row[others].exp() / row[others].exp().sum())).sum()
            continue
        shifted = row[wanted.argsort(descending=True)]
        shifted = shifted - shifted.max()
        for place in range(len(shifted)):
            total = total + torch.log(shifted[place:].exp().sum() + 1e-7) - shifted[place]
    return total / len(student)


@pytest.mark.parametrize(("form", "n", "dim"), [("list_net", 16, 4), ("list_mle", 5, 3), ("list_mle", 24, 64)])
def test_equals_the_community_code(form, n, dim):
    """Value and gradient, on vectors in few dimensions: their cosines reach what 1e-7 acts on."""
    generator = torch.Generator().manual_seed(n)
    vectors = [torch.randn(n, dim, dtype=torch.float64, generator=generator) for _ in range(4)]
    views = [view.requires_grad_() for view in vectors[:2]]
    expected = as_the_community_code(form, *vectors)
    value = RankingDistillation(form, 0.05, teacher_temperature=0.05, mix=0.33, diagonal=form == "list_mle")(*vectors)
    agree(value, expected, views, 1e-9)


@pytest.mark.parametrize("epsilon", [0.0, 1e-7])
def test_list_mle_is_finite_in_single_precision(epsilon):
    """Opposite views at a small temperature: exponentials of −200."""
    anchor = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]], requires_grad=True)
    value = RankingDistillation("list_mle", temperature=0.01, epsilon=epsilon)(anchor, anchor.detach(), anchor)
    (gradient,) = torch.autograd.grad(value, anchor)
    assert torch.isfinite(value)
    assert torch.isfinite(gradient).all()
