import pytest
import torch

from registry.augmenters.feature_cutoff import FeatureCutoff
from tests.registry.augmenters.literal import SHAPES, batch, cut, drawn, seeded


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
@pytest.mark.parametrize(("rate", "at_least"), [(0.01, 2), (0.2, 0), (0.99, 0)])
def test_equals_the_slow_version(lengths, width, rate, at_least):
    before = batch(lengths, width)
    assert torch.equal(cut(FeatureCutoff(rate, at_least), before).vectors, slow(before.vectors, rate, at_least))
