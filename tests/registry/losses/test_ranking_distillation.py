import math

import pytest
import torch

from registry.losses.ranking_distillation import RankingDistillation
from tests.registry.losses.literal import draw, ranking_distillation


@pytest.mark.parametrize("n", [2, 5])
@pytest.mark.parametrize("form", ["list_net", "list_mle"])
@pytest.mark.parametrize("diagonal", [False, True])
@pytest.mark.parametrize("two", [False, True])
def test_equals_the_literal_form(n, form, diagonal, two):
    anchor, positive, first, second, _ = draw(n, 0, seed=n)
    teachers = (first, second) if two else (first,)
    loss = RankingDistillation(form, temperature=0.2, mix=0.33, diagonal=diagonal)
    expected = ranking_distillation(form, anchor, positive, teachers, 0.2, 0.1, 0.33, diagonal)
    assert loss(anchor, positive, *teachers).item() == pytest.approx(expected, abs=1e-9)


def test_value_by_hand():
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
    summed = RankingDistillation("list_mle", temperature=1.0, reduction="sum")
    assert summed(anchor, anchor, teacher).item() == pytest.approx(likelihood, abs=1e-6)
    assert RankingDistillation("list_mle", temperature=1.0)(anchor, anchor, teacher).item() == pytest.approx(
        likelihood / 2, abs=1e-6
    )


def test_the_teachers_temperature_defaults_to_half_the_students():
    anchor, positive, teacher, _, _ = draw(5, 0)
    half = RankingDistillation(temperature=0.3, teacher_temperature=0.15)(anchor, positive, teacher)
    assert RankingDistillation(temperature=0.3)(anchor, positive, teacher) == half


@pytest.mark.parametrize("form", ["list_net", "list_mle"])
def test_a_single_sentence_has_no_order(form):
    anchor, positive, teacher, _, _ = draw(1, 0)
    assert RankingDistillation(form)(anchor, positive, teacher).item() == 0.0


@pytest.mark.parametrize("form", ["list_net", "list_mle"])
def test_gradient_reaches_the_student_alone(form):
    anchor, positive, teacher, other, _ = (v.requires_grad_() if isinstance(v, torch.Tensor) else v for v in draw(4, 0))
    loss = RankingDistillation(form, temperature=0.4)
    loss(anchor, positive, teacher, other).backward()
    assert teacher.grad is None
    assert other.grad is None
    assert torch.autograd.gradcheck(lambda a, p: loss(a, p, teacher, other), (anchor, positive))
