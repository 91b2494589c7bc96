import pytest
import torch

from registry.augmenters.embedding_dropout import EmbeddingDropout
from tests.registry.augmenters.literal import SHAPES, batch, cut, drawn, seeded


def slow(embedded, rate, draw, scale):
    out = embedded.vectors.clone()
    rows, length, width = out.shape
    noise = seeded(rows, length * width)
    for row in range(rows):
        cells = list(range(int(embedded.tokens.mask[row].sum()) * width))
        if draw == "count":
            gone = drawn(noise[row], cells, int(len(cells) * rate))
        else:
            gone = {cell for cell in cells if noise[row][cell] < torch.tensor(rate).item()}
        for cell in gone:
            out[row, cell // width, cell % width] = 0.0
    return out / (1 - rate) if scale else out


def test_by_hand():
    """⌊3·4·0.3⌋ = 3 of 12 numbers go, ⌊1·4·0.3⌋ = 1 of 4; padding stays; the others are as they were, or ÷ 0.7."""
    before = batch([3, 1], 4)
    for scale in (False, True):
        after = cut(EmbeddingDropout(0.3, scale=scale), before).vectors
        assert (after == 0).flatten(1).sum(1).tolist() == [3, 1]
        assert not (after[1, 1:] == 0).any()
        kept = after != 0
        assert torch.allclose(after[kept], before.vectors[kept] / (0.7 if scale else 1.0))


@pytest.mark.parametrize(
    ("rate", "draw", "scale"), [(0.1, "count", False), (0.5, "chance", False), (0.9, "chance", True)]
)
@pytest.mark.parametrize(("lengths", "width"), SHAPES[1:])
def test_equals_the_slow_version(lengths, width, rate, draw, scale):
    before = batch(lengths, width, extra=1)
    assert torch.equal(cut(EmbeddingDropout(rate, draw, scale), before).vectors, slow(before, rate, draw, scale))
