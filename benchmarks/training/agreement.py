"""Do the ways compute the same loss? Speed counts only where they do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from benchmarks.training.clock import Clock
from benchmarks.training.material import Setting
from benchmarks.training.ours import Ours
from benchmarks.training.plain import Plain
from benchmarks.training.sbert import Sbert

LIMIT = 1e-6
"""Largest relative difference of two fp32 losses that is rounding."""


class Way(Protocol):
    """A way to take training steps."""

    name: str

    def steps(self, count: int, clock: Clock | None = None) -> list[float]:
        """Take so many steps; return their losses, and mark each on the clock."""


@dataclass(frozen=True)
class Agreement:
    """The losses of every way, step by step.

    Args:
        losses: Way → losses; ours first.
    """

    losses: dict[str, list[float]]

    @property
    def differences(self) -> dict[str, list[float]]:
        """Way → relative difference of each loss from ours."""
        ours, *_ = self.losses.values()
        return {
            name: [abs(one - other) / abs(other) for one, other in zip(values, ours, strict=True)]
            for name, values in list(self.losses.items())[1:]
        }

    @property
    def largest(self) -> float:
        """The largest of them."""
        return max(value for values in self.differences.values() for value in values)

    @property
    def holds(self) -> bool:
        """Whether all ways compute the same."""
        return self.largest <= LIMIT


def ways(setting: Setting, total: int | None = None, peers: Sequence[str] = ("plain", "sbert")) -> list[Way]:
    """Return our way and the peers asked for, over the same batches, each with weights of its own.

    Args:
        setting: Its model has the weights that all start from.
        total: Steps of the whole training.
        peers: Of "plain", "sbert", "shipped" (sentence-transformers, tokenising inside the step).
    """
    ours = Ours(setting) if total is None else Ours(setting, total=total)
    known: dict[str, Callable[[], Way]] = {
        "plain": lambda: Plain(setting, ours.batches, total or 10**6),
        "sbert": lambda: Sbert(setting, ours.batches, total),
        "shipped": lambda: Sbert(setting, ours.batches, total, own_tokens=True),
    }
    return [ours, *(known[peer]() for peer in peers)]


def compare(setting: Setting, steps: int, peers: Sequence[str] = ("plain", "sbert")) -> Agreement:
    """Take the same steps in every way from the same weights; the setting's model must have no dropout."""
    return Agreement({way.name: way.steps(steps) for way in ways(setting, steps, peers)})
