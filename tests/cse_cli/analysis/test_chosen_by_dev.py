"""The selecting metric chooses configurations and judges nothing; test scores judge and choose nothing."""

from datetime import UTC, datetime, timedelta

import pytest

from cse_cli.core.identity import Plan
from tests.cse_cli.analysis.leaderboard_runs import measured, mini, tables

EARLIER = datetime(2025, 1, 1, tzinfo=UTC)


def own(seed, dev, test=60.0, before=(45.0, 50.0), **changes):
    """Return a run that scores what no paper prints: a dev set, which selects, and a test set."""
    values = {
        "scores": {"own_dev": {"spearman": dev}, "own": {"spearman": test}},
        "untrained": {"own_dev": {"spearman": before[0]}, "own": {"spearman": before[1]}},
        "metric_for_best_model": "own_dev.spearman",
    }
    return mini(seed, **{**values, **changes})


def test_best_of_is_the_best_on_dev_not_the_newest():
    better = [own(seed, 58.42, 50.0, finished=EARLIER, recipe_hash="b" * 16) for seed in range(2)]
    newest = [own(seed, 57.12, 70.0, recipe_hash="c" * 16) for seed in range(2)]  # its test score counts for nothing
    (row,) = measured([*better, *newest])
    assert (row.recipe_hash, row.configurations) == ("b" * 16, 2)
    assert row.scores["own_dev"].mean == pytest.approx(58.42)


def test_the_best_of_several_is_tested_on_fresh_seeds_only():
    """Its own seeds chose it. Seeds that were planned after all others did not."""
    other = [own(seed, 50.0, 60.0 + seed, finished=EARLIER, started=EARLIER, recipe_hash="c" * 16) for seed in range(3)]
    chosen = [own(seed, 55.0, 62.0 + seed, finished=EARLIER, started=EARLIER) for seed in range(3)]
    (row,) = measured([*other, *chosen])
    assert (row.configurations, row.scores["own"].marks, row.scores["own"].p) == (2, (), None)
    assert any(note.startswith("the best of 2 configurations by the dev scores of these seeds") for note in row.notes)
    later = Plan(seeds=(7, 8, 9), made=EARLIER + timedelta(days=1))
    times = {"started": EARLIER + timedelta(days=2), "finished": EARLIER + timedelta(days=3), "plan": later}
    (row,) = measured([*other, *chosen, *(own(seed, 55.0, 62.0 + seed / 10, **times) for seed in later.seeds)])
    assert (row.configurations, row.seeds) == (2, (7, 8, 9))
    assert row.scores["own"].marks == ("above",)
    assert not any("best of" in note for note in row.notes)


@pytest.mark.parametrize("dev", [55.0, 45.0])
def test_new_seeds_do_not_choose_and_a_new_configuration_has_none(dev):
    """The dev scores of new seeds do not change the choice. The seeds of the last configuration choose it."""
    first = Plan(seeds=(0, 1, 2), made=EARLIER)
    times = {"started": EARLIER, "finished": EARLIER, "plan": first}
    other = [own(seed, 50.0, 60.0 + seed, recipe_hash="c" * 16, **times) for seed in first.seeds]
    chosen = [own(seed, 55.0, 62.0 + seed, **times) for seed in first.seeds]
    later = Plan(seeds=(7, 8, 9), made=EARLIER + timedelta(days=1))
    times = {"started": EARLIER + timedelta(days=2), "finished": EARLIER + timedelta(days=3), "plan": later}
    new = [own(seed, dev, 62.0 + seed / 10, **times) for seed in later.seeds]
    (row,) = measured([*other, *chosen, *new])
    assert (row.recipe_hash, row.seeds, row.scores["own"].marks) == ("d" * 16, (7, 8, 9), ("above",))
    (row,) = measured([*other, *new])
    assert (row.recipe_hash, row.scores["own"].marks) == (("d" if dev > 50 else "c") * 16, ())


def test_a_test_gain_is_judged_though_the_dev_gain_is_noise():
    noise = (45.0, 44.0, 46.5)
    (row,) = measured([own(seed, dev, 56.0 + seed, (45.0, 50.0 + seed)) for seed, dev in enumerate(noise)])
    assert row.scores["own"].difference == pytest.approx(6.0)
    assert row.scores["own"].marks == ("above",)
    # However large its gain, the selecting metric has no mark.
    (row,) = measured([own(seed, 90.0 + seed, 50.0 + seed / 10, (45.0 + seed, 50.0)) for seed in range(5)])
    assert row.scores["own_dev"].difference == pytest.approx(45.0)
    assert (row.scores["own_dev"].marks, row.scores["own_dev"].p) == ((), None)


def test_rows_are_ranked_by_the_test_average():
    dev_first = [own(seed, 99.0, 60.0, recipe="a", recipe_hash="a" * 16) for seed in range(2)]
    test_first = [own(seed, 50.0, 70.0, recipe="b", recipe_hash="b" * 16) for seed in range(2)]
    assert [row.recipe for row in measured([*dev_first, *test_first])] == ["b", "a"]


def test_several_test_sets_have_an_average_that_ranks():
    def two(seed, first, second, **changes):
        scores = {"own_dev": {"spearman": 60.0}, "one": {"spearman": first}, "two": {"spearman": second}}
        return own(seed, 60.0, scores=scores, **changes)

    (table,) = tables([two(0, 90.0, 10.0, recipe="a", recipe_hash="a" * 16), two(0, 60.0, 60.0, recipe="b")])
    rows = [row for row in table.rows if row.source == "measured"]
    assert table.columns == ("own_dev", "one", "two", "Avg")
    assert [(row.recipe, row.scores["Avg"].mean) for row in rows] == [("b", 60.0), ("a", 50.0)]


def test_a_selecting_metric_does_not_rank_or_judge():
    alone = {"scores": {"dev": {"spearman": 60.0}}, "metric_for_best_model": "dev.spearman"}
    worse = [mini(seed, **alone, recipe="a", recipe_hash="a" * 16) for seed in range(3)]
    better = [mini(seed, 80.0 + seed, metric_for_best_model="dev.spearman", recipe="b") for seed in range(3)]
    rows = measured([*better, *worse])
    assert [row.recipe for row in rows] == ["a", "b"]
    assert {score.marks for row in rows for score in row.scores.values()} == {()}
    assert not any(score.significant for row in rows for score in row.scores.values())


def test_without_a_selecting_metric_no_configuration_is_chosen():
    plain = {"scores": {"own": {"spearman": 60.0}}, "untrained": {}, "metric_for_best_model": None}
    rows = measured([mini(0, **plain, recipe_hash="b" * 16), mini(0, **plain, recipe_hash="c" * 16)])
    assert sorted(row.recipe_hash[0] for row in rows) == ["b", "c"]
    assert {row.configurations for row in rows} == {1}
