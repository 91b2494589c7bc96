"""What a run tells the person watching; the screen and the tests each listen in their own way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Started:
    """What is about to run, printed before the first step.

    Args:
        run_id: In the tracking store.
        steps: Of the whole training.
        done: Steps done before a resume.
        sentences: Rows of the training text.
    """

    recipe: str
    title: str
    seed: int
    device: str
    precision: str
    run_id: str
    home: str
    steps: int
    done: int
    sentences: int


class Pruned(Exception):  # noqa: N818 - an end on purpose, not an error
    """Raised by an observer to end its run: going on is not worth it. The run keeps its curve and has no result."""


class Observer(Protocol):
    """Hears of progress; must not slow training down."""

    def preparing(self, what: str, done: int = 0, total: int = 0) -> None:
        """Something slow happens before the first step: loading, tokenising."""

    def downloading(self, what: str, done: int, total: int | None) -> None:
        """Bytes of a file arrive; `total` is None where the server does not say how many there are."""

    def started(self, run: Started) -> None:
        """Training begins or goes on."""

    def stepped(self, step: int, loss: float, rate: float) -> None:
        """A step is done; `rate` in sentences a second."""

    def evaluated(self, step: int, scores: Mapping[str, float], best: bool) -> None:
        """Dev scores ("evaluator.metric" → value) of a step are known."""

    def collapsed(self, text: str) -> None:
        """Sentence vectors have fallen together; told once."""

    def warned(self, text: str) -> None:
        """Something needs a person's eye."""

    def stopped(self, run_id: str | None) -> None:
        """The run was interrupted; `run_id` can be taken up again, None was too young for that."""


class Silent:
    """An observer that says nothing."""

    def preparing(self, what: str, done: int = 0, total: int = 0) -> None:
        """Say nothing."""

    def downloading(self, what: str, done: int, total: int | None) -> None:
        """Say nothing."""

    def started(self, run: Started) -> None:
        """Say nothing."""

    def stepped(self, step: int, loss: float, rate: float) -> None:
        """Say nothing."""

    def evaluated(self, step: int, scores: Mapping[str, float], best: bool) -> None:
        """Say nothing."""

    def collapsed(self, text: str) -> None:
        """Take it as a warning."""
        self.warned(text)

    def warned(self, text: str) -> None:
        """Say nothing."""

    def stopped(self, run_id: str | None) -> None:
        """Say nothing."""
