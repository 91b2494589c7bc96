"""What each of several processes does in the tests of runs that they share."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from cse_cli.core.events import Pruned, SilentObserver
from cse_cli.core.results import Result
from cse_cli.recipe.load import load
from cse_cli.runs.index import all_runs
from cse_cli.training import checkpoint
from cse_cli.training import run as running
from cse_cli.training import trainer as loop
from cse_cli.training.build import Job
from cse_cli.training.train_step import StepOutput, TrainStep
from registry.distributed import rank
from registry.errors import CseError
from registry.resources import catalog
from tests.support.fakes import all_here
from tests.support.processes import without_dropout
from tests.support.shrunken import pairs

Asked = tuple[str, Sequence[str], Sequence[str]]
"""Recipe, what is changed and what is dropped."""


class Heard(SilentObserver):
    """Keeps what it hears."""

    def __init__(self) -> None:
        self.losses: dict[int, float] = {}
        self.warnings: list[str] = []

    def stepped(self, step: int, loss: float, rate: float) -> None:
        self.losses[step] = loss

    def warned(self, text: str) -> None:
        self.warnings.append(text)


def job(asked: Asked, resume: str | None = None) -> Job:
    loaded = load(*asked)
    return Job(loaded, loaded.recipe.train.seed, "cpu", resume=resume, again=resume is None, scores_only=True)


def few_pairs(patch: pytest.MonkeyPatch) -> None:
    all_here(patch)
    patch.setattr(catalog, "read_pairs", pairs)
    patch.setattr(catalog, "fingerprint", lambda name, split: f"{name}-{split}")


def exactly(asked: Mapping[str, Asked]) -> dict[str, tuple[Result, dict[int, float], dict[str, torch.Tensor]]]:
    """Return of each run its result, the losses told and the last weights; nothing left to chance, double precision.

    Adam divides by a gradient's own size: where that is 0 but for rounding, single precision would compare rounding.
    """
    found = {}
    for name, one in asked.items():
        with pytest.MonkeyPatch.context() as patch:
            few_pairs(patch)
            for drawn in ("rand", "randint_like"):
                patch.setattr(torch, drawn, getattr(torch, drawn))
            patch.setattr(loop, "LOG_EVERY", 1)
            resolved = vars(running)["resolve"]

            def still(*arguments: Any, resolved: Callable[..., Any] = resolved) -> Any:
                made = resolved(*arguments)
                without_dropout(made.method.double())
                return made

            patch.setattr(running, "resolve", still)
            states: list[dict[str, torch.Tensor]] = []
            patch.setattr(checkpoint, "state_digest", lambda state, states=states: str(states.append(state)))
            heard = Heard()
            found[name] = running.execute(job(one), heard), heard.losses, states[0] if states else {}
    return found


class Stop(KeyboardInterrupt):
    """Ends a run between two steps, as Ctrl-C does."""


def broken_and_resumed(asked: Asked, at: int, homes: Sequence[Path]) -> dict[str, Any]:
    """Return an unbroken run's result, that of one ended after `at` steps and resumed, and its id."""
    os.environ["CSE_HOME"] = str(homes[rank()])
    with pytest.MonkeyPatch.context() as patch:
        few_pairs(patch)
        whole = running.execute(job(asked), SilentObserver())
        run = end_after(asked, at)
        resumed = running.execute(job(asked, run), SilentObserver())
        ended = end_after(asked, at)
    return {"whole": whole, "resumed": resumed, "ended": ended}


def end_after(asked: Asked, at: int) -> str:
    """End a run after some steps and return its id."""
    with pytest.MonkeyPatch.context() as patch:
        take = TrainStep.take

        def stopping(self: TrainStep, done: int, *rest: Any) -> StepOutput:
            if done == at:
                raise Stop
            return take(self, done, *rest)

        patch.setattr(TrainStep, "take", stopping)
        with pytest.raises(Stop):
            running.execute(job(asked), SilentObserver())
    return all_runs()[0].run_id


class Bored(SilentObserver):
    """Ends the run at its first score after training began."""

    def evaluated(self, step: int, scores: Mapping[str, float], best: bool) -> None:
        if step > 0:
            raise Pruned("not worth it")


def failures(asked: Asked, uneven: Asked, homes: Sequence[Path]) -> dict[str, Any]:
    """Return what this process hears of runs that cannot go on."""
    os.environ["CSE_HOME"] = str(homes[rank()])
    found: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        few_pairs(patch)
        found["uneven"] = said(uneven)
        found["recorded"] = sorted(path.name for path in homes[rank()].glob("*"))
        found["other weights"] = with_other_weights(asked)
        found["not a number"] = with_nan_on_the_second(asked)
        with pytest.raises(Pruned):
            running.execute(job(asked), Bored())
    return found


def said(asked: Asked) -> tuple[str, str]:
    try:
        running.execute(job(asked), SilentObserver())
    except CseError as error:
        return type(error).__name__, error.message
    return "", "nothing"


def with_other_weights(asked: Asked) -> tuple[str, str]:
    with pytest.MonkeyPatch.context() as patch:
        resolved = vars(running)["resolve"]

        def changed(*arguments: Any) -> Any:
            made = resolved(*arguments)
            weights = dict(made.method.named_parameters())
            with torch.no_grad():
                weights[max(weights)].view(-1)[0] += 1e-3 * rank()
            return made

        patch.setattr(running, "resolve", changed)
        return said(asked)


def with_nan_on_the_second(asked: Asked) -> tuple[str, str]:
    with pytest.MonkeyPatch.context() as patch:
        take = TrainStep.take

        def spoilt(self: TrainStep, done: int, *rest: Any) -> StepOutput:
            if done == 2 and rank() == 1:
                objective = self.method.objective
                patch.setattr(self.method, "objective", lambda *given: objective(*given) * float("nan"))
            return take(self, done, *rest)

        patch.setattr(TrainStep, "take", spoilt)
        return said(asked)
