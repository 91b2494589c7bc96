"""A search whose runs cost nothing, for the tests of the driver."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import FrozenTrial

from cse_cli.core.identity import Identity
from cse_cli.core.results import Result, Versions
from cse_cli.jobs.engine import Engine
from cse_cli.jobs.job import Job
from cse_cli.runs.claim import Claimed
from cse_cli.runs.events import Listener, Pruned
from cse_cli.runs.lock import FileLock
from cse_cli.runs.record import ABOUT, STOP, About, claim_of, folder_of
from cse_cli.tuning.config import SearchConfig
from cse_cli.tuning.driver import Driver
from cse_cli.tuning.live import TuneScreen
from cse_cli.tuning.parameter import Parameter
from cse_cli.tuning.study import load_study, open_study
from tests.support.records import recorded

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
    about: dict[str, Any] = {"name": "search", "recipe": str(recipe(folder)), "parameters": (parameter(),), **changes}
    return SearchConfig(**about)


def good(job: Job, tell: Listener) -> float:
    """Return a score that depends only on the values."""
    train = job.loaded.recipe.train
    return -float(train.learning_rate + train.weight_decay + train.batch_size)


def raising(error: BaseException, *numbers: int) -> Score:
    """Return a score that raises an error in these trials, unless their run is resumed."""

    def score(job: Job, tell: Listener) -> float:
        if number(job) in numbers and not is_resumed(job):
            raise error
        return good(job, tell)

    return score


def number(job: Job) -> int:
    """Return the number of the trial of a run."""
    assert job.trial is not None
    return job.trial


class FakeEngine(Engine):
    """Executes the oldest started run on each call of `ended`. An interrupted run leaves a record.

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
        self._queue: deque[tuple[Job, str, Listener]] = deque()

    def claim(self, job: Job, _device: str | None) -> Claimed:
        """Stand in for the claim of a run, whose recipe names no model."""
        self.jobs.append(job)
        self.resumed.append(is_resumed(job))
        folder_of(run_of(job)).mkdir(parents=True, exist_ok=True)
        return Claimed(run_of(job), FileLock(claim_of(run_of(job))), is_new=False)

    @property
    def device(self) -> str:
        return "cpu"

    def start(self, claimed: Claimed, listener: Listener) -> None:
        self._queue.append((self.jobs[-1], claimed.run_id, listener))
        self.most = max(self.most, len(self._queue))

    def ended(self) -> list[tuple[str, Result | Exception]]:
        if not self._queue:
            return []
        job, run_id, listener = self._queue.popleft()

        def tell(kind: str, data: Mapping[str, Any]) -> None:
            listener(kind, data)
            if (stop := folder_of(run_id) / STOP).exists():
                reason = stop.read_text()
                stop.unlink()
                raise Pruned(reason)

        try:
            tell("started", {"step": 0, "steps": STEPS})
            return [(run_id, result(job, self.score(job, tell), run_id))]
        except KeyboardInterrupt:
            folder_of(run_id).rmdir()
            recorded(run_id=run_id, end="stopped")
            raise
        except Exception as error:
            return [(run_id, error)]


def run_of(job: Job) -> str:
    """Return the ID of a run."""
    return f"{number(job)}x{job.seed}x{job.search}"


def is_resumed(job: Job) -> bool:
    """Return whether the run was interrupted before."""
    return (folder_of(run_of(job)) / ABOUT).exists()


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
) -> tuple[str, Driver, FakeEngine]:
    """Run a search, and return its ending, the driver and the engine."""
    engine = FakeEngine(score, slots)
    parent = About(name=config.name, group="tune", summary="tuning", search=config.name)
    driver = Driver(open_study(config), config, engine, parent, screen or TuneScreen(quiet=True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Job, "claim", lambda job, device: engine.claim(job, device))
        return driver.drive(), driver, engine


def trials(config: SearchConfig) -> list[FrozenTrial]:
    """Return all trials of a search's study."""
    return list(load_study(config.name).get_trials())
