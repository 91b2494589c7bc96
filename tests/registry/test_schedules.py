from registry import SCHEDULES


def test_by_hand():
    constant = SCHEDULES["constant"].build({"milestones": [2, 3], "learning_rates": [0.5, 0.25]})
    assert [constant.rate(1.0, step, 5, 0) for step in range(5)] == [1.0, 1.0, 0.5, 0.25, 0.25]
    assert SCHEDULES["constant"].build({}).rate(0.5, 4, 5, 1) == 0.5
    linear = SCHEDULES["linear"].build({})
    assert [linear.rate(1.0, step, 6, 2) for step in range(2, 7)] == [1.0, 0.75, 0.5, 0.25, 0.0]
