import math
from functools import partial

import pytest
import torch
from torch import nn

from registry.heads.batch_norm_elu import BatchNormElu
from registry.testing.materials import draw
from tests.registry.heads.literal import fit_head
from tests.support.errors import refuses

GROUPS = (("anchor", 4), ("repeated", 4), ("composed", 4))

fitted = partial(fit_head, BatchNormElu)


def by_torch(head, pooled, batches):
    """Return ELU(BatchNorm1d(Wx + b)) with torch's own layer, one call for each list of rows that share statistics."""
    norm = nn.BatchNorm1d(pooled.shape[1]).to(pooled.dtype)
    norm.load_state_dict({"weight": head.norm.weight, "bias": head.norm.bias}, strict=False)
    out = torch.empty_like(pooled)
    for rows in batches:
        out[rows] = nn.functional.elu(norm(nn.functional.linear(pooled[rows], head.linear.weight, head.linear.bias)))
    return out, norm


def test_worked_by_hand():
    # Wx + b is 1 and 3: mean 2, variance 1, so ∓1/√(1 + 10⁻⁵); ELU leaves the positive one, the other is e^x − 1.
    head = fitted(1)
    head.load_state_dict({"linear.weight": torch.tensor([[2.0]]), "linear.bias": torch.tensor([1.0])}, strict=False)
    out = head(torch.tensor([[0.0], [1.0]]), ())
    one = 1 / math.sqrt(1 + 1e-5)
    assert out[0].item() == pytest.approx(math.exp(-one) - 1, abs=1e-6)
    assert out[1].item() == pytest.approx(one, abs=1e-6)


SCOPES = {
    "each view by itself": ([], [range(4), range(4, 8), range(8, 12)]),
    "the pair views": (["composed", "repeated"], [range(4), range(4, 12)]),
    "two lists": ([["anchor"], ["repeated", "composed"]], [range(4), range(4, 12)]),
    "views apart from each other": (["anchor", "composed"], [[0, 1, 2, 3, 8, 9, 10, 11], range(4, 8)]),
    "all": ("all", [range(12)]),
    "all by name": (["anchor", "repeated", "composed"], [range(12)]),
}


@pytest.mark.parametrize(("together", "batches"), SCOPES.values(), ids=SCOPES)
def test_equals_torchs_batch_norm_called_per_set_of_rows(together, batches):
    head, pooled = fitted(5, together=together).double(), draw(1, 12, 5).double()
    nn.init.normal_(head.norm.weight)
    nn.init.normal_(head.norm.bias)
    expected, norm = by_torch(head, pooled, [list(rows) for rows in batches])
    torch.testing.assert_close(head(pooled, GROUPS), expected)
    torch.testing.assert_close(head.norm.running_mean, norm.running_mean)
    torch.testing.assert_close(head.norm.running_var, norm.running_var)
    head.eval()
    norm.eval()
    torch.testing.assert_close(head(pooled, ()), nn.functional.elu(norm(head.linear(pooled))))


def test_mixed_precision_normalizes_in_single_and_checkpoints_have_the_statistics():
    head, pooled = fitted(8), 100 + draw(5, 6, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = head(pooled, ())
        before = head.linear(pooled)
    assert before.dtype == torch.bfloat16
    assert out.dtype == torch.float32
    wide = before.double()
    normal = (wide - wide.mean(0)) / (wide.var(0, unbiased=False) + 1e-5).sqrt()
    torch.testing.assert_close(out, nn.functional.elu(normal).float(), atol=1e-4, rtol=1e-4)
    head, other = fitted(3), fitted(3, seed=1)
    head(draw(1, 12, 3), GROUPS)
    other.load_state_dict(head.state_dict())
    pooled = draw(2, 2, 3)
    assert torch.equal(head.eval()(pooled, ()), other.eval()(pooled, ()))


def test_one_row_has_no_variance_unless_views_share_it_or_in_eval_mode():
    head = fitted(3)
    with refuses("heads.batch_too_small", "train.batch_size"):
        head(torch.ones(1, 3), ())
    with refuses("heads.batch_too_small", "view 'b'"):
        head(torch.ones(3, 3), (("a", 2), ("b", 1)))
    out = fitted(3, together="all")(draw(6, 2, 3), (("a", 1), ("b", 1)))
    assert torch.isfinite(out).all()
    head = fitted(3).eval()
    assert head(torch.ones(1, 3), ()).shape == (1, 3)


def test_unknown_views_and_views_in_two_places_are_refused():
    with refuses("heads.unknown_view", "'repeatd'", "Did you mean 'repeated'?", "anchor, repeated, composed"):
        fitted(3, together=["repeatd", "composed"])(draw(1, 12, 3), GROUPS)
    with refuses("heads.duplicate_view", "'a'"):
        fitted(3, together=[["a", "b"], ["c", "a"]])
