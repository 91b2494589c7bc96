from random import Random

import pytest

from registry.augmenters.mask_nested_span import MaskNestedSpan
from registry.testing.materials import WidthOnly
from registry.tokens import Pieces
from tests.support.errors import refuses

MASK = 103


def made(rate):
    augmenter = MaskNestedSpan(rate)
    augmenter._mask = MASK
    return augmenter


class Scripted(Random):
    """Draws what it is told."""

    def __init__(self, *numbers):
        super().__init__(0)
        self.numbers = iter(numbers)

    def random(self):
        return next(self.numbers)


def test_value_by_hand_and_every_place_is_as_likely():
    # Ten sub-words: two masked from ⌊0.5·9⌋ = 4 on, four from ⌊0.5·7⌋ = 3 on. Three: one (0.6 rounded) and one (1.2).
    rows = [Pieces(tuple(range(10)), second=(7, 8)), Pieces((20, 21, 22))]
    short, long = (made(rate).on_pieces(rows, Scripted(0.5, 0.99)) for rate in (0.2, 0.4))
    assert short == [Pieces((0, 1, 2, 3, MASK, MASK, 6, 7, 8, 9), second=(7, 8)), Pieces((20, 21, MASK))]
    assert long == [Pieces((0, 1, 2, MASK, MASK, MASK, MASK, 7, 8, 9), second=(7, 8)), Pieces((20, 21, MASK))]
    row, starts = [Pieces(tuple(range(10)))], [0] * 9
    rng = Random(1)
    for _ in range(9000):
        starts[made(0.2).on_pieces(row, rng)[0].first.index(MASK)] += 1
    assert all(850 < count < 1150 for count in starts)

    class Maskless:
        mask = None

    encoder = WidthOnly(4)
    encoder.vocabulary = Maskless()
    with refuses("masking.no_mask", "mask_nested_span"):
        MaskNestedSpan().bind(encoder)


@pytest.mark.parametrize("rates", [(0.2, 0.4), (0.34, 0.35), (0.5, 1.0)])
def test_what_one_view_lost_the_other_lost_too(rates):
    """With the same seed for both views, as a step gives it to augmenters that draw alike."""
    assert MaskNestedSpan.draws_alike
    rows = [Pieces(tuple(range(1, n + 1))) for n in range(40)]
    for seed in range(50):
        short, long = (made(rate).on_pieces(rows, Random(seed)) for rate in rates)
        for row, less, more in zip(rows, short, long, strict=True):
            lost = [[place for place, piece in enumerate(view.first) if piece == MASK] for view in (less, more)]
            assert set(lost[0]) <= set(lost[1])
            assert [len(places) for places in lost] == [int(rate * len(row.first) + 0.5) for rate in rates]
            assert all(places == list(range(places[0], places[0] + len(places))) for places in lost if places)
            kept = [place for place in range(len(row.first)) if place not in lost[1]]
            assert [more.first[place] for place in kept] == [row.first[place] for place in kept]
