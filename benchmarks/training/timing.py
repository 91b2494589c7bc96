"""Times of implementations that alternate in one process."""

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
    """Times of the steps of one implementation.

    Args:
        name: Name of the implementation.
        wall: Median wall seconds of a step, per round.
        cpu: Median processor seconds of a step, per round.
        gigaflop: Multiplications and additions of a step's matrix products, forward and backward, in 10⁹. None if they
            could not be counted.
    """

    name: str
    wall: tuple[float, ...]
    cpu: tuple[float, ...]
    gigaflop: float | None = None

    @property
    def seconds(self) -> float:
        """Median wall seconds over the rounds."""
        return statistics.median(self.wall)

    @property
    def cpu_seconds(self) -> float:
        """Median processor seconds over the rounds."""
        return statistics.median(self.cpu)

    def table(self) -> dict[str, Any]:
        """Return the times as a JSON object."""
        return {**asdict(self), "wall_median": self.seconds, "cpu_median": self.cpu_seconds}


def alternate(ways: Sequence[Way], rounds: int, steps: int, warm: int, device: torch.device) -> list[Timed]:
    """Run `rounds` alternating rounds of all implementations and return their times.

    A round has `warm` warm-up steps and `steps` measured steps. Every other round has the reverse order, so a machine
    that slows down affects all implementations.
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
    """Return the work of one step that is not timed."""
    return counted(lambda: way.steps(1))


def counted(act: Callable[[], object]) -> float | None:
    """Return the floating-point operations of `act` in 10⁹, or None if they cannot be counted."""
    from torch.utils.flop_counter import FlopCounterMode

    counter = FlopCounterMode(display=False)
    try:
        with counter:
            act()
    except Exception:  # compiled code fails under the counter, with several errors
        act()
        return None
    return counter.get_total_flops() / 1e9 or None
