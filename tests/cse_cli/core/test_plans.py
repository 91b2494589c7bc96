"""Which runs are planned: one plan, exactly its seeds, none started before it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from cse_cli.core.identity import Plan
from cse_cli.core.plans import SeedPlan, plan_of
from tests.support.records import result

MADE = datetime(2026, 11, 21, tzinfo=UTC)
FIVE = Plan(seeds=(0, 1, 2, 3, 4), made=MADE)


def runs(seeds, plan=FIVE, started=MADE):
    return [result(seed=seed, plan=plan, started=started) for seed in seeds]


def test_processes_that_do_the_runs_together_plan_together():
    later = Plan(seeds=FIVE.seeds, made=MADE + timedelta(seconds=1))
    started = MADE + timedelta(seconds=9)
    assert plan_of([*runs((0, 1, 2), started=started), *runs((3, 4), later, started)]).mode == "planned"
    assert plan_of([*runs((0, 1, 2)), *runs((3, 4), later, started)]).mode == "anytime"


def test_all_planned_seeds_make_a_planned_group():
    assert plan_of(runs(range(5))) == SeedPlan("planned", FIVE.seeds, FIVE.seeds)
    assert plan_of(runs((4, 2, 0, 1, 3))).mode == "planned"


def test_missing_seeds_are_waited_for():
    found = plan_of(runs((0, 3)))
    assert (found.mode, found.finished, found.option) == ("incomplete", (0, 3), "5")
    assert "2 of 5 planned seeds" in found.text
    assert plan_of(runs((1,), Plan(seeds=(1, 5, 7), made=MADE))).option == "1,5,7"


@pytest.mark.parametrize(
    "group",
    [
        [],
        runs(range(5), None),
        [*runs(range(5)), *runs((5,))],
        [*runs(range(5)), *runs((5,), None)],
        [*runs(range(4)), *runs((4,), None)],
        [*runs(range(4)), *runs((4,), Plan(seeds=FIVE.seeds, made=MADE + timedelta(hours=1)))],
        [*runs(range(4)), *runs((4,), started=MADE - timedelta(seconds=1))],
    ],
)
def test_anything_else_is_not_planned(group):
    assert plan_of(group) == SeedPlan("anytime")


def test_two_methods_are_planned_only_with_the_same_seeds():
    five, later = (
        plan_of(runs(range(5))),
        plan_of(runs(range(5), Plan(seeds=FIVE.seeds, made=MADE - timedelta(days=1)))),
    )
    three = plan_of(runs(range(3), Plan(seeds=(0, 1, 2), made=MADE)))
    part, none = plan_of(runs((0, 1))), plan_of(runs(range(5), None))
    assert five.paired_with(later).mode == "planned"
    assert five.paired_with(three).mode == five.paired_with(none).mode == none.paired_with(five).mode == "anytime"
    assert five.paired_with(part) == part.paired_with(five) == none.paired_with(part) == part
