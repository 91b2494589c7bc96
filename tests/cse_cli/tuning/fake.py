"""A search whose trials cost nothing: what the engine's tests start, also in processes of their own.

    python -m tests.cse_cli.tuning.fake PLAN_FILE LOG [SECONDS]

does one worker's share; each trial waits so long and leaves a line in the log when it is done.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from cse_cli.tuning import study as studies
from cse_cli.tuning.config import SearchConfig
from cse_cli.tuning.observer import SearchObserver
from cse_cli.tuning.space import Parameter
from cse_cli.tuning.study import load_study, open_study
from cse_cli.tuning.workers import Worker

ROOT = Path(__file__).resolve().parents[3]


def knob(name: str = "train.learning_rate", **changes: Any) -> Parameter:
    """Return a continuous parameter."""
    about: dict[str, Any] = {
        "paths": (name,), "low": 1e-5, "high": 1e-3, "log": True, "step": None, "whole": False,
        "choices": None, "default": 3e-5, "source": "--range", **changes,
    }  # fmt: skip
    return Parameter(name=name, **about)


def recipe(folder: Path, name: str = "fake", **train: Any) -> Path:
    """Write a recipe that is valid and never built."""
    settings = {"steps": 8, "evaluate_every": 2, **train}
    path = folder / f"{name}.toml"
    path.write_text(
        'schema = 1\ntitle = "Fake"\n[data]\nfile = "text.txt"\n[encoders.online]\nname = "transformer"\n'
        'model = "none"\n[views.anchor]\n[views.positive]\n[losses.info_nce]\n[evaluate]\nselect = "dev.spearman"\n'
        '[evaluators.dev]\nname = "sts"\ndataset = "graded_pairs"\nsplit = "dev"\n[train]\n'
        + "".join(f"{key} = {value}\n" for key, value in settings.items()),
        encoding="utf-8",
    )
    return path


def plan(folder: Path, **changes: Any) -> SearchConfig:
    """Return a search over one continuous parameter of the fake recipe."""
    about: dict[str, Any] = {"name": "search", "recipe": str(recipe(folder)), "parameters": (knob(),), **changes}
    return SearchConfig(**about)


def good(trial: optuna.Trial) -> float:
    """Return a score that depends on the values alone."""
    return -sum(float(value) for value in trial.params.values() if isinstance(value, float | int))


def share(
    plan: SearchConfig, objective: Callable[[optuna.Trial], float] = good, watcher: Any = None
) -> tuple[str, Worker]:
    """Do one worker's share in this process; return why it ended, and the worker."""
    worker = Worker(open_study(plan), plan, objective, watcher or SearchObserver())
    return worker.work(), worker


def trials(plan: SearchConfig) -> list[FrozenTrial]:
    """Return all trials of a plan's study."""
    return list(load_study(plan.storage, plan.name).get_trials())


class Workers:
    """Processes that share one search."""

    def __init__(self, plan: SearchConfig, folder: Path, count: int, seconds: float = 0.05) -> None:
        self.plan = plan
        self.log = folder / "done.log"
        file = folder / "plan.json"
        file.write_text(plan.model_dump_json(), encoding="utf-8")
        command = [sys.executable, "-m", "tests.cse_cli.tuning.fake", str(file), str(self.log), str(seconds)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.processes = [
            subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            for _ in range(count)
        ]

    def wait_for(self, lines: int, seconds: float = 200.0) -> None:
        """Wait until so many trials have left a line."""
        until = time.monotonic() + seconds
        while self.lines() < lines:
            assert time.monotonic() < until, self.messages()
            time.sleep(0.02)

    def lines(self) -> int:
        """Return how many trials have been done."""
        return len(self.log.read_text(encoding="utf-8").split()) if self.log.exists() else 0

    def kill(self, count: int) -> None:
        """Kill so many processes, each in the middle of a trial, as power cuts and the kernel do."""
        while count:
            for process in self.processes[:count]:
                process.send_signal(signal.SIGSTOP)  # else its trial may be over before the signal arrives
                if self._at_work(process):
                    process.send_signal(signal.SIGKILL)
                    process.wait()
                    self.processes.remove(process)
                    count -= 1
                else:
                    process.send_signal(signal.SIGCONT)
                    time.sleep(0.02)

    def _at_work(self, process: subprocess.Popen[bytes]) -> bool:
        running = [trial for trial in trials(self.plan) if trial.state == TrialState.RUNNING and trial.params]
        return process.pid in {trial.user_attrs.get("owner", ["", 0])[1] for trial in running}

    def end(self) -> list[int]:
        """Wait for those that are left; return their exit codes."""
        return [process.wait(200) for process in self.processes]

    def messages(self) -> str:
        """Return what those wrote that have ended."""
        ended = [process for process in self.processes if process.poll() is not None]
        return "\n".join(process.stderr.read().decode() for process in ended if process.stderr)


def demand_exact(found: Sequence[FrozenTrial], budget: int, killed: int) -> None:
    """Check that exactly `budget` trials came to an end, none lost, none twice."""
    done = studies.settled(found)
    assert len(done) == budget
    assert {trial.state for trial in found} <= {TrialState.COMPLETE, TrialState.FAIL}
    gone = [trial for trial in found if trial.state == TrialState.FAIL]
    assert len(gone) == killed
    repeats = {trial.user_attrs[studies.RETRY_OF]: trial for trial in found if studies.RETRY_OF in trial.user_attrs}
    assert sorted(repeats) == sorted(trial.number for trial in gone)
    assert all(repeats[trial.number].params == trial.params for trial in gone)
    assert len({tuple(trial.params.items()) for trial in done}) == budget
    assert all(trial.value == good_of(trial) for trial in done)


def good_of(trial: FrozenTrial) -> float:
    """Return the score that a finished trial should have."""
    return -sum(float(value) for value in trial.params.values())


def main() -> None:
    """Do one worker's share of the plan in a file."""
    file, log, seconds = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])

    def objective(trial: optuna.Trial) -> float:
        time.sleep(seconds)
        with log.open("a", encoding="utf-8") as lines:
            lines.write(f"{trial.number}\n")
        return good(trial)

    share(SearchConfig.model_validate_json(file.read_text(encoding="utf-8")), objective)


if __name__ == "__main__":
    main()
