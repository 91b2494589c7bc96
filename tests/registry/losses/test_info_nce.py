import math

import pytest
import torch

from registry import LOSSES
from registry.losses.info_nce import InfoNCE
from registry.types import Negatives
from tests.registry.losses import literal as slow
from tests.support.errors import refuses


def test_value_by_hand():
    # Cosines: rows (1, 0), (0, 1); temperature 0.5 → logits 2 and 0 → each row log(1 + e^-2).
    anchor = torch.tensor([[2.0, 0.0], [0.0, 3.0]])
    positive = torch.tensor([[1.0, 0.0], [0.0, 0.5]])
    value = InfoNCE(temperature=0.5)(anchor, positive, Negatives.none(anchor))
    assert value.item() == pytest.approx(math.log(1 + math.exp(-2)), abs=1e-6)
    # One row: positive cosine 1, queue cosines 1 (weight 1/2) and 0 (weight 1): e² / (e² + e²/2 + 1).
    anchor = torch.tensor([[5.0, 0.0]])
    queue = Negatives(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0.5, 1.0]).log())
    value = InfoNCE(temperature=0.5)(anchor, anchor, queue)
    assert value.item() == pytest.approx(math.log(1.5 + math.exp(-2)), abs=1e-6)


def logits(tau):
    """Return the two rules of `cells`: every cosine divided by τ."""
    return [lambda cosine: cosine / tau] * 2


@pytest.mark.parametrize(("n", "k", "tau"), [(1, 0, 1.0), (2, 5, 0.05), (7, 1, 0.05)])
def test_matches_the_equation(n, k, tau):
    """Equation 6, with and without hard negatives."""
    anchor, positive, hard, _, negatives = slow.draw(n, k, seed=n + k)
    loss = InfoNCE(temperature=tau, hard_weight=0.7)
    for given in (None, hard):
        rows = slow.cells(*logits(tau), (anchor, positive), negatives, given, hard_weight=0.7)
        assert loss(anchor, positive, negatives, given).item() == pytest.approx(slow.cross_entropy(rows))


@pytest.mark.parametrize(("n", "k", "in_batch"), [(1, 0, True), (2, 3, True), (3, 0, False)])
def test_the_positive_may_repel_hard_negatives_too(n, k, in_batch):
    """Each row's sum has the exponentials of its positive's cosines with every hard negative, or its own one."""
    anchor, positive, hard, _, negatives = slow.draw(n, k, seed=n)
    tau, weight = 0.2, 0.7
    rows = slow.cells(*logits(tau), (anchor, positive), negatives, hard, hard_weight=weight, in_batch=in_batch)
    for i, row in enumerate(rows):
        for j in range(n) if in_batch else [i]:
            own = slow.cosine(positive[i].tolist(), hard[j].tolist()) / tau
            row.append((own + (weight if i == j else 0.0), False))
    loss = InfoNCE(tau, hard_weight=weight, positive_repels=True, in_batch=in_batch)
    assert loss(anchor, positive, negatives, hard).item() == pytest.approx(slow.cross_entropy(rows), abs=1e-12)


def test_views_that_a_setting_reads_are_required_and_others_not():
    anchor = torch.eye(2)
    with refuses("losses.no_hard_negatives", "[views.hard]"):
        InfoNCE(positive_repels=True)(anchor, anchor, Negatives.none(anchor))
    with refuses("losses.no_reference_view", "false_negative = 0.9", "[views.reference]"):
        InfoNCE(false_negative=0.9)(anchor, anchor, Negatives.none(anchor))
    anchor, positive, _, reference, _ = slow.draw(4, 0)
    loss = InfoNCE(false_negative=-1.0)
    assert loss(anchor, positive, Negatives.none(anchor), None, reference).item() == 0.0
    same = torch.ones_like(reference)
    assert loss(anchor, positive, Negatives.none(anchor), None, same).item() == 0.0
    anchor, positive, _, reference, queue = slow.draw(5, 3)
    assert torch.equal(InfoNCE()(anchor, positive, queue, None, reference), InfoNCE()(anchor, positive, queue))


@pytest.mark.parametrize(("form", "cells"), [("cross_entropy", 6), ("bce_softmax", 6 * (6 + 3))])
def test_the_sum_goes_over_all_rows_or_cells(form, cells):
    anchor, positive, _, _, negatives = slow.draw(6, 3)
    mean, total = (InfoNCE(form=form, reduction=r)(anchor, positive, negatives).item() for r in ("mean", "sum"))
    assert total == pytest.approx(cells * mean)


def test_extreme_temperatures_zero_vectors_and_mixed_precision():
    anchor = torch.eye(3)
    value = InfoNCE(temperature=1e-4)(anchor, -anchor, Negatives.none(anchor))
    assert value.item() == pytest.approx(1e4 + math.log(2), rel=1e-6)  # the two others are at 0
    anchor = torch.zeros(2, 3)
    positive = torch.eye(3)[:2]
    assert InfoNCE()(anchor, positive, Negatives.none(anchor)).item() == pytest.approx(math.log(2))
    *views, queue = slow.draw(8, 4, dim=16)
    anchor, positive = (view.float() for view in views[:2])
    single = Negatives(queue.vectors.float(), queue.log_weights.float())
    expected = InfoNCE()(anchor.bfloat16().float(), positive.bfloat16().float(), single)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = InfoNCE()(anchor.bfloat16(), positive.bfloat16(), single)
    assert found.dtype == torch.float32
    assert found.item() == expected.item()


def test_simcse_default():
    """SimCSE's own lines: CosineSimilarity / 0.05, cross-entropy with labels arange."""
    views = [v.requires_grad_() for v in slow.draw(8, 0, dim=12, seed=3)[:2]]
    scores = torch.nn.CosineSimilarity(dim=-1)(views[0].unsqueeze(1), views[1].unsqueeze(0)) / 0.05
    expected = torch.nn.CrossEntropyLoss()(scores, torch.arange(8))
    found = LOSSES["info_nce"].build({})(*views, Negatives.none(views[0]))
    slow.agree(found, expected, views)


def test_a_queue_as_in_esimcse_and_mocose():
    """Their lines: the cosines of the anchors with the queue are further columns, all divided by 0.05."""
    anchor, positive, _, _, queue = slow.draw(6, 15, dim=12, seed=5)
    views = [anchor.requires_grad_(), positive.requires_grad_()]
    total = torch.zeros((), dtype=torch.float64)
    for i in range(6):
        columns = [torch.cosine_similarity(anchor[i], v, dim=0) / 0.05 for v in (*positive, *queue.vectors)]
        total = total - columns[i] + torch.stack(columns).exp().sum().log()
    found = LOSSES["info_nce"].build({})(*views, Negatives(queue.vectors, torch.zeros(15, dtype=torch.float64)))
    slow.agree(found, total / 6, views)


@pytest.mark.parametrize(
    ("about", "form", "n", "k", "with_hard"),
    [
        ({}, "bce_softmax", 5, 1, True),
        ({"in_batch": False}, "cross_entropy", 2, 5, True),
        ({"false_negative": 0.2}, "cross_entropy", 5, 1, False),
        ({"false_negative": 0.2, "weight_on": "logit"}, "bce_softmax", 5, 1, True),
    ],
)
def test_every_switch_matches_the_cells(about, form, n, k, with_hard):
    anchor, positive, hard, reference, queue = slow.draw(n, k, seed=10 * n + k)
    hard, tau = hard if with_hard else None, 0.3
    found = InfoNCE(tau, hard_weight=0.7, form=form, **about)(anchor, positive, queue, hard, reference)
    rows = slow.cells(*logits(tau), (anchor, positive), queue, hard, reference, hard_weight=0.7, **about)
    columns = n * (2 if with_hard else 1) + k
    expected = slow.cross_entropy(rows) if form == "cross_entropy" else slow.binary_cross_entropy(rows, columns)
    assert found.item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_false_negative_by_hand():
    # Three sentences on three axes, so every logit but the positive's is 0; the reference finds 0 and 1 alike.
    anchor, none = torch.eye(3), Negatives.none(torch.eye(3))
    reference = torch.tensor([[1.0, 0.0], [0.95, 0.1], [-1.0, 0.3]])
    rows = [math.log(1 + 1 / math.e), math.log(1 + 1 / math.e), math.log(1 + 2 / math.e)]
    loss = InfoNCE(temperature=1.0, false_negative=0.9)
    assert loss(anchor, anchor, none, None, reference).item() == pytest.approx(sum(rows) / 3)
    kept = InfoNCE(temperature=1.0, false_negative=0.9, weight_on="logit")(anchor, anchor, none, None, reference)
    assert kept.item() == pytest.approx(math.log(1 + 2 / math.e))  # e⁰ stays in every sum
    at_phi = InfoNCE(temperature=1.0, false_negative=0.0)(anchor, anchor, none, None, anchor)  # not above φ
    assert at_phi.item() == pytest.approx(math.log(1 + 2 / math.e))


@pytest.mark.parametrize("form", ["cross_entropy", "bce_softmax"])
def test_nothing_to_compare_with_is_zero_and_said_once(form):
    anchor, positive, _, _, queue = slow.draw(3, 2)
    anchor.requires_grad_()
    loss = InfoNCE(in_batch=False, form=form)
    for _ in range(4):
        assert loss.notices() == []
        loss(anchor, positive, Negatives.none(anchor))
    value = loss(anchor, positive, Negatives.none(anchor))
    value.backward()
    assert value.item() == 0.0
    assert anchor.grad is not None
    assert not anchor.grad.any()
    (notice,) = loss.notices()
    assert "in_batch = false" in notice
    loss(anchor, positive, Negatives.none(anchor))
    assert loss.notices() == []
    filling = InfoNCE(in_batch=False, form=form)
    filling(anchor, positive, Negatives.none(anchor))
    for _ in range(9):
        filling(anchor, positive, queue)
    assert filling.notices() == []


def test_bce_is_finite_where_a_negative_takes_it_all():
    """p of a negative rounds to 1 in single precision: DCLR's own log(1 − p) is −inf there, and its gradient NaN."""
    anchor = torch.tensor([[1.0, 0.0], [0.0, 1.0]], requires_grad=True)
    positive = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    value = InfoNCE(temperature=0.02, form="bce_softmax")(anchor, positive, Negatives.none(anchor))
    value.backward()
    # Each row: −log p⁺ = 50 and −log(1 − p⁻) = −log p⁺ = 50; the mean over 2·2 cells.
    assert value.item() == pytest.approx(50.0, rel=1e-5)
    assert anchor.grad is not None
    assert torch.isfinite(anchor.grad).all()
    p = torch.softmax(torch.tensor([0.0, 50.0]), dim=0)
    assert (1 - p[1]).item() == 0.0


@pytest.mark.parametrize("passes", [1, 2])
def test_dclr_as_released(passes):
    """The code's arithmetic: logits times 0/1 weights, softmax, binary cross-entropy of every cell, one mean."""
    anchor, positive, other, reference, queue = slow.draw(6, 8, seed=4)
    second = reference if passes == 1 else reference + 0.5 * other
    views = [anchor.requires_grad_(), positive.requires_grad_()]
    noise = Negatives(queue.vectors, torch.zeros(8, dtype=torch.float64))
    tau, phi = 0.05, 0.3
    unit = torch.nn.functional.normalize
    logits = unit(anchor) @ unit(torch.cat([positive, noise.vectors])).T / tau
    weights = torch.ones_like(logits)
    for i in range(6):
        for j in range(6):
            if i != j and torch.dot(unit(reference)[i], unit(second)[j]) > phi:
                weights[i, j] = 0
    assert 0 < (weights == 0).sum() < 30
    assert torch.equal(weights[:, :6], weights[:, :6].T) == (passes == 1)
    p = (logits * weights).softmax(dim=1)
    right = torch.eye(6, 14, dtype=torch.float64)
    expected = -(right * p.log() + (1 - right) * (1 - p).log()).mean()
    loss = InfoNCE(tau, false_negative=phi, weight_on="logit", form="bce_softmax")
    slow.agree(loss(anchor, positive, noise, None, reference, None if passes == 1 else second), expected, views)


@pytest.mark.parametrize(("n", "degrees"), [(1, 10.0), (5, 10.0), (5, 60.0)])
def test_an_angular_margin_turns_the_positives_alone(n, degrees):
    anchor, positive, hard, _, negatives = slow.draw(n, 3, seed=n)
    margin, tau = math.radians(degrees), 0.3

    def turned(c):
        angle = math.acos(c)
        return math.cos(angle + margin) / tau if angle < math.pi - margin else (c + math.cos(margin) - 1) / tau

    rows = slow.cells(turned, lambda c: c / tau, (anchor, positive), negatives, hard, hard_weight=0.0)
    loss = InfoNCE(tau, degrees)
    assert loss(anchor, positive, negatives, hard).item() == pytest.approx(slow.cross_entropy(rows), abs=1e-9)


def test_an_angular_margin_at_no_angle_and_at_the_largest():
    """cos(0 + m) = cos m, with a finite gradient; from π − m on it goes on falling."""
    angles = torch.tensor([0.0, 0.5, 2.0, math.radians(169), math.radians(171), math.pi])
    cosines = angles.cos().requires_grad_()
    logits = InfoNCE(1.0, 10.0).logits(torch.diag(cosines)).diagonal()
    expected = [math.cos(a + math.radians(10)) for a in angles.tolist()[:4]]
    expected += [math.cos(a) + math.cos(math.radians(10)) - 1 for a in angles.tolist()[4:]]
    assert logits.tolist() == pytest.approx(expected, abs=1e-6)
    assert sorted(logits.tolist(), reverse=True) == logits.tolist()
    (gradient,) = torch.autograd.grad(logits.sum(), cosines)
    assert (gradient > 0).all()
    assert gradient.isfinite().all()
