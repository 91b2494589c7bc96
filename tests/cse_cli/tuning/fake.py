"""A search whose runs cost nothing, for the tests of the driver."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import FrozenTrial

from cse_cli.core.identity import Identity
from cse_cli.core.results import Result, Versions
from cse_cli.jobs.engine import Engine, release
from cse_cli.jobs.job import Job
from cse_cli.runs.claim import Claimed, claim, open_run
from cse_cli.runs.events import Listener
from cse_cli.runs.index import RecordedRun
from cse_cli.runs.record import RESULT, About
from cse_cli.runs.signals import ending
from cse_cli.tuning.driver import Driver
from cse_cli.tuning.parameters import Parameter
from cse_cli.tuning.results import read_search
from cse_cli.tuning.study import SearchConfig, load_study, open_study
from cse_cli.tuning.view import TuneScreen

STEPS = 8
Score = Callable[[Job, Listener], float]
"""Executes a run, tells its events, and returns the score."""


def parameter(name: str = "train.learning_rate", **changes: Any) -> Parameter:
    """Return a continuous parameter."""
    about: dict[str, Any] = {
        "paths": (name,), "low": 1e-5, "high": 1e-3, "log": True, "step": None, "whole": False,
        "choices": None, "default": 3e-5, "source": "--range", **changes,
    }  # fmt: skip
    return Parameter(name=name, **about)


BATCHES = parameter("train.batch_size", low=8.0, high=32.0, log=False, step=8.0, whole=True, default=16)
SCHEDULES = parameter(
    "train.schedule", low=None, high=None, log=False, choices=("linear", "constant"), default="linear"
)


def recipe(folder: Path, name: str = "fake", **train: Any) -> Path:
    """Write a recipe that is valid and never built."""
    settings = {"steps": 8, "evaluate_every": 2, **train}
    path = folder / f"{name}.toml"
    path.write_text(
        'schema = 1\ntitle = "Fake"\n[data]\nfile = "text.txt"\n[encoders.online]\nname = "transformer"\n'
        'model = "none"\n[views.anchor]\n[views.positive]\n[losses.info_nce]\n'
        '[evaluate]\nmetric_for_best_model = "dev.spearman"\n'
        '[evaluators.dev]\nname = "sts"\ndataset = "stsb_open"\nsplit = "dev"\n[train]\n'
        + "".join(f"{key} = {value}\n" for key, value in settings.items()),
        encoding="utf-8",
    )
    return path


def config(folder: Path, **changes: Any) -> SearchConfig:
    """Return a search over one continuous parameter of the fake recipe."""
    about: dict[str, Any] = {
        "name": "search", "recipe": str(recipe(folder)), "parameters": (parameter(),), "seeds": (42,), **changes,
    }  # fmt: skip
    return SearchConfig(**about)


def good(job: Job, tell: Listener) -> float:
    """Return a score that depends only on the values."""
    train = job.loaded.recipe.train
    return -float(train.learning_rate + train.weight_decay + train.batch_size)


def raising(error: BaseException, *numbers: int) -> Score:
    """Return a score that raises an error once in each of these trials."""
    left = {*numbers}

    def score(job: Job, tell: Listener) -> float:
        if job.trial in left:
            left.discard(job.trial)
            raise error
        return good(job, tell)

    return score


class FakeEngine(Engine):
    """Executes the oldest started run on each call of `ended`, with real claims and records.

    Args:
        score: Executes a run.
        slots: Maximum number of started runs.
    """

    slots = 1

    def __init__(self, score: Score = good, slots: int = 1) -> None:
        self.score = score
        self.slots = slots  # type: ignore[misc]
        self.jobs: list[Job] = []
        self.resumed: list[bool] = []
        self.most = 0
        self._queue: deque[tuple[Job, Claimed, Listener]] = deque()

    def claim(self, job: Job, _device: str | None) -> Claimed | RecordedRun:
        """Claim a run, whose recipe names no model."""
        recipe = job.loaded.recipe
        claimed = claim(job.about(Identity(settings=recipe.hash())), recipe.resolved())
        if isinstance(claimed, Claimed):
            self.jobs.append(job)
            self.resumed.append(not claimed.is_new)
        return claimed

    @property
    def device(self) -> str:
        return "cpu"

    def start(self, claimed: Claimed, listener: Listener) -> None:
        self._queue.append((self.jobs[-1], claimed, listener))
        self.most = max(self.most, len(self._queue))

    def ended(self) -> list[tuple[str, Result | Exception]]:
        if not self._queue:
            return []
        job, claimed, listener = self._queue.popleft()
        record = open_run(claimed.run_id, listener)

        def tell(kind: str, data: Mapping[str, Any]) -> None:
            (record.evaluated if kind == "evaluated" else partial(record.event, kind))(**data)

        try:
            with ending(record):
                record.started(0, STEPS)
                found = result(job, self.score(job, tell), claimed.run_id)
                record.file(RESULT, found.to_json())
            return [(claimed.run_id, found)]
        except Exception as error:
            return [(claimed.run_id, error)]
        finally:
            claimed.lock.release()

    def close(self) -> None:
        """Give up the runs that have not started."""
        for _, claimed, _ in self._queue:
            release(claimed)


def result(job: Job, score: float, run_id: str) -> Result:
    """Return the result of a run with this dev score."""
    versions = Versions(cse="", python="", torch="", transformers="", git=None)
    return Result(
        recipe="fake", title="Fake", identity=Identity(settings=job.loaded.recipe.hash()), language="en",
        seed=job.seed, model="", started=datetime.now(UTC),
        scores={}, curve={STEPS: score}, selected_step=STEPS, steps=STEPS, versions=versions, device="cpu",
        precision="fp32", seconds=0.0, run_id=run_id, finished=datetime.now(UTC),
    )  # fmt: skip


class Notes(TuneScreen):
    """Keeps what it is told."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.heard: list[Any] = []

    def trial_began(self, number, values):
        self.heard.append(("began", number, dict(values)))

    def trial_ended(self, trial, best, done):
        self.heard.append(("ended", trial.number, trial.state, best))

    def write(self, text):
        self.heard.append(text)

    def warned(self, text):
        self.heard.append(text)

    def advise(self, lines):
        self.heard += lines


def drive(
    config: SearchConfig, score: Score = good, screen: TuneScreen | None = None, slots: int = 1
) -> tuple[str, Driver, FakeEngine]:
    """Run a search, and return its ending, the driver and the engine."""
    engine = FakeEngine(score, slots)
    parent = About(name=config.name, group="tune", summary="tuning", search=config.name)
    driver = Driver(open_study(config), config, engine, parent, screen or TuneScreen(quiet=True))
    with pytest.MonkeyPatch.context() as patch, closing(engine):
        patch.setattr(Job, "claim", lambda job, device: engine.claim(job, device))
        return driver.drive(), driver, engine


def trials(config: SearchConfig) -> list[FrozenTrial]:
    """Return all trials of a search's study."""
    return list(load_study(config.name).get_trials())


def counts(name: str = "search") -> dict[str, int]:
    """Return the number of complete, pruned and failed trials of a search."""
    found = read_search(load_study(name))
    return {"complete": found.count("complete"), "pruned": found.count("pruned"), "failed": found.count("failed")}
