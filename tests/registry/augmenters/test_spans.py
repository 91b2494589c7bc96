from random import Random

import pytest

from registry.augmenters.spans import Span, Spans
from registry.tokens import Pieces
from tests.support.errors import refuses


class Scripted(Random):
    """Draws what it is told, in order."""

    def __init__(self, sample, betas, starts):
        super().__init__(0)
        self.sampled, self.betas, self.starts, self.asked = sample, iter(betas), iter(starts), []

    def sample(self, population, k):
        self.asked.append(("sample", population, k))
        return self.sampled

    def betavariate(self, alpha, beta):
        self.asked.append(("beta", alpha, beta))
        return next(self.betas)

    def randint(self, low, high):
        self.asked.append(("randint", low, high))
        return next(self.starts)


def test_value_by_hand():
    # 100 sub-words, cells of 10: the 3rd and the 8th, for 2 and 6 are places among the nine that leave one between.
    rng = Scripted([6, 2], betas=[0.5, 0.0, 0.99, 1.0, 0.25, 0.5], starts=[1, 19, 27, 0, 66, 80])
    made = Spans(shortest=2, longest=10).draw(100, rng)
    assert made == [
        (Span(21, 27), [Span(19, 21), Span(27, 36)]),  # lengths 2 + ⌊0.5·8⌋, 2 + 0, 2 + ⌊0.99·8⌋
        (Span(70, 80), [Span(66, 70), Span(80, 86)]),  # 10; 2 + ⌊0.25·8⌋, 2 + ⌊0.5·8⌋
    ]
    assert rng.asked == [
        ("sample", range(9), 2),
        ("beta", 4, 2), ("randint", 20 - 20, 10 - 6), ("beta", 2, 4), ("beta", 2, 4),
        ("randint", 19, 27), ("randint", 12, 27),
        ("beta", 4, 2), ("randint", 0, 0), ("beta", 2, 4), ("beta", 2, 4),
        ("randint", 66, 80), ("randint", 64, 80),
    ]  # fmt: skip


@pytest.mark.parametrize(("length", "anchors", "positives"), [(4, 1, 1), (9, 2, 2), (40, 3, 1), (5000, 2, 2)])
def test_every_span_is_where_it_may_be(length, anchors, positives):
    spans = Spans(anchors=anchors, positives=positives, shortest=3, longest=20)
    longest = min(20, length // (2 * anchors))
    for seed in range(200):
        made = spans.draw(length, Random(seed))
        assert len(made) == anchors
        for anchor, near in made:
            assert len(near) == positives
            for span in (anchor, *near):
                assert 0 <= span.start < span.stop <= length or longest == 0
                assert longest == 0 or min(3, longest) <= span.stop - span.start <= longest
                assert span.start <= anchor.stop
                assert span.stop >= anchor.start
        if longest:
            ends = [anchor.stop for anchor, _ in made]
            assert all(end <= other.start for end, (other, _) in zip(ends, made[1:], strict=False))


@pytest.mark.slow
def test_all_sets_of_cells_are_drawn_equally_often():
    """Two of five cells that are not side by side: six sets."""
    spans = Spans(shortest=10, longest=10)
    seen = {}
    for seed in range(6000):
        cells = tuple(anchor.start // 10 for anchor, _ in spans.draw(50, Random(seed)))
        seen[cells] = seen.get(cells, 0) + 1
    assert set(seen) == {(0, 2), (0, 3), (0, 4), (1, 3), (1, 4), (2, 4)}
    assert all(abs(count - 1000) < 120 for count in seen.values())  # four standard deviations


def test_views_that_draw_alike_take_parts_of_one_drawing_and_short_texts_whole():
    ids = tuple(range(300))
    views = [Spans(anchor, positive, shortest=4, longest=30) for anchor in (0, 1) for positive in (None, 0, 1)]
    made = [view.on_pieces([Pieces(ids), Pieces(ids)], Random(7)) for view in views]
    rng = Random(7)
    for row in range(2):
        drawn = [span for anchor, near in views[0].draw(300, rng) for span in (anchor, *near)]
        assert [rows[row].first for rows in made] == [ids[start:stop] for start, stop in drawn]
    for length in (0, 1, 3):
        pieces = [Pieces(tuple(range(length)))]
        assert Spans(1, 1).on_pieces(pieces, Random(0)) == pieces


@pytest.mark.parametrize(
    ("values", "code", "named"),
    [
        ({"anchor": 2}, "augmenters.no_such_span", "set anchor = 1 or less"),
        ({"positive": 3, "positives": 3}, "augmenters.no_such_span", "set positive = 2 or less"),
        ({"shortest": 9, "longest": 8}, "augmenters.wrong_lengths", "shortest = 9 is more than longest = 8"),
    ],
)
def test_places_that_do_not_exist(values, code, named):
    with refuses(code, named):
        Spans(**values)
