"""Events of a run, and what receives them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol


@dataclass(frozen=True)
class RunInfo:
    """Header of a run. `done` steps precede a resume, and `sentences` is the number of rows of the training text.

    `hint` is advice on its settings.
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
    hint: str = ""


class Pruned(Exception):  # noqa: N818 - not an error
    """Raised by an observer to end its run early. The run keeps its curve and has no result."""


@dataclass(frozen=True)
class Event:
    """Progress of a run."""

    needs_reply: ClassVar[bool] = False
    """Whether the run waits for its observer, which may raise an exception to end the run."""


@dataclass(frozen=True)
class Preparing(Event):
    """Slow work before the first step, such as tokenizing."""

    what: str
    done: int = 0
    total: int = 0


@dataclass(frozen=True)
class Downloading(Event):
    """Received bytes of a file. Without a size from the server, `total` equals None."""

    what: str
    done: int
    total: int | None


@dataclass(frozen=True)
class Started(Event):
    """Start or resumption of training."""

    needs_reply = True
    run: RunInfo


@dataclass(frozen=True)
class Stepped(Event):
    """Finished step. `rate` is in sentences per second."""

    step: int
    loss: float
    rate: float


@dataclass(frozen=True)
class Scoring(Event):
    """Finished share of an evaluation, from 0 to 1."""

    what: str
    share: float


@dataclass(frozen=True)
class Evaluated(Event):
    """Dev scores of a step: "evaluator.metric" → value."""

    needs_reply = True
    step: int
    scores: Mapping[str, float]
    best: bool


@dataclass(frozen=True)
class Halted(Event):
    """End of the training before its last step, by `train.patience`."""

    reason: str


@dataclass(frozen=True)
class Warned(Event):
    """Warning for the user."""

    text: str


@dataclass(frozen=True)
class Collapsed(Warned):
    """Collapse of the embeddings, reported once per run."""

    needs_reply = True


@dataclass(frozen=True)
class Stopped(Event):
    """Interruption of a run. Before the first step, `run_id` equals None, because the run cannot be resumed."""

    run_id: str | None


class Observer(Protocol):
    """Receiver of the events of a run. It must be fast, because the run waits for it."""

    def observe(self, event: Event) -> None:
        """Receive an event."""


class SilentObserver:
    """Observer that ignores the events for which a subclass has no method, such as `stepped(step, loss, rate)`."""

    def observe(self, event: Event) -> None:
        """Call the method with the name of the event, or of its base class, with the values of the event."""
        names = (kind.__name__.lower() for kind in type(event).__mro__)
        method = next((getattr(self, name) for name in names if hasattr(self, name)), None)
        if method is not None:
            method(*vars(event).values())
