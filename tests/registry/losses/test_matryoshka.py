import pytest
import torch

from registry.losses.alignment import Alignment
from registry.losses.bootstrap import Bootstrap
from registry.losses.info_nce import InfoNCE
from registry.losses.jensen_shannon_information import JensenShannonInformation
from registry.losses.matryoshka import Matryoshka
from registry.losses.ranking_distillation import RankingDistillation
from registry.tokens import Encoded, Tokens
from registry.types import Negatives
from tests.registry.losses import literal as slow
from tests.support.errors import refuses


def test_value_by_hand_and_every_input_is_cut_except_the_reference():
    # Squared distances of unit vectors. Whole: cosine 0.6, so 2 − 1.2. One dimension: 1 and 1, so 0.
    anchor, positive = torch.tensor([[3.0, 4.0]]), torch.tensor([[2.0, 0.0]])
    value = Matryoshka(Alignment(), widths=[1, 2], weights=[3.0, 0.5])(anchor=anchor, positive=positive)
    assert value.item() == pytest.approx(0.5 * 0.8, abs=1e-6)
    anchor, positive, hard, reference, negatives = slow.draw(5, 3)
    loss = InfoNCE(temperature=0.5, false_negative=0.2)
    expected = 0.0
    for width in (2, 5):
        queue = Negatives(negatives.vectors[:, :width], negatives.log_weights)
        expected += loss(anchor[:, :width], positive[:, :width], queue, hard[:, :width], reference).item()
    value = Matryoshka(loss, [2, 5])(
        anchor=anchor, positive=positive, negatives=negatives, hard=hard, reference=reference
    )
    assert value.item() == pytest.approx(expected, abs=1e-9)


def test_teachers_have_any_width_and_targets_and_encoded_views_are_cut():
    anchor, positive, there, back, _ = slow.draw(4, 0)
    teacher = slow.draw(4, 0, dim=3)[0]
    distilled = Matryoshka(RankingDistillation(), [6])(anchor=anchor, positive=positive, teacher=teacher)
    assert distilled.item() == RankingDistillation()(anchor, positive, teacher).item()
    views = {"anchor": anchor, "positive": positive, "anchor_target": there, "positive_target": back}
    cut = {name: vectors[:, :2] for name, vectors in views.items()}
    assert Matryoshka(Bootstrap(), [2])(**views).item() == Bootstrap()(**cut).item()
    mask = torch.ones(2, 3, dtype=torch.int64)
    sentence, hidden = slow.draw(2, 0)[0], slow.draw(6, 0)[1].reshape(2, 3, 6)
    whole, cut = (
        Encoded(sentence[:, :width], hidden, hidden[..., :width], Tokens(mask, mask, mask, mask)) for width in (6, 3)
    )
    loss = JensenShannonInformation()
    assert Matryoshka(loss, [3])(anchor=whole).item() == loss(cut).item() != loss(whole).item()


def test_a_wrapper_wraps_a_wrapper_and_checks_widths_and_weights():
    anchor, positive, *_ = slow.draw(4, 0)
    twice = Matryoshka(Matryoshka(Alignment(), [2], [0.5]), [3, 6])
    once = Alignment()(anchor[:, :2], positive[:, :2])
    assert twice(anchor=anchor, positive=positive).item() == pytest.approx(once.item(), abs=1e-9)
    with refuses("losses.unequal_lengths"):
        Matryoshka(Alignment(), [1, 2], [1.0])
    with refuses("losses.too_wide", 7):
        Matryoshka(Alignment(), [7])(anchor=torch.eye(6), positive=torch.eye(6))
