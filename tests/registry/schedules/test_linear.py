from registry import SCHEDULES


def test_by_hand():
    linear = SCHEDULES["linear"].build({})
    assert [linear.rate(1.0, step, 6, 2) for step in range(2, 7)] == [1.0, 0.75, 0.5, 0.25, 0.0]
