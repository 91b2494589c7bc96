import math

import pytest
import torch

from registry import LOSSES
from registry.losses.info_nce import InfoNCE
from registry.types import Negatives
from tests.registry.losses import literal as slow
from tests.support.errors import refuses


def literal(anchor, positive, negatives, tau, hard=None, hard_weight=0.0):
    """Equation 6, one exponential at a time."""

    def s(a, b):
        return sum(x * y for x, y in zip(a, b, strict=True)) / (math.hypot(*a) * math.hypot(*b))

    a, p, q = anchor.tolist(), positive.tolist(), negatives.vectors.tolist()
    weights = negatives.log_weights.tolist()
    total = 0.0
    for i, h in enumerate(a):
        below = sum(math.exp(s(h, other) / tau) for other in p)
        if hard is not None:
            for j, other in enumerate(hard.tolist()):
                below += math.exp(s(h, other) / tau + (hard_weight if i == j else 0.0))
        below += sum(math.exp(w) * math.exp(s(h, other) / tau) for w, other in zip(weights, q, strict=True))
        total -= math.log(math.exp(s(h, p[i]) / tau) / below)
    return total / len(a)


def draw(n, dim, k, seed=0):
    g = torch.Generator().manual_seed(seed)
    make = lambda rows: torch.randn(rows, dim, generator=g, dtype=torch.float64)  # noqa: E731
    weights = torch.rand(k, generator=g, dtype=torch.float64).log()
    return make(n), make(n), make(n), Negatives(make(k), weights)


def test_value_by_hand():
    # Cosines: rows (1, 0), (0, 1); temperature 0.5 → logits 2 and 0 → each row log(1 + e^-2).
    anchor = torch.tensor([[2.0, 0.0], [0.0, 3.0]])
    positive = torch.tensor([[1.0, 0.0], [0.0, 0.5]])
    value = InfoNCE(temperature=0.5)(anchor, positive, Negatives.none(anchor))
    assert value.item() == pytest.approx(math.log(1 + math.exp(-2)), abs=1e-6)


def test_value_by_hand_with_queue():
    # One row: positive cosine 1, queue cosines 1 (weight 1/2) and 0 (weight 1): e² / (e² + e²/2 + 1).
    anchor = torch.tensor([[5.0, 0.0]])
    queue = Negatives(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0.5, 1.0]).log())
    value = InfoNCE(temperature=0.5)(anchor, anchor, queue)
    assert value.item() == pytest.approx(math.log(1.5 + math.exp(-2)), abs=1e-6)


@pytest.mark.parametrize("n", [1, 2, 7])
@pytest.mark.parametrize("k", [0, 1, 5])
@pytest.mark.parametrize("tau", [0.05, 1.0])
def test_matches_the_equation(n, k, tau):
    anchor, positive, hard, negatives = draw(n, 6, k, seed=n + k)
    loss = InfoNCE(temperature=tau, hard_weight=0.7)
    assert loss(anchor, positive, negatives).item() == pytest.approx(literal(anchor, positive, negatives, tau))
    with_hard = loss(anchor, positive, negatives, hard).item()
    assert with_hard == pytest.approx(literal(anchor, positive, negatives, tau, hard, 0.7))


@pytest.mark.parametrize("k", [0, 3])
def test_gradient_is_exact(k):
    anchor, positive, hard, negatives = draw(4, 5, k)
    inputs = [t.requires_grad_() for t in (anchor, positive, hard)]
    loss = InfoNCE(temperature=0.2, hard_weight=-0.5)
    assert torch.autograd.gradcheck(lambda a, p, h: loss(a, p, negatives, h), inputs)


@pytest.mark.parametrize(("n", "k"), [(1, 0), (2, 3), (6, 0)])
def test_the_positive_may_repel_hard_negatives_too(n, k):
    """Each row's sum has the exponentials of its positive's cosines with every hard negative."""
    anchor, positive, hard, negatives = draw(n, 6, k, seed=n)
    tau, weight = 0.2, 0.7
    total = 0.0
    for i, (h, plus) in enumerate(zip(anchor.tolist(), positive.tolist(), strict=True)):
        below = sum(math.exp(slow.cosine(h, other) / tau) for other in positive.tolist())
        for query in (h, plus):
            for j, other in enumerate(hard.tolist()):
                below += math.exp(slow.cosine(query, other) / tau + (weight if i == j else 0.0))
        for entry, log_weight in zip(negatives.vectors.tolist(), negatives.log_weights.tolist(), strict=True):
            below += math.exp(log_weight + slow.cosine(h, entry) / tau)
        total -= slow.cosine(h, plus) / tau - math.log(below)
    loss = InfoNCE(tau, hard_weight=weight, positive_repels=True)
    assert loss(anchor, positive, negatives, hard).item() == pytest.approx(total / n, abs=1e-12)
    inputs = [t.requires_grad_() for t in (anchor, positive, hard)]
    assert torch.autograd.gradcheck(lambda a, p, h: loss(a, p, negatives, h), inputs)


def test_repelling_without_in_batch_keeps_own_hard_negatives():
    anchor, positive, hard, negatives = draw(3, 6, 0)
    total = 0.0
    for h, plus, minus in zip(anchor.tolist(), positive.tolist(), hard.tolist(), strict=True):
        logits = [slow.cosine(h, plus) / 0.2, slow.cosine(h, minus) / 0.2, slow.cosine(plus, minus) / 0.2]
        total -= logits[0] - math.log(sum(map(math.exp, logits)))
    found = InfoNCE(0.2, in_batch=False, positive_repels=True)(anchor, positive, negatives, hard).item()
    assert found == pytest.approx(total / 3, abs=1e-12)


def test_repelling_nothing_is_refused():
    anchor, positive, _, negatives = draw(3, 6, 0)
    with refuses("losses.no_hard_negatives", "[views.hard]"):
        InfoNCE(positive_repels=True)(anchor, positive, negatives)


def test_sum_is_n_times_mean():
    anchor, positive, _, negatives = draw(6, 5, 3)
    mean, total = (InfoNCE(reduction=r)(anchor, positive, negatives).item() for r in ("mean", "sum"))
    assert total == pytest.approx(6 * mean)


def test_switched_off_entries_do_not_exist():
    anchor, positive, _, negatives = draw(4, 5, 3)
    anchor.requires_grad_()
    off = Negatives(negatives.vectors, torch.full((3,), -torch.inf, dtype=torch.float64))
    loss = InfoNCE()
    value = loss(anchor, positive, off)
    value.backward()
    assert value.item() == loss(anchor, positive, Negatives.none(anchor)).item()
    assert anchor.grad is not None
    assert torch.isfinite(anchor.grad).all()


def test_single_row_without_queue_is_certain():
    anchor = torch.randn(1, 4, generator=torch.Generator().manual_seed(0))
    assert InfoNCE()(anchor, -anchor, Negatives.none(anchor)).item() == 0.0


def test_extreme_temperature_stays_finite():
    anchor = torch.eye(3)
    value = InfoNCE(temperature=1e-4)(anchor, -anchor, Negatives.none(anchor))
    assert value.item() == pytest.approx(1e4 + math.log(2), rel=1e-6)  # the two others are at 0


def test_zero_vector_has_cosine_zero():
    anchor = torch.zeros(2, 3)
    positive = torch.eye(3)[:2]
    assert InfoNCE()(anchor, positive, Negatives.none(anchor)).item() == pytest.approx(math.log(2))


def test_mixed_precision_computes_in_single():
    anchor, positive, _, negatives = (t.float() if isinstance(t, torch.Tensor) else t for t in draw(8, 16, 4))
    single = Negatives(negatives.vectors.float(), negatives.log_weights.float())
    expected = InfoNCE()(anchor.bfloat16().float(), positive.bfloat16().float(), single)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = InfoNCE()(anchor.bfloat16(), positive.bfloat16(), single)
    assert found.dtype == torch.float32
    assert found.item() == expected.item()


def test_simcse_default():
    """SimCSE's own lines: CosineSimilarity / 0.05, cross-entropy with labels arange."""
    views = [v.requires_grad_() for v in draw(8, 12, 0, seed=3)[:2]]
    scores = torch.nn.CosineSimilarity(dim=-1)(views[0].unsqueeze(1), views[1].unsqueeze(0)) / 0.05
    expected = torch.nn.CrossEntropyLoss()(scores, torch.arange(8))
    found = LOSSES["info_nce"].build({})(*views, Negatives.none(views[0]))
    agree(found, expected, views)


def test_a_queue_as_in_esimcse_and_mocose():
    """Their lines: the cosines of the anchors with the queue are further columns, all divided by 0.05."""
    anchor, positive, _, queue = draw(6, 12, 15, seed=5)
    views = [anchor.requires_grad_(), positive.requires_grad_()]
    total = torch.zeros((), dtype=torch.float64)
    for i in range(6):
        columns = [torch.cosine_similarity(anchor[i], v, dim=0) / 0.05 for v in (*positive, *queue.vectors)]
        total = total - columns[i] + torch.stack(columns).exp().sum().log()
    found = LOSSES["info_nce"].build({})(*views, Negatives(queue.vectors, torch.zeros(15, dtype=torch.float64)))
    agree(found, total / 6, views)


def agree(found, expected, views):
    """Check value and gradient to 1e-6."""
    assert found.item() == pytest.approx(expected.item(), rel=1e-6)
    for mine, theirs in zip(torch.autograd.grad(found, views), torch.autograd.grad(expected, views), strict=True):
        assert (mine - theirs).norm() <= 1e-6 * theirs.norm()


SWITCHES = [
    {},
    {"in_batch": False},
    {"false_negative": 0.2},
    {"false_negative": 0.2, "weight_on": "logit"},
    {"weight_on": "logit"},
    {"in_batch": False, "weight_on": "logit", "false_negative": -1.0},
]


@pytest.mark.parametrize("about", SWITCHES, ids=str)
@pytest.mark.parametrize("form", ["cross_entropy", "bce_softmax"])
@pytest.mark.parametrize(("n", "k", "with_hard"), [(1, 0, False), (5, 1, True), (2, 5, True)])
def test_every_switch_matches_the_cells(about, form, n, k, with_hard):
    anchor, positive, hard, reference, queue = slow.draw(n, k, seed=10 * n + k)
    hard = hard if with_hard else None
    tau = 0.3
    found = InfoNCE(tau, hard_weight=0.7, form=form, **about)(anchor, positive, queue, hard, reference)
    rows = slow.cells(
        lambda s: s / tau, lambda s: s / tau, (anchor, positive), queue, hard, reference, hard_weight=0.7, **about
    )
    columns = n * (2 if with_hard else 1) + k
    expected = slow.cross_entropy(rows) if form == "cross_entropy" else slow.binary_cross_entropy(rows, columns)
    assert found.item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("about", SWITCHES, ids=str)
@pytest.mark.parametrize("form", ["cross_entropy", "bce_softmax"])
def test_gradient_is_exact_under_every_switch(about, form):
    anchor, positive, hard, reference, queue = slow.draw(4, 3, seed=1)
    inputs = [t.requires_grad_() for t in (anchor, positive, hard)]
    loss = InfoNCE(0.2, hard_weight=-0.5, form=form, **about)
    assert torch.autograd.gradcheck(lambda a, p, h: loss(a, p, queue, h, reference), inputs)


def test_false_negative_by_hand():
    # Three sentences on three axes, so every logit but the positive's is 0; the reference finds 0 and 1 alike.
    anchor = torch.eye(3)
    reference = torch.tensor([[1.0, 0.0], [0.95, 0.1], [-1.0, 0.3]])
    loss = InfoNCE(temperature=1.0, false_negative=0.9)
    rows = [math.log(1 + 1 / math.e), math.log(1 + 1 / math.e), math.log(1 + 2 / math.e)]
    assert loss(anchor, anchor, Negatives.none(anchor), None, reference).item() == pytest.approx(sum(rows) / 3)
    kept = InfoNCE(temperature=1.0, false_negative=0.9, weight_on="logit")(
        anchor, anchor, Negatives.none(anchor), None, reference
    )
    assert kept.item() == pytest.approx(math.log(1 + 2 / math.e))  # e⁰ stays in every sum


def test_the_own_positive_is_never_a_false_negative():
    anchor, positive, _, reference, _ = slow.draw(4, 0)
    loss = InfoNCE(false_negative=-1.0)
    assert loss(anchor, positive, Negatives.none(anchor), None, reference).item() == 0.0
    same = torch.ones_like(reference)
    assert loss(anchor, positive, Negatives.none(anchor), None, same).item() == 0.0


def test_phi_itself_is_no_false_negative():
    anchor = torch.eye(2)
    reference = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    loss = InfoNCE(false_negative=0.0)
    plain = InfoNCE()(anchor, anchor, Negatives.none(anchor))
    assert loss(anchor, anchor, Negatives.none(anchor), None, reference).item() == plain.item()


def test_reference_gets_no_gradient_and_can_have_another_width():
    anchor, positive, _, _, queue = slow.draw(4, 2)
    reference = torch.randn(4, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    anchor.requires_grad_()
    InfoNCE(false_negative=0.1)(anchor, positive, queue, None, reference).backward()
    assert reference.grad is None
    assert anchor.grad is not None
    assert anchor.grad.any()


def test_a_reference_without_phi_changes_nothing():
    anchor, positive, _, reference, queue = slow.draw(5, 3)
    assert torch.equal(InfoNCE()(anchor, positive, queue, None, reference), InfoNCE()(anchor, positive, queue))


def test_phi_without_a_reference_is_refused():
    anchor = torch.eye(2)
    with refuses("losses.no_reference_view", "false_negative = 0.9", "[views.reference]"):
        InfoNCE(false_negative=0.9)(anchor, anchor, Negatives.none(anchor))


def test_queue_alone_is_moco_by_hand():
    # Positive cosine 1, queue cosine 0, τ = 0.5: log(1 + e⁻²) for each row; the other sentence (cosine 1) counts not.
    anchor = torch.tensor([[1.0, 0.0], [2.0, 0.0]])
    queue = Negatives(torch.tensor([[0.0, 1.0]]), torch.zeros(1))
    value = InfoNCE(temperature=0.5, in_batch=False)(anchor, anchor, queue)
    assert value.item() == pytest.approx(math.log(1 + math.exp(-2)), abs=1e-6)


@pytest.mark.parametrize("form", ["cross_entropy", "bce_softmax"])
def test_nothing_to_compare_with_is_zero_and_said_once(form):
    anchor, positive, *_ = slow.draw(3, 0)
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


def test_a_queue_that_fills_is_not_reported():
    anchor, positive, _, _, queue = slow.draw(3, 2)
    loss = InfoNCE(in_batch=False)
    loss(anchor, positive, Negatives.none(anchor))
    for _ in range(9):
        loss(anchor, positive, queue)
    assert loss.notices() == []


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


def test_bce_sum_goes_over_all_cells():
    anchor, positive, _, _, queue = slow.draw(4, 3)
    mean, total = (InfoNCE(form="bce_softmax", reduction=r)(anchor, positive, queue).item() for r in ("mean", "sum"))
    assert total == pytest.approx(mean * 4 * 7)


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
    agree(loss(anchor, positive, noise, None, reference, None if passes == 1 else second), expected, views)


@pytest.mark.parametrize("degrees", [10.0, 60.0])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_an_angular_margin_turns_the_positives_alone(n, degrees):
    anchor, positive, hard, _, negatives = slow.draw(n, 3, seed=n)
    margin, tau = math.radians(degrees), 0.3

    def turned(c):
        angle = math.acos(c)
        return math.cos(angle + margin) / tau if angle < math.pi - margin else (c + math.cos(margin) - 1) / tau

    rows = slow.cells(turned, lambda c: c / tau, (anchor, positive), negatives, hard, hard_weight=0.0)
    loss = InfoNCE(tau, degrees)
    assert loss(anchor, positive, negatives, hard).item() == pytest.approx(slow.cross_entropy(rows), abs=1e-9)
    loss_of = lambda a, p: loss(a, p, negatives, hard)  # noqa: E731
    assert torch.autograd.gradcheck(loss_of, (anchor.requires_grad_(), positive.requires_grad_()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_angular_margin_at_no_angle_and_at_the_largest(dtype):
    """cos(0 + m) = cos m, with a finite gradient; from π − m on it goes on falling."""
    angles = torch.tensor([0.0, 0.5, 2.0, math.radians(169), math.radians(171), math.pi], dtype=dtype)
    cosines = angles.cos().requires_grad_()
    logits = InfoNCE(1.0, 10.0).logits(torch.diag(cosines)).diagonal()
    expected = [math.cos(a + math.radians(10)) for a in angles.tolist()[:4]]
    expected += [math.cos(a) + math.cos(math.radians(10)) - 1 for a in angles.tolist()[4:]]
    assert logits.tolist() == pytest.approx(expected, abs=1e-6)
    assert sorted(logits.tolist(), reverse=True) == logits.tolist()
    (gradient,) = torch.autograd.grad(logits.sum(), cosines)
    assert gradient.isfinite().all()
    assert (gradient > 0).all()
