import math

import pytest
import torch

from registry.losses.group_distillation import GroupDistillation
from registry.losses.ranking_distillation import RankingDistillation
from tests.registry.losses.literal import draw


def as_the_authors_code(anchor, teachers, tau, teacher_tau, group, shuffle):
    """The loss by the steps of distillcse/models_distill_calibrate.py:206-311; `shuffle` stands for torch.randperm."""
    n = len(anchor)
    student = torch.cosine_similarity(anchor.unsqueeze(0), anchor.unsqueeze(1), dim=-1)
    wanted = sum(torch.cosine_similarity(t.unsqueeze(0), t.unsqueeze(1), dim=-1) / len(teachers) for t in teachers)
    student, wanted = (m.clone().fill_diagonal_(-math.inf) for m in (student, wanted))
    wanted, idx = torch.sort(wanted, -1, descending=True)
    mass = torch.softmax(wanted[:, :-1], dim=-1).cumsum(dim=-1)
    count = math.ceil(1 / group)
    for i in range(n):
        ends = [int((mass[i] < (g + 1) * group).sum()) for g in range(count)]
        ends[-1] = n - 1
        for start, end in zip([0, *ends], ends, strict=False):
            idx[i, start:end] = idx[i, start:end][shuffle(end - start)]
    p = torch.log_softmax(torch.gather(student, -1, idx) / tau, dim=-1)
    q = torch.softmax(wanted / teacher_tau, dim=-1)
    return -(q * p).nansum() / q.nansum()


@pytest.mark.parametrize(("n", "group"), [(2, 0.1), (9, 0.1), (20, 0.3), (20, 0.5)])
def test_equals_the_authors_code_with_the_same_exchange(n, group, monkeypatch):
    """Random numbers that reverse each group stand for a permutation of it."""
    monkeypatch.setattr(torch, "rand_like", lambda like: torch.arange(like.shape[1], 0, -1).expand_as(like) / 1000)
    anchor, _, first, second, _ = draw(n, 0, seed=n)
    anchor.requires_grad_()
    expected = as_the_authors_code(anchor, (first, second), 0.025, 0.0125, group, lambda k: torch.arange(k).flip(0))
    value = GroupDistillation(group=group)(anchor, (first, second))
    assert value.item() == pytest.approx(expected.item(), rel=1e-9)
    ours, theirs = (torch.autograd.grad(loss, anchor)[0] for loss in (value, expected))
    torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-12)


def test_value_by_hand():
    # Vectors at 0°, 60° and 90°; the teacher finds 1 and 2 equally similar to 0, and has the cosine −1 between them.
    angles = [0.0, math.pi / 3, math.pi / 2]
    anchor = torch.tensor([[math.cos(a), math.sin(a)] for a in angles])
    teacher = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    expected = 0.0
    for scores, target in (((0.5, 0.0), (0.0, 0.0)), ((0.5, 0.75**0.5), (0.0, -1.0)), ((0.0, 0.75**0.5), (0.0, -1.0))):
        below, whole = (math.log(sum(map(math.exp, row))) for row in (scores, target))
        expected -= sum(math.exp(t - whole) * (s - below) for s, t in zip(scores, target, strict=True)) / 3
    loss = GroupDistillation(temperature=1.0, teacher_temperature=1.0, group=0.0)
    assert loss(anchor, (teacher,)).item() == pytest.approx(expected, abs=1e-6)
    assert loss(anchor[:1], (teacher[:1],)).item() == 0.0
    anchor, _, teacher, _, _ = draw(6, 0)
    plain = GroupDistillation(0.2, 0.1, group=0.0)(anchor, (teacher,))
    assert plain.item() == pytest.approx(RankingDistillation("list_net", 0.2, 0.1)(anchor, anchor, teacher).item())


def test_only_about_equal_sentences_are_exchanged_at_the_groups_temperature():
    """With 12 other sentences of nearly equal mass, each group of 0.25 has about three neighbors of the order."""
    torch.manual_seed(0)
    target = torch.linspace(0.02, 0.0, 12).expand(200, 12)
    places = GroupDistillation(group=0.25)._shuffled(target)
    assert torch.equal(places.sort(dim=1).values, torch.arange(12).expand(200, 12))
    assert (places - torch.arange(12)).abs().max() == 3
    groups = [{int(row[place]) for row in places} for place in range(12)]
    assert groups[0] == groups[1] == {0, 1}  # the sums of 3, 6 and 9 sentences are just above 0.25, 0.5 and 0.75
    assert groups[2] == groups[3] == groups[4] == {2, 3, 4}
    assert groups[11] == {8, 9, 10, 11}
    target = draw(9, 0)[0].sort(dim=1, descending=True).values
    found = []
    for loss, cosines in ((GroupDistillation(group_temperature=0.05), target), (GroupDistillation(), target / 0.05)):
        torch.manual_seed(3)
        found.append(loss._shuffled(cosines))
    assert torch.equal(*found)
