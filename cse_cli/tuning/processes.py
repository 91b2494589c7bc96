"""Several workers on one machine: a process each, one a CUDA device, told apart by nothing but their device."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import optuna

from cse_cli.home import home
from cse_cli.processes.threads import environment
from cse_cli.tuning import trials as words
from cse_cli.tuning.plan import Plan, Watcher
from registry.errors import CseError

POLL_SECONDS = 0.5
LEAVE_SECONDS = 30.0
"""How long a worker that is asked to end may take to give its trial back."""
_TOLD_LINES = 8


@dataclass(frozen=True)
class _Started:
    process: subprocess.Popen[bytes]
    log: Path


class Crew:
    """The workers of one command.

    Args:
        plan: What each is to do.
        devices: One for each worker.
        parent: The search's run in the tracking store.
        watcher: Is told of every trial of this machine's workers as it ends.
    """

    def __init__(self, plan: Plan, devices: Sequence[str], parent: str | None, watcher: Watcher) -> None:
        self.plan = plan
        self.watcher = watcher
        self.ran = 0
        self._devices = devices
        self._parent = parent
        self._workers: list[_Started] = []

    def work(self, study: optuna.Study) -> None:
        """Start the workers and wait for them.

        Raises:
            CseError: None of them came to its end.
        """
        seen = {t.number for t in words.settled(study.get_trials(deepcopy=False))}
        try:
            for number, device in enumerate(self._devices):
                self._workers.append(self._start(number, device))
            while any(worker.process.poll() is None for worker in self._workers):
                self._tell(study, seen)
                time.sleep(POLL_SECONDS)
            self._tell(study, seen)
        except BaseException:
            self._end()
            raise
        self._report()

    def _start(self, number: int, device: str) -> _Started:
        plan = replace(self.plan, device=device, workers=1, join=True, trials=None)
        log = home() / "tuning" / f"{self.plan.name}-worker-{number}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as file:
            # A session of its own: Ctrl-C reaches this process alone, which asks each worker once to end.
            process = subprocess.Popen(
                [sys.executable, "-m", "cse_cli.tuning", self._parent or ""],
                env=environment(len(self._devices), device),
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        if process.stdin is not None:
            # Not on the command line: other users may read that, and the address has a password.
            with suppress(BrokenPipeError), process.stdin as pipe:
                pipe.write(plan.to_json().encode())
        return _Started(process, log)

    def _tell(self, study: optuna.Study, seen: set[int]) -> None:
        trials = study.get_trials(deepcopy=False)
        for trial in words.settled(trials):
            if trial.number not in seen:
                seen.add(trial.number)
                self.ran += 1
                self.watcher.trial_ended(words.ended(trial, trials))

    def _end(self) -> None:
        for worker in self._workers:
            worker.process.terminate()
        until = time.monotonic() + LEAVE_SECONDS
        for worker in self._workers:
            try:
                worker.process.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()

    def _report(self) -> None:
        failed = [worker for worker in self._workers if worker.process.returncode != 0]
        for worker in failed:
            self.watcher.warned(f"a worker ended with code {worker.process.returncode}:\n{_end_of(worker.log)}")
        if failed and len(failed) == len(self._workers):
            raise CseError(
                "no worker came to its end: " + _end_of(failed[0].log),
                f"the study is kept; their logs are {self._workers[0].log.parent}/{self.plan.name}-worker-*.log",
            )


def _end_of(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().split("\n")
    return "\n".join(lines[-_TOLD_LINES:])
