import pytest
import torch

from registry.augmenters.span_cutoff import SpanCutoff
from tests.registry.augmenters.literal import SHAPES, batch, cut, seeded, zeros


def slow(embedded, rate, part):
    out = embedded.vectors.clone()
    noise = seeded(len(out))
    for row in range(len(out)):
        n = int(embedded.tokens.mask[row].sum())
        length = int(n * rate) if part == "inside" else max(1, int(n * (1 - rate)))
        start = int(noise[row] * (n - length + 1))
        span = range(start, start + length)
        for place in range(n):
            if (place in span) == (part == "inside"):
                out[row, place] = 0.0
    return out


def test_by_hand():
    """Of 6 real tokens ⌊6·0.5⌋ = 3 neighbors are zeroed, of 2 one; outside, these are what stays."""
    before = batch([6, 2], 3)
    for part in ("inside", "outside"):
        gone = zeros(cut(SpanCutoff(0.5, part), before).vectors)
        span = gone if part == "inside" else ~gone & before.tokens.mask.bool()
        places = [torch.nonzero(row).flatten().tolist() for row in span]
        assert [len(found) for found in places] == [3, 1]
        assert places[0] == list(range(places[0][0], places[0][0] + 3))
        assert not gone[1, 2:].any()


@pytest.mark.parametrize(("lengths", "width"), SHAPES)
@pytest.mark.parametrize("rate", [0.0, 0.2, 0.95])
@pytest.mark.parametrize("part", ["inside", "outside"])
def test_equals_the_slow_version(lengths, width, rate, part):
    before = batch(lengths, width, extra=1)
    assert torch.equal(cut(SpanCutoff(rate, part), before).vectors, slow(before, rate, part))
