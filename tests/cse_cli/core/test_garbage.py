"""Garbage collection: rare in processes of `cse`, as the user has set it elsewhere and in training."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from cse_cli.core.garbage import RARELY, collect_rarely, free_memory, usual_collection


class Knot:
    """An object in a cycle."""

    def __init__(self) -> None:
        self.own = self


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)


def knots() -> int:
    return sum(isinstance(one, Knot) for one in gc.get_objects())


def test_training_collects_as_usual_and_what_surrounds_it_rarely() -> None:
    usual = gc.get_threshold()
    collect_rarely()
    with usual_collection():
        assert gc.get_threshold() == usual
    assert gc.get_threshold()[0] == RARELY


@pytest.mark.slow
def test_cycles_are_freed_and_what_stays_is_not_searched_again() -> None:
    kept = Knot()
    Knot()
    assert knots() == 2
    collect_rarely()
    free_memory()
    assert kept.own is kept
    assert knots() == 0  # `kept` is frozen: `gc.get_objects` omits it


def test_objects_of_a_program_that_calls_the_api_are_not_frozen() -> None:
    kept = Knot()
    Knot()
    free_memory()
    assert kept.own is kept
    assert knots() == 1
