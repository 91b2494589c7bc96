import pytest
import torch

from registry.augmenters.token_cutoff import TokenCutoff
from tests.registry.augmenters.literal import SHAPES, batch, cut, drawn, seeded, zeros


def slow(embedded, rate, scope, at_least):
    out = embedded.vectors.clone()
    noise = seeded(*out.shape[:2])
    for row in range(len(out)):
        real = int(embedded.tokens.mask[row].sum())
        candidates = list(range(real if scope == "real" else out.shape[1]))
        for place in drawn(noise[row], candidates, min(len(candidates), max(at_least, int(len(candidates) * rate)))):
            out[row, place] = 0.0
    return out


def test_by_hand():
    """Of 5 real tokens ⌊5·0.4⌋ = 2 are zeroed, of 3 ⌊1.2⌋ = 1, and the two places of padding stay."""
    before = batch([5, 3], 4)
    after = cut(TokenCutoff(0.4), before)
    assert zeros(after.vectors).sum(1).tolist() == [2, 1]
    assert torch.equal(after.vectors[1, 3:], before.vectors[1, 3:])
    kept = ~zeros(after.vectors)
    assert torch.equal(after.vectors[kept], before.vectors[kept])
    assert after.tokens is before.tokens


@pytest.mark.parametrize(("lengths", "width"), SHAPES)
@pytest.mark.parametrize(("rate", "scope", "at_least"), [(0.34, "real", 1), (0.1, "real", 3), (0.9, "all", 3)])
def test_equals_the_slow_version(lengths, width, rate, scope, at_least):
    before = batch(lengths, width, extra=2)
    after = cut(TokenCutoff(rate, scope, at_least), before)
    assert torch.equal(after.vectors, slow(before, rate, scope, at_least))
