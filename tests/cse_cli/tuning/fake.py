"""A search whose runs cost nothing, for the tests of the driver."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

from optuna.trial import FrozenTrial

from cse_cli.core.events import Observer, RunInfo, Started
from cse_cli.core.identity import Identity
from cse_cli.core.results import Result, Versions
from cse_cli.jobs.executor import Executor
from cse_cli.runs.record import About
from cse_cli.training.build import Job
from cse_cli.tuning.config import SearchConfig
from cse_cli.tuning.driver import Driver
from cse_cli.tuning.live import TuneScreen
from cse_cli.tuning.parameter import Parameter
from cse_cli.tuning.study import load_study, open_study
from tests.support.records import recorded

STEPS = 8
Score = Callable[[Job, Observer], float]
"""Executes a run with its observer, and returns the score."""


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
    about: dict[str, Any] = {"name": "search", "recipe": str(recipe(folder)), "parameters": (parameter(),), **changes}
    return SearchConfig(**about)


def good(job: Job, observer: Observer) -> float:
    """Return a score that depends only on the values."""
    train = job.loaded.recipe.train
    return -float(train.learning_rate + train.weight_decay + train.batch_size)


def raising(error: BaseException, *numbers: int) -> Score:
    """Return a score that raises an error in these trials, unless their run is resumed."""

    def score(job: Job, observer: Observer) -> float:
        if number(job) in numbers and job.resume is None:
            raise error
        return good(job, observer)

    return score


def number(job: Job) -> int:
    """Return the number of the trial of a run."""
    assert job.trial is not None
    return job.trial


class FakeExecutor(Executor):
    """Executes the oldest submitted run on each wait. An interrupted run leaves a record.

    Args:
        score: Executes a run.
        slots: Maximum number of submitted runs.
    """

    slots = 1

    def __init__(self, score: Score = good, slots: int = 1) -> None:
        self.score = score
        self.slots = slots
        self.jobs: list[Job] = []
        self.most = 0
        self._queue: deque[tuple[Job, Observer, Future[Result]]] = deque()
        self._ids = count()

    def submit(self, job: Job, observer: Observer) -> Future[Result]:
        future: Future[Result] = Future()
        self.jobs.append(job)
        self._queue.append((job, observer, future))
        self.most = max(self.most, len(self._queue))
        return future

    def wait(self) -> None:
        job, observer, future = self._queue.popleft()
        run_id = job.resume or f"{number(job)}x{job.seed}x{id(self)}x{next(self._ids)}"
        try:
            observer.observe(Started(RunInfo("fake", "Fake", job.seed, "cpu", "fp32", run_id, "", STEPS, 0, 0)))
            future.set_result(result(job, self.score(job, observer), run_id))
        except KeyboardInterrupt:
            recorded(run_id=run_id, end="stopped")
            raise
        except Exception as error:
            future.set_exception(error)

    def close(self, *, cancel: bool) -> None:
        """Do nothing."""


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

    def resumed(self, number):
        self.heard.append(("resumed", number))

    def warned(self, text):
        self.heard.append(text)

    def interrupted(self, command):
        self.heard.append(command)


def drive(
    config: SearchConfig, score: Score = good, screen: TuneScreen | None = None, slots: int = 1
) -> tuple[str, Driver, FakeExecutor]:
    """Run a search, and return its ending, the driver and the executor."""
    executor = FakeExecutor(score, slots)
    parent = About(name=config.name, group="tune", summary="tuning", search=config.name)
    driver = Driver(open_study(config), config, executor, parent, screen or TuneScreen(quiet=True))
    return driver.drive(), driver, executor


def trials(config: SearchConfig) -> list[FrozenTrial]:
    """Return all trials of a search's study."""
    return list(load_study(config.name).get_trials())
