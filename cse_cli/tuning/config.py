"""What is maximised: the dev metric that chooses a state, and nothing that looks at test data.

What a study of trials is asked to do, what it tells while it does it, and how it ended.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, Protocol

from cse_cli.core.console import Observer
from cse_cli.recipe.schema import Recipe
from cse_cli.recipe.validate import is_test_split
from cse_cli.tuning.space import Knob
from registry import EVALUATORS
from registry.errors import CseError


def objective(recipe: Recipe) -> str:
    """Return the "evaluator.metric" that tuning maximises.

    Raises:
        CseError: The recipe names none, or one of test data.
    """
    select = recipe.evaluate.select
    dev = _dev_metrics(recipe)
    action = f"--metric {dev[0]}" if dev else "add an evaluator with a dev split to the recipe"
    if select is None:
        raise CseError("the recipe says no dev metric to maximise: evaluate.select is not set", action)
    name = select.rpartition(".")[0]
    if is_test_split(recipe.evaluators[name].params):
        split = recipe.evaluators[name].params.get("split", "test")
        raise CseError(
            f"'{select}' scores split '{split}': tuning takes dev metrics only, as the best of many trials on test "
            "data says nothing of other data",
            action,
        )
    return select


def _dev_metrics(recipe: Recipe) -> list[str]:
    """Return the main metric of every evaluator whose split may choose."""
    return [
        f"{name}.{EVALUATORS[part.name].cls.metric}"
        for name, part in recipe.evaluators.items()
        if not is_test_split(part.params)
    ]


TRIALS = 20
"""Trials of a study where nobody says how many."""

Value = str | int | float | bool | None
Ending = Literal["budget", "exhausted", "timeout"]
"""All trials are done; every point of the space is; no trial was begun after the time was over."""
State = Literal["complete", "pruned", "failed"]


@dataclass(frozen=True)
class Plan:
    """A search for better values of a recipe's parameters.

    Args:
        name: Of the study.
        recipe: File or name, as `cse run` takes it.
        knobs: What is varied.
        overrides: `--set` texts for every trial.
        unset: `--unset` keys for every trial.
        trials: Of the study in all, whoever runs them; None keeps what it was created with, or takes `TRIALS`.
        timeout: Seconds after which this command begins no trial.
        sampler: tpe, gp, random, grid or qmc.
        pruner: auto, median, percentile, halving, hyperband, wilcoxon or none.
        seeds: A trial's score is the mean over them; empty is the recipe's own.
        steps: Of training, instead of the recipe's.
        storage: `postgresql://…`, or a journal file; None is a journal in the state directory.
        device: As `cse_cli.core.devices.choose` takes it.
        workers: Processes on this machine; None is one for each CUDA device.
        join: The study must exist.
    """

    name: str
    recipe: str
    knobs: tuple[Knob, ...]
    overrides: tuple[str, ...] = ()
    unset: tuple[str, ...] = ()
    trials: int | None = None
    timeout: float | None = None
    sampler: str = "tpe"
    pruner: str = "auto"
    seeds: tuple[int, ...] = ()
    steps: int | None = None
    storage: str | None = None
    device: str = "auto"
    workers: int | None = None
    join: bool = False

    def to_json(self) -> str:
        """Return the plan as text that `from_json` reads."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str, **changes: Any) -> Plan:
        """Return the plan that `to_json` wrote, with some fields changed."""
        tables = json.loads(text)
        knobs = tuple(Knob(**{key: _frozen(value) for key, value in knob.items()}) for knob in tables.pop("knobs"))
        plan = Plan(knobs=knobs, **{key: _frozen(value) for key, value in tables.items()})
        return replace(plan, **changes)


@dataclass(frozen=True)
class Opened:
    """A study about to be worked on.

    Args:
        storage: Its address, without a password.
        done: Trials that have an outcome already.
        budget: Trials in all.
        devices: One for each worker of this command.
        run_id: Its run in the tracking store; None where another process has it.
    """

    name: str
    storage: str
    done: int
    budget: int
    devices: tuple[str, ...]
    run_id: str | None


@dataclass(frozen=True)
class Ended:
    """What came of a trial.

    Args:
        number: In the study, from 0: the recipe's own values.
        values: Knob → value; nothing where the recipe's own values cannot be a point of the space.
        score: Of a complete trial; of a pruned one what it had reached.
        reason: Why it failed.
        best: Whether no complete trial before it was better.
        seconds: From beginning to end.
        own: Whether it had the recipe's own values.
        run_id: Its run in the tracking store.
    """

    number: int
    values: Mapping[str, Value]
    state: State
    score: float | None
    reason: str | None
    best: bool
    seconds: float
    own: bool = False
    run_id: str | None = None


@dataclass(frozen=True)
class Outcome:
    """How a command's share in a study ended.

    Args:
        name: Of the study.
        storage: Its address as given, password included: for opening it again.
        ran: Trials that came to their end meanwhile.
        counts: State → trials of the whole study.
        ending: Why no further trial was begun.
        run_id: The study's run in the tracking store; None where another process has it.
    """

    name: str
    storage: str | None
    ran: int
    counts: Mapping[State, int]
    ending: Ending
    run_id: str | None = None


class Watcher(Observer, Protocol):
    """Hears of a study's progress, and of that of the runs its trials are made of."""

    def opened(self, study: Opened) -> None:
        """The study exists, and its trials are about to begin."""

    def trial_began(self, number: int, values: Mapping[str, Value], budget: int) -> None:
        """A trial of this process begins."""

    def trial_ended(self, trial: Ended) -> None:
        """A trial of this command came to its end."""

    def repeats(self, number: int, lost: int) -> None:
        """Trial `lost`, whose process is gone, is done again under a new number."""

    def waits(self, count: int) -> None:
        """Only trials that other processes are at are left; if one of these dies, its trial is taken over."""

    def left(self, name: str) -> None:
        """The search was interrupted; the study is kept under this name."""


def _frozen(value: Any) -> Any:
    return tuple(_frozen(inner) for inner in value) if isinstance(value, list) else value
