"""Ways of training, timed by turns in one process."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from benchmarks.training.agreement import Way
from benchmarks.training.clock import Clock, Took


@dataclass(frozen=True)
class Timed:
    """What one way's steps took.

    Args:
        name: Of the way.
        wall: Median wall seconds of a step, for each round.
        cpu: Median processor seconds of a step, for each round.
        gigaflop: Multiplications and additions of a step's matrix products, forward and backward, in 10⁹; None where
            they could not be counted.
    """

    name: str
    wall: tuple[float, ...]
    cpu: tuple[float, ...]
    gigaflop: float | None = None

    @property
    def seconds(self) -> float:
        """Median of the rounds, on the wall."""
        return statistics.median(self.wall)

    @property
    def cpu_seconds(self) -> float:
        """Median of the rounds, of the processor."""
        return statistics.median(self.cpu)

    def table(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {**asdict(self), "wall_median": self.seconds, "cpu_median": self.cpu_seconds}


def alternate(ways: Sequence[Way], rounds: int, steps: int, warm: int, device: torch.device) -> list[Timed]:
    """Give the ways turns of `warm` steps that do not count and `steps` that do, `rounds` times; return each one's.

    Every other round goes through them backwards, so that a machine that slows down slows all of them.
    """
    took: list[list[Took]] = [[] for _ in ways]
    work = [_gigaflop(way) for way in ways]
    for number in range(rounds):
        order = range(len(ways)) if number % 2 == 0 else reversed(range(len(ways)))
        for place in order:
            clock = Clock(device)
            ways[place].steps(warm + steps, clock)
            took[place].append(clock.took().after(warm))
    return [
        Timed(way.name, _medians(took[place], "wall"), _medians(took[place], "cpu"), work[place])
        for place, way in enumerate(ways)
    ]


def _medians(rounds: Sequence[Took], kind: str) -> tuple[float, ...]:
    return tuple(statistics.median(getattr(took, kind)) for took in rounds)


def _gigaflop(way: Way) -> float | None:
    """Count the work of one step, which is not timed."""
    return counted(lambda: way.steps(1))


def counted(act: Callable[[], object]) -> float | None:
    """Return the floating-point operations of `act` in 10⁹; None where it runs through what cannot be looked into."""
    from torch.utils.flop_counter import FlopCounterMode

    counter = FlopCounterMode(display=False)
    try:
        with counter:
            act()
    except Exception:  # compiled code refuses to run under the counter, in several ways
        act()
        return None
    return counter.get_total_flops() / 1e9 or None
