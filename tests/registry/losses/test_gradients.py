"""The gradient of every loss of vectors is the derivative of its value, in the views and in the loss's own weights."""

import pytest
import torch

from registry import LOSSES
from registry.testing.materials import WidthOnly
from tests.registry.losses.literal import draw

LABELS = torch.tensor([3.0, 0.0, 5.0, 3.0])
CASES = [
    ("alignment", {"power": 1.0, "over": "dimensions"}),
    ("angle", {"temperature": 0.5}),
    ("bidirectional_margin", {}),
    ("bootstrap", {}),
    ("cosent", {"temperature": 0.5}),
    ("decorrelation", {}),
    ("dimension_contrast", {"temperature": 0.5}),
    ("dot_classification", {"negatives": 2, "pairs": "separate"}),
    ("focal_info_nce", {"temperature": 0.2, "clamp": True}),
    ("gist", {"temperature": 0.5}),
    ("group_distillation", {"temperature": 0.4, "teacher_temperature": 0.4, "group": 0.0}),
    ("info_nce", {"temperature": 0.2, "positive_repels": True, "angular_margin": 10.0}),
    ("info_nce", {"temperature": 0.2, "false_negative": 0.2, "form": "bce_softmax"}),
    ("info_nce", {"temperature": 0.2, "in_batch": False, "weight_on": "logit", "false_negative": -1.0}),
    ("interaction", {"head": "two_class"}),
    ("nt_xent", {"temperature": 0.2}),
    ("nt_xent_means", {"temperature": 0.3}),
    ("ordering", {"margin": 0.3, "by": "angle"}),
    ("peer_agreement", {"compare": "across", "temperature": 0.5}),
    ("peer_positives", {"temperature": 0.5, "form": "released"}),
    ("ranking_consistency", {"temperature": 0.3, "divergence": "released"}),
    ("ranking_distillation", {"form": "list_mle", "temperature": 0.4}),
    ("similarity", {}),
    ("split_contrast", {"temperature": 0.2, "positive_share": 0.9}),
]


def made(name, values, rows):
    """Return a loss, its inputs in double precision, and those views of them that it trains."""
    entry = LOSSES[name]
    loss = entry.build(values, {"online": WidthOnly(6)}).double()
    given, trained = {}, []
    for place, wanted in enumerate(entry.inputs):
        anchor, positive, *_, queue = draw(rows, 3, seed=place)
        if wanted.is_view:
            views = (anchor, positive) if wanted.several else (anchor,)
            trained += [] if wanted.name in loss.steering else [view.requires_grad_() for view in views]
            given[wanted.name] = views if wanted.several else anchor
        else:
            given[wanted.name] = queue if wanted.kind == "negatives" else LABELS[:rows]
    return loss, given, trained


@pytest.mark.slow
@pytest.mark.parametrize(("name", "values"), CASES)
def test_gradient_is_the_derivative(name, values):
    loss, given, trained = made(name, values, 4)
    weights = list(loss.parameters())
    assert torch.autograd.gradcheck(lambda *_: loss(**given), [*trained, *weights])  # it moves the leaves in place


@pytest.mark.parametrize(("name", "values"), [case for case in CASES if case[1].get("pairs") != "separate"])
def test_one_row_has_a_finite_gradient(name, values):
    loss, given, trained = made(name, values, 1)
    loss(**given).backward()
    assert all(view.grad is None or view.grad.isfinite().all() for view in trained)
