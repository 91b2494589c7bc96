import pytest
import torch

from registry.augmenters.feature_cutoff import FeatureCutoff
from registry.tokens import Embedded
from tests.registry.augmenters.literal import SHAPES, STEP, batch, drawn, seeded


def cut(augmenter, embedded, seed=0):
    torch.manual_seed(seed)
    return augmenter.on_embeddings(embedded, "anchor", STEP)


def slow(vectors, rate, at_least):
    out = vectors.clone()
    rows, _, width = out.shape
    noise = seeded(rows, width)
    for row in range(rows):
        for column in drawn(noise[row], list(range(width)), min(width, max(at_least, int(width * rate)))):
            out[row, :, column] = 0.0
    return out


def test_by_hand():
    """Of 10 dimensions ⌊10·0.25⌋ = 2 are zero in every place of a sentence, padding too; 8 stay as they were."""
    before = batch([4, 2], 10)
    after = cut(FeatureCutoff(0.25), before).vectors
    gone = (after == 0).all(dim=1)
    assert gone.sum(1).tolist() == [2, 2]
    assert torch.equal((after == 0), gone.unsqueeze(1).expand_as(after))
    assert torch.equal(after[after != 0], before.vectors[after != 0])


@pytest.mark.parametrize(("lengths", "width"), SHAPES)
@pytest.mark.parametrize(("rate", "at_least"), [(0.0, 1), (0.01, 2), (0.2, 0), (0.5, 1), (0.99, 0)])
def test_equals_the_slow_version(lengths, width, rate, at_least):
    before = batch(lengths, width)
    assert torch.equal(cut(FeatureCutoff(rate, at_least), before).vectors, slow(before.vectors, rate, at_least))


def test_rate_zero_changes_nothing():
    before = batch([5, 3], 4)
    assert torch.equal(cut(FeatureCutoff(0.0), before).vectors, before.vectors)


def test_mocose_cuts_one_dimension_at_least():
    """⌊16·0.01⌋ = 0: ConSERT would cut nothing, MoCoSE cuts one of them."""
    before = batch([3], 16)
    assert (cut(FeatureCutoff(0.01), before).vectors == 0).sum() == 0
    assert (cut(FeatureCutoff(0.01, at_least=1), before).vectors == 0).all(dim=1).sum() == 1


def test_every_dimension_is_cut_as_often():
    """600 draws of 2 out of 8: 150 each, standard deviation 10.6."""
    before = batch([2] * 600, 8)
    hits = (cut(FeatureCutoff(0.25), before).vectors == 0).all(dim=1).sum(0)
    assert (hits - 150).abs().max() < 4 * 10.6


def test_gradient_passes_where_nothing_is_cut():
    before = batch([3, 2], 6, dtype=torch.float64)
    vectors = before.vectors.requires_grad_()
    after = cut(FeatureCutoff(0.5), before)
    after.vectors.sum().backward()
    assert torch.equal(vectors.grad == 0, after.vectors == 0)
    assert torch.autograd.gradcheck(lambda v: cut(FeatureCutoff(0.5), Embedded(before.tokens, v)).vectors, vectors)


def test_before_dropout_is_behind_dropout():
    """ConSERT cuts what was dropped, here what is cut is dropped: under the same masks the same (CS4)."""
    before = batch([3, 2], 6)
    torch.manual_seed(1)
    mask = torch.nn.functional.dropout(torch.ones_like(before.vectors), 0.3)
    dropped = cut(FeatureCutoff(0.5), Embedded(before.tokens, before.vectors * mask)).vectors
    assert torch.equal(cut(FeatureCutoff(0.5), before).vectors * mask, dropped)
