"""Comparison of the losses of all implementations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from benchmarks.training.clock import Clock
from benchmarks.training.cse_steps import CseSteps
from benchmarks.training.material import Setting
from benchmarks.training.plain import Plain
from benchmarks.training.sbert import Sbert

LIMIT = 1e-6
"""Largest relative difference of two fp32 losses that rounding explains."""


class Way(Protocol):
    """An implementation of training steps."""

    name: str

    def steps(self, count: int, clock: Clock | None = None) -> list[float]:
        """Run `count` steps, mark each on the clock and return their losses."""


@dataclass(frozen=True)
class Agreement:
    """Losses of every implementation, step by step.

    Args:
        losses: Implementation → losses. `cse` is the first.
    """

    losses: dict[str, list[float]]

    @property
    def differences(self) -> dict[str, list[float]]:
        """Implementation → relative difference of each loss from that of `cse`."""
        reference, *_ = self.losses.values()
        return {
            name: [abs(one - other) / abs(other) for one, other in zip(values, reference, strict=True)]
            for name, values in list(self.losses.items())[1:]
        }

    @property
    def largest(self) -> float:
        """Largest relative difference."""
        return max(value for values in self.differences.values() for value in values)

    @property
    def holds(self) -> bool:
        """Whether the losses of all implementations agree."""
        return self.largest <= LIMIT


def ways(setting: Setting, total: int | None = None, peers: Sequence[str] = ("plain", "sbert")) -> list[Way]:
    """Return `cse` and its peers, with the same batches and separate weights.

    Args:
        setting: Common setting. All start from the weights of its model.
        total: Steps of the whole training.
        peers: Names among "plain", "sbert", "shipped" (sentence-transformers, tokenizing inside the step).
    """
    own = CseSteps(setting) if total is None else CseSteps(setting, total=total)
    known: dict[str, Callable[[], Way]] = {
        "plain": lambda: Plain(setting, own.batches, total or 10**6),
        "sbert": lambda: Sbert(setting, own.batches, total),
        "shipped": lambda: Sbert(setting, own.batches, total, own_tokens=True),
    }
    return [own, *(known[peer]() for peer in peers)]


def compare(setting: Setting, steps: int, peers: Sequence[str] = ("plain", "sbert")) -> Agreement:
    """Run the same steps with every implementation. The setting's model must not have dropout."""
    return Agreement({way.name: way.steps(steps) for way in ways(setting, steps, peers)})
